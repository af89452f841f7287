"""The lock of a run: one process works on it at a time, and whoever comes after a dead one takes over.

A lock is a numbered file in the folder ``lock``, made by a write of which only one can succeed. Its number is the
generation of its owner: each takeover raises it. The owner of the highest number holds the run and renews its file
every few seconds. No wall clock is compared: whoever finds the file of another
machine watches it, and takes over once it has not changed for a lease on the watcher's own monotonic clock.

What the owner writes passes `RunLock.hold`, which finds out first whether the lock is still its own. On this machine,
and on shared file systems that know locks, a takeover cannot come between that look and the write: both hold ``gate``.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from collapsium.storage.errors import (
    AbsentError,
    CollapsiumError,
    DamagedError,
    LockedError,
    StoreError,
    TakenOverError,
)
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import checked, dump, numbers_of_names, parse_record

LEASE = 60.0  # seconds without a change after which an owner that cannot be looked at is taken to be dead
RENEWALS = 6  # in a lease
LOOKS = 60  # of a watcher, in a lease
KIND = "collapsium-lock"
VERSION = 3
GATE = "gate"
MOST, MOST_BYTES = 10**15, 1 << 16  # generations, and what a lock's file may hold
NO_LOCKS = {errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS, errno.EBADF, errno.EINVAL}  # of file systems without them

pause: Callable[[float], None] = time.sleep
notice: Callable[[str], None] = logging.getLogger("collapsium").warning


def clock() -> float:
    """Return seconds of a clock that nobody sets; on Linux it counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def this_machine() -> str:
    """Name this machine since it was started; containers that do not see each other's processes are several."""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with contextlib.suppress(OSError):
            place = Path(path)
            parts.append(str(place.readlink()) if place.is_symlink() else place.read_text(encoding="ascii").strip())
    return " ".join(parts)


class LockRecord(BaseModel):
    """What the file of a lock says; anyone may have written it.

    Attributes
    ----------
    machine, process, started : str, int and str
        The owner: its machine, its number there, and when that process was started, on a clock that nobody sets.
    lease : float
        Seconds without a change after which the owner is taken to be dead.
    nonce : str
        Drawn by the owner.
    renewals : int
        How often it has renewed the lock.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    machine: Annotated[str, Field(pattern=r"^[!-~]+( [!-~]+)*$", max_length=500)]
    process: Annotated[int, Field(ge=1, lt=1 << 31)]
    started: Annotated[str, Field(pattern="^[0-9.]+$", max_length=40)]
    lease: Annotated[float, Field(gt=0.0, le=600.0)]
    nonce: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    renewals: Annotated[int, Field(ge=0, lt=1 << 53)]


class Sign(Enum):
    """What a look at a lock's owner has shown."""

    LIVES = "lives"
    SILENT = "silent"  # nothing is known but that its file has not changed since it was first seen
    GONE = "gone"  # its process is dead for sure


@dataclass(frozen=True)
class Owner:
    """Who holds a lock.

    Attributes
    ----------
    generation : int
        The number of its file.
    data : bytes
        What that holds.
    record : LockRecord or None
        What it says; None where it is damaged, or of another release.
    sign : Sign
        Whether the owner lives: on this machine by looking, elsewhere by its file that changes.
    silent : float
        Seconds for which its file has not changed while it was watched.
    """

    generation: int
    data: bytes
    record: LockRecord | None
    sign: Sign
    silent: float = 0.0

    @property
    def lease(self) -> float:
        """Seconds for which it may be silent."""
        return LEASE if self.record is None else self.record.lease

    @property
    def lives(self) -> bool:
        """Whether it is believed to live."""
        return self.sign is Sign.LIVES or (self.sign is Sign.SILENT and self.silent <= self.lease)

    @property
    def name(self) -> str:
        """Process and machine, in words."""
        if self.record is None:
            return "a process"
        return f"process {self.record.process} on {self.record.machine.split()[0]}"


