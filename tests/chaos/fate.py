"""The faults of a simulated cluster and its store, all derived from one seed, so that a failing history can be
replayed.

Each decision is a random number that is addressed by what is decided and how often it was decided before, never by
order. Threads that race one another therefore do not change the faults.
"""

import errno
import hashlib
from collections import Counter

from fsspec.implementations.memory import MemoryFileSystem

from collapsium.storage.io.folder import Folder
from collapsium.storage.io.run_lock import RunLock

LASTING = {
    errno.ENOSPC: "no space is left on the disk",
    errno.EIO: "the store failed 6 times",
    errno.EACCES: "Permission denied",
}


class DriverCrash(BaseException):
    """Raised in the place of a killed driver, whose later operations all raise it too."""


class Fate:
    """The faults of one simulated history.

    `session` counts the restarts of the driver. Each session draws its faults anew, at rates that decrease with the
    number of sessions, so that the history comes to an end.
    """

    def __init__(self, seed):
        self.seed, self.session = seed, 0
        self.dead = False  # whether the driver was killed
        self.taken_over = False  # whether another driver has taken over the run
        self.lasting = None  # errno of a lasting error that all further operations on the store raise
        self.faults = []  # descriptions of the faults so far
        self._asked = Counter()
        # How often each kind of fault occurs; 40% of the histories have a single kind of fault only.
        kinds = (
            "crash",
            "lose",
            "scheduler",
            "duplicate",
            "task",
            "store",
            "lasting",
            "gone",
            "interrupt",
            "sleep",
        )
        only = self.draw("only") < 0.4
        chosen = kinds[int(self.draw("kind") * len(kinds))]
        self.rates = {kind: 0.0 if only and kind != chosen else self.draw(f"rate {kind}") ** 3 for kind in kinds}

    def draw(self, *address):
        """Return a number in [0, 1) that depends on the seed and the address only."""
        text = repr((self.seed, *address)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") / 2.0**64

    def happens(self, kind, scale, *address):
        """Return whether a fault of this kind occurs now, and record it if so."""
        key = (kind, *address)
        self._asked[key] += 1
        rate = self.rates[kind] * scale / (1.0 + self.session)
        if self.draw(self.session, *key, self._asked[key]) >= rate:
            return False
        self.faults.append(f"session {self.session}: {kind} at {' '.join(map(str, address))}")
        return True

    def sleep(self):
        """Simulate a driver that is suspended for longer than its lease: another driver takes over the run's lock and
        then dies."""
        store, before = FaultyFileSystem.store, FaultyFileSystem.fate
        if not any(path.startswith("/store/run/lock/") for path in store):
            return
        FaultyFileSystem.fate = None
        try:
            successor = RunLock(Folder("faulty://store/run/lock"))
            successor.acquire()
            successor._released.set()  # as if the successor had died, so that nothing renews its lease
        finally:
            FaultyFileSystem.fate = before
        self.taken_over = True

    def restart(self):
        """Begin the next session: the driver is restarted, and the store works again."""
        self.session += 1
        self.dead, self.lasting, self.taken_over = False, None, False
        self._asked.clear()


class FaultyFileSystem(MemoryFileSystem):
    """An object store in memory whose operations fail as `fate` decides."""

    protocol = "faulty"
    store = {}  # noqa: RUF012 - one store, as there is one of MemoryFileSystem
    pseudo_dirs = [""]  # noqa: RUF012
    cachable = False
    fate = None

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("faulty://", "memory://"))

    def meet(self, operation, path):
        fate = type(self).fate
        if fate is None or path.startswith("/corpus"):
            return
        path = path.lstrip("/")
        if fate.dead:
            raise DriverCrash
        if fate.happens("crash", 0.01, operation, path):
            fate.dead = True
            raise DriverCrash
        if fate.lasting is None and fate.happens("lasting", 0.005, operation, path):
            numbers = sorted(LASTING)
            fate.lasting = numbers[int(fate.draw("which", operation, path) * len(numbers))]
        if fate.lasting is not None:
            raise OSError(fate.lasting, LASTING[fate.lasting], path)
        if fate.happens("store", 0.4, operation, path):
            raise OSError(errno.EIO, "the store failed on purpose", path)

    def cat_file(self, path, start=None, end=None, **kwargs):
        path = self._strip_protocol(path)
        self.meet("read", path)
        return super().cat_file(path, start, end, **kwargs)

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        path = self._strip_protocol(path)
        self.meet("write", path)
        super().pipe_file(path, value, mode=mode, **kwargs)
        self.meet("written", path)  # a fault here means that the file was written, but the answer was lost

    def rm_file(self, path):
        path = self._strip_protocol(path)
        self.meet("remove", path)
        super()._rm(path) if path in self.store else super().rm_file(path)
        self.meet("removed", path)

    def rm(self, path, recursive=False, maxdepth=None):
        path = self._strip_protocol(path)
        self.meet("remove", path)
        for found in [name for name in self.store if name == path or name.startswith(f"{path}/")]:
            del self.store[found]  # object stores remove many files in one operation
        self.pseudo_dirs[:] = [
            folder for folder in self.pseudo_dirs if folder != path and not folder.startswith(f"{path}/")
        ]
        self.meet("removed", path)

    def exists(self, path, **kwargs):
        path = self._strip_protocol(path)
        self.meet("exists", path)
        return super().exists(path, **kwargs)

    def ls(self, path, detail=True, **kwargs):
        path = self._strip_protocol(path)
        self.meet("list", path)
        return super().ls(path, detail=detail, **kwargs)
