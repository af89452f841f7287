"""What befalls a simulated cluster and its store: all of it follows from one seed, so that a failing seed replays.

Each decision is a number drawn by address (what is asked, and how often it was asked before), never by order: threads that
race one another do not change it.
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
    """The driver is killed: nothing of it runs any more."""


class Fate:
    """The faults of one simulated history.

    `session` counts the driver's lives; each has faults of its own, and fewer the more there were, so that it comes to an
    end.
    """

    def __init__(self, seed):
        self.seed, self.session = seed, 0
        self.dead = False  # the driver
        self.taken_over = False  # the run, by another driver
        self.lasting = None  # number of an error that all operations on the store meet from now on
        self.faults = []  # what befell it, in words
        self._asked = Counter()
        # How bad it gets: some histories know one kind of fault only, and that often.
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
        """A number in [0, 1) that the address alone decides."""
        text = repr((self.seed, *address)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") / 2.0**64

    def happens(self, kind, scale, *address):
        """Whether a fault of a kind happens here and now."""
        key = (kind, *address)
        self._asked[key] += 1
        rate = self.rates[kind] * scale / (1.0 + self.session)
        if self.draw(self.session, *key, self._asked[key]) >= rate:
            return False
        self.faults.append(f"session {self.session}: {kind} at {' '.join(map(str, address))}")
        return True

    def sleep(self):
        """The driver sleeps past its lease; another takes its run over, by its own clock, and has ended when it
        wakes."""
        store, before = FaultyFileSystem.store, FaultyFileSystem.fate
        if not any(path.startswith("/store/run/lock/") for path in store):
            return
        FaultyFileSystem.fate = None
        try:
            successor = RunLock(Folder("faulty://store/run/lock"))
            successor.acquire()
            successor._released.set()  # it dies, and renews nothing
        finally:
            FaultyFileSystem.fate = before
        self.taken_over = True

    def again(self):
        """Restart the driver after the store was repaired."""
        self.session += 1
        self.dead, self.lasting, self.taken_over = False, None, False
        self._asked.clear()


class FaultyFileSystem(MemoryFileSystem):
    """A store in memory, as an object store, that meets its fate."""

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
        self.meet("written", path)  # it was written, but the answer was lost

    def rm_file(self, path):
        path = self._strip_protocol(path)
        self.meet("remove", path)
        super()._rm(path) if path in self.store else super().rm_file(path)
        self.meet("removed", path)

    def rm(self, path, recursive=False, maxdepth=None):
        path = self._strip_protocol(path)
        self.meet("remove", path)
        for found in [name for name in self.store if name == path or name.startswith(f"{path}/")]:
            del self.store[found]  # many at once, as an object store does it
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