class LockWatch:
    """Watches a lock without taking it.

    Parameters
    ----------
    folder : Folder
        The run's folder ``lock``.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = Folder(folder.url)
        self._seen: tuple[int, bytes] | None = None
        self._since, self._changed = 0.0, False

    def look(self) -> Owner | None:
        """Return who holds the lock; None where it was never held."""
        numbers = numbers_in(self._folder)
        while numbers:
            number = numbers.pop()
            try:
                return self._judged(number, self._folder.read(file_of(number), MOST_BYTES))
            except AbsentError:  # its owner was followed by another just now
                continue
            except DamagedError as error:  # no file of ours
                return self._judged(number, str(error).encode())
        self._seen = None
        return None

    def _judged(self, number: int, data: bytes) -> Owner:
        if self._seen != (number, data):
            self._changed = self._seen is not None and self._seen[0] == number
            self._seen, self._since = (number, data), clock()
        record = _parsed(f"{self._folder.url}/{file_of(number)}", data)
        return Owner(number, data, record, self._sign(record), clock() - self._since)

    def _sign(self, record: LockRecord | None) -> Sign:
        if record is None or record.machine != this_machine():
            return Sign.LIVES if self._changed and clock() - self._since < LEASE / 2 else Sign.SILENT
        lives = _lives(record.process, record.started)
        return Sign.SILENT if lives is None else Sign.LIVES if lives else Sign.GONE

    def wait(self) -> Owner | None:
        """Watch an owner of whom nothing is known, until it shows that it lives, or has been silent for its lease.

        Returns
        -------
        Owner or None
            The one that is followed; None where the lock was never held.

        Raises
        ------
        LockedError
            The owner lives.
        """
        owner, told = self.look(), False
        while owner is not None and owner.lives:
            if owner.sign is Sign.LIVES:
                raise LockedError(f"{self._place}: {owner.name} works on it; wait for it, or stop it")
            if not told:
                notice(f"{self._place}: {owner.name} may work on it; watching its lock for up to {owner.lease:.0f} s")
                told = True
            pause(owner.lease / LOOKS)
            owner = self.look()
        return owner

    @property
    def _place(self) -> str:
        return self._folder.url.rpartition("/")[0]


class RunLock:
    """The lock of a run.

    Parameters
    ----------
    folder : Folder
        The run's folder ``lock``.
    lease : float, optional
        Seconds after which an owner that cannot be looked at, and has not renewed its lock, is taken to be dead.
    before : callable, optional
        Returns the highest generation that is known otherwise; a lock that is released leaves nothing.

    Attributes
    ----------
    generation : int
        The owner's number; 0 before the lock is taken.
    """

    def __init__(self, folder: Folder, lease: float = LEASE, before: Callable[[], int] = lambda: 0) -> None:
        self._folder, self._lease, self._before = Folder(folder.url), lease, before
        self.generation = 0
        self._nonce, self._renewals, self._renewed = uuid.uuid4().hex, 0, 0.0
        self._mutex, self._depth, self._gated = threading.RLock(), 0, False
        self._released = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lost = isinstance(error, Exception) and not isinstance(error, LockedError) and self._is_superseded()
        self.release()
        if lost:  # whatever it met then came of that
            raise self._taken_over() from error

    def acquire(self) -> None:
        """Take the lock, and renew it from now on.

        Raises
        ------
        LockedError
            Another process holds it.
        """
        watch = LockWatch(self._folder)
        before = watch.wait()
        with self._gate(make=True):
            now = watch.look()
            if (before and (before.generation, before.data)) != (now and (now.generation, now.data)):
                raise self._rival()
            self.generation = 1 + max(0 if now is None else now.generation, self._before())
            if self.generation > MOST:
                raise DamagedError(
                    self._folder.url, f"found the generation {self.generation - 1}; remove {self._folder.url}"
                )
            data = dump(self._record())
            made = self._folder.create(file_of(self.generation), data)
            # Where a store cannot create on a condition, of two who did both see the second one's.
            if not made or self._folder.read(file_of(self.generation)) != data:
                self.generation = 0
                raise self._rival()
            for number in numbers_in(self._folder):
                if number < self.generation:
                    self._folder.delete(file_of(number))
        self._renewed = clock()
        self._thread = threading.Thread(target=self._renew, name="collapsium-lock", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep the lock from being taken over for a moment, in which something is written.

        Raises
        ------
        TakenOverError
            Another process has taken the run over.
        """
        with self._mutex:
            if self._depth:
                yield
                return
            with self._gate():
                self._depth += 1
                try:
                    self._require_own()
                    if not self._gated and clock() - self._renewed > self._lease / 2:
                        self._write()  # whoever watches begins anew
                    yield
                finally:
                    self._depth -= 1

    def require(self) -> None:
        """Raise `TakenOverError` if another process has taken the run over, as after a sleep longer than the lease."""
        with self.hold():
            pass

    def _is_superseded(self) -> bool:
        """Return whether another process has taken over, rather than that this one has removed all."""
        try:
            self.require()
        except TakenOverError:
            return Folder(self._place).exists()
        except CollapsiumError:  # nobody knows
            return False
        return False

    def release(self) -> None:
        """Let others have it."""
        self._released.set()
        if self._thread is not None:
            self._thread.join()
        if self.generation:
            with contextlib.suppress(CollapsiumError), self.hold():
                self._folder.delete(file_of(self.generation))
                if not numbers_in(self._folder):
                    self._folder.remove(known=(GATE,))
        self.generation = 0

    @property
    def _place(self) -> str:
        return self._folder.url.rpartition("/")[0]

    def _rival(self) -> LockedError:
        return LockedError(f"{self._place}: another process has just begun to work on it")

    def _taken_over(self) -> TakenOverError:
        return TakenOverError(
            f"{self._place}: the lock was lost: another process has taken over, as this one had not renewed it for "
            f"{self._lease:.0f} s, or the folder was removed; this one writes no more"
        )

    def _require_own(self) -> None:
        """Raise `TakenOverError` unless the newest lock is this one."""
        numbers = numbers_in(self._folder)
        try:
            own = bool(numbers) and numbers[-1] == self.generation > 0
            if own and self._nonce.encode() in self._folder.read(file_of(self.generation)):
                return
        except AbsentError:
            pass
        raise self._taken_over()

    def _record(self) -> dict[str, Any]:
        return {
            "format": KIND,
            "version": VERSION,
            "machine": this_machine(),
            "process": os.getpid(),
            "started": _started(os.getpid()) or "0",
            "lease": self._lease,
            "nonce": self._nonce,
            "renewals": self._renewals,
        }

    def _write(self) -> None:
        began = clock()
        self._renewals += 1
        self._folder.write(file_of(self.generation), dump(self._record()))
        self._renewed = began

    def _renew(self) -> None:
        """Renew the lock until it is released or lost; a store that fails for a while is tried again."""
        while not self._released.wait(self._lease / RENEWALS):
            try:
                with self.hold():
                    self._write()
            except TakenOverError:
                return
            except CollapsiumError:
                continue

    @contextlib.contextmanager
    def _gate(self, *, make: bool = False) -> Iterator[None]:
        """Hold the gate, where the folder's file system knows locks; the system opens it when its holder dies."""
        handle = self._open_gate(make=make) if self._folder.local else None
        self._gated = handle is not None
        try:
            yield
        finally:
            if handle is not None:
                os.close(handle)

    def _open_gate(self, *, make: bool) -> int | None:
        """Return the gate, held; None where there are no such locks."""
        path, began = Path(self._folder.path) / GATE, clock()
        while True:
            if make:
                self._folder.make()
            try:
                handle = _opened(path)
                if handle is None or _is_at(path, handle):
                    return handle
                os.close(handle)  # it was removed with the lock as that was released
            except BlockingIOError:
                if clock() - began > self._lease:
                    raise LockedError(
                        f"{self._place}: a process that was stopped in the middle of a write holds {GATE} of its lock; "
                        "let it go on, or end it"
                    ) from None
                pause(0.01)
            except FileNotFoundError:
                if not make:
                    raise self._taken_over() from None
            except OSError as error:
                raise StoreError(f"{self._folder.url}/{GATE}: {error.strerror}") from error


def _opened(path: Path) -> int | None:
    """Open and lock a file; None where the file system has no locks, `BlockingIOError` where another has it."""
    try:
        import fcntl
    except ImportError:
        return None
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
    except PermissionError:  # made by another user
        handle = os.open(path, os.O_RDONLY | flags)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if error.errno in NO_LOCKS:
            return None
        raise
    return handle


def _is_at(path: Path, handle: int) -> bool:
    """Return whether an open file is still the one of its name."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def file_of(number: int) -> str:
    """Return the name of the file of a generation."""
    return f"{number:08d}.json"


def numbers_in(folder: Folder) -> list[int]:
    """Return the generations that have a file, ascending."""
    return numbers_of_names(folder.names(), 8, ".json")


def _parsed(path: str, data: bytes) -> LockRecord | None:
    """Return what a lock's file says; None where it is damaged, or of another release."""
    try:
        return LockRecord.model_validate(checked(parse_record(data, path, KIND, VERSION, VERSION), path))
    except (DamagedError, ValidationError):
        return None


def _started(process: int) -> str | None:
    """Return when a process was started, in ticks since the machine was; None where there is none, or only its shell.

    Elsewhere than on Linux it is the system's time of its start.
    """
    if Path("/proc/self/stat").exists():
        try:
            text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        state, *rest = text.rpartition(")")[2].split()
        return None if state in "ZX" else rest[18]
    import psutil

    try:
        found = psutil.Process(process)
        return None if found.status() == psutil.STATUS_ZOMBIE else str(found.create_time())
    except psutil.NoSuchProcess:
        return None


def _is_stopped(process: int) -> bool:
    import psutil

    with contextlib.suppress(psutil.Error):
        return psutil.Process(process).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return False


def _lives(process: int, started: str) -> bool | None:
    """Return whether a process of this machine lives; None where it does and is stopped, so that it may never go on."""
    try:
        if _started(process) != started:
            return False
    except OSError:  # it may not be looked at
        return None
    return None if _is_stopped(process) else True
