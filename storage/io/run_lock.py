"""The lock of a run: only one process at a time works on it, and another may take over after that process has died.

A lock is a numbered file in the folder ``lock``, made by a write of which only one can succeed. Its number is the
generation of its owner; each takeover raises it. The owner of the highest number holds the run and renews its file
every few seconds. Wall clocks are not compared: a process that finds another machine's lock watches its file, and
takes over once the file has not changed for the duration of a lease, by the watcher's monotonic clock.

Every write of the owner passes `RunLock.hold`, which first checks that the owner still holds the lock. On this machine,
and on shared file systems with locks, no takeover can happen between the check and the write, because both require
``gate``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
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
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from collapsium.storage.data_types import JsonObject
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

pause: Callable[[float], None] = time.sleep


def clock_seconds() -> float:
    """Return the seconds of a clock that is never adjusted; on Linux it counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def this_machine() -> str:
    """Return a name of this machine since its last boot; containers with separate processes have different names."""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with contextlib.suppress(OSError):
            place = Path(path)
            parts.append(str(place.readlink()) if place.is_symlink() else place.read_text(encoding="ascii").strip())
    return " ".join(parts)


def start_time(process: int) -> str | None:
    """Return the start time of a process, on a clock that is never adjusted."""
    import psutil

    if Path("/proc/self/stat").exists():
        try:
            text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        state, *rest = text.rpartition(")")[2].split()
        return None if state in "ZX" else rest[18]
    try:
        running = psutil.Process(process)
        return None if running.status() == psutil.STATUS_ZOMBIE else str(running.create_time())
    except psutil.NoSuchProcess:
        return None


def is_alive(process: int, started: str) -> bool | None:
    """Return True if a process of this machine is alive; None if it is stopped, because it may never continue."""
    import psutil

    try:
        if start_time(process) != started:
            return False
    except OSError:  # not permitted
        return None
    with contextlib.suppress(psutil.Error):
        if psutil.Process(process).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
            return None
    return True


LEASE = 60.0  # Seconds without a change of the file after which an owner on another machine counts as dead

KIND = "collapsium-lock"
VERSION = 3

MOST, MOST_BYTES = 10**15, 1 << 16  # Largest generation, and largest size of a lock's file in bytes


class LockRecord(BaseModel):
    """The record in the file of a lock, which may be untrusted."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    # The owner: its machine, process id, and start time, on a clock that is never adjusted
    machine: Annotated[str, Field(pattern=r"^[!-~]+( [!-~]+)*$", max_length=500)]
    process: Annotated[int, Field(ge=1, lt=1 << 31)]
    started: Annotated[str, Field(pattern="^[0-9.]+$", max_length=40)]
    lease: Annotated[float, Field(gt=0.0, le=600.0)]  # Seconds without a change after which the owner counts as dead
    nonce: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]  # Random text drawn by the owner
    renewals: Annotated[int, Field(ge=0, lt=1 << 53)]  # Number of renewals


def file_of(number: int) -> str:
    """Return the name of the file of a generation."""
    return f"{number:08d}.json"


def numbers_in(folder: Folder) -> list[int]:
    """Return the generations that have a file, ascending."""
    return numbers_of_names(folder.names(), 8, ".json")


GATE = "gate"

# Errors of file systems without locks
NO_LOCKS = {errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS, errno.EBADF, errno.EINVAL}


class Gate:
    """A file that is locked during writes; the operating system unlocks it when its holder dies.

    An interrupt may come between any two steps, so a file is recorded before it is locked, and `unlock` finds it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    @property
    def is_open(self) -> bool:
        """True if the file is open; once `lock` has returned, it is on file systems that have locks."""
        return self._handle is not None

    def lock(self) -> None:
        """Open and lock the file; raise `BlockingIOError` if another process holds it."""
        # A file that an interrupt left open would lock out this process itself.
        self.unlock()
        flags = os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | flags, 0o666)
        # Another user may have made the file.
        except PermissionError:
            self._handle = os.open(self._path, os.O_RDONLY | flags)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.unlock()
            if error.errno not in NO_LOCKS:
                raise

    def unlock(self) -> None:
        """Close the file, which unlocks it; nothing happens if it is not open."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def is_at(self) -> bool:
        """Return whether the open file still has its name."""
        try:
            return self._handle is not None and os.path.samestat(self._path.lstat(), os.fstat(self._handle))
        except FileNotFoundError:
            return False


RENEWALS = 6  # Renewals of a lock during a lease
# Attempts to release a lock, and seconds between two. Each request to the store is itself retried (`with_retries`).
RELEASES, RELEASE_PAUSE = 4, 0.25


class RunLock:
    """The lock of a run."""

    def __init__(self, folder: Folder, lease: float = LEASE, before: Callable[[], int] = lambda: 0) -> None:
        self._folder, self._lease, self._before = Folder(folder.url), lease, before
        self._place = self._folder.url.rpartition("/")[0]
        self.generation = 0
        self._nonce, self._renewals, self._renewed = uuid.uuid4().hex, 0, 0.0
        self._mutex, self._depth = threading.RLock(), 0
        self._gate_file = Gate(Path(self._folder.path) / GATE)
        self._released = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> RunLock:
        try:
            self.acquire()
        except BaseException:
            self.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lost = False
        if isinstance(error, Exception) and not isinstance(error, LockedError):
            try:
                self.require()
            except TakenOverError:
                # Otherwise this process has removed the folder.
                lost = Folder(self._place).exists()
            # The store does not respond.
            except CollapsiumError:
                pass
        self.release()
        # The takeover is the cause of the error.
        if lost:
            raise self._taken_over() from error

    def acquire(self) -> None:
        """Take the lock, and renew it from now on."""
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
            created = self._folder.create(file_of(self.generation), data)
            # On a store without conditional writes, two processes may both succeed; then both read the second's file.
            if not created or self._folder.read(file_of(self.generation)) != data:
                self.generation = 0
                raise self._rival()
            for number in numbers_in(self._folder):
                if number < self.generation:
                    self._folder.delete(file_of(number))
        self._renewed = clock_seconds()
        self._thread = threading.Thread(target=self._renew, name="collapsium-lock", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock during a write, so that it cannot be taken over meanwhile."""
        with self._mutex:
            if self._depth:
                yield
                return
            with self._gate():
                self._depth += 1
                try:
                    self._require_own()
                    if not self._gate_file.is_open and clock_seconds() - self._renewed > self._lease / 2:
                        # A watcher starts its lease again from here.
                        self._write()
                    yield
                finally:
                    self._depth -= 1

    def require(self) -> None:
        """Raise `TakenOverError` if another process has taken over the run, as during a sleep longer than the lease."""
        with self.hold():
            pass

    def release(self) -> None:
        """Release the lock and remove its files, again if that fails; an interrupt is raised once they are removed."""
        try:
            self._retry_release()
        except KeyboardInterrupt:
            self._retry_release()
            raise

    def _retry_release(self) -> None:
        for _ in range(RELEASES if self.generation else 0):
            try:
                self._release()
                break
            # The folder is gone.
            except TakenOverError:
                break
            # The store does not respond, or a process that was stopped in the middle of a write holds the gate.
            except CollapsiumError:
                pause(RELEASE_PAUSE)
        self.generation = 0

    def _release(self) -> None:
        self._released.set()
        # An interrupt may have come before it was started.
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()
        with self._mutex, contextlib.nullcontext() if self._depth else self._gate():
            # The previous attempt may have removed only the file.
            with contextlib.suppress(TakenOverError):
                self._require_own()
                self._folder.delete(file_of(self.generation))
            if not numbers_in(self._folder):
                self._folder.remove(known=(GATE,))
                if self._gate_file.is_at():
                    raise StoreError(f"{self._folder.url}: the folder of the lock could not be removed")

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
            is_newest = bool(numbers) and numbers[-1] == self.generation > 0
            if is_newest and self._nonce.encode() in self._folder.read(file_of(self.generation)):
                return
        except AbsentError:
            pass
        raise self._taken_over()

    def _record(self) -> JsonObject:
        return {
            "format": KIND,
            "version": VERSION,
            "machine": this_machine(),
            "process": os.getpid(),
            "started": start_time(os.getpid()) or "0",
            "lease": self._lease,
            "nonce": self._nonce,
            "renewals": self._renewals,
        }

    def _write(self) -> None:
        began = clock_seconds()
        self._renewals += 1
        self._folder.write(file_of(self.generation), dump(self._record()))
        self._renewed = began

    def _renew(self) -> None:
        """Renew the lock until it is released or lost; errors of the store are retried."""
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
        """Hold the gate on file systems with locks; the operating system releases it when its holder dies."""
        began, opened = clock_seconds(), not self._folder.local
        try:
            while not opened:
                if make:
                    self._folder.make()
                try:
                    self._gate_file.lock()
                    opened = not self._gate_file.is_open or self._gate_file.is_at()
                    # The last owner removed it as it released the lock.
                    if not opened:
                        self._gate_file.unlock()
                except BlockingIOError:
                    if clock_seconds() - began > self._lease:
                        raise LockedError(
                            f"{self._place}: a process that was suspended during a write holds {GATE} of its lock; "
                            "resume the process or end it"
                        ) from None
                    pause(0.01)
                except FileNotFoundError:
                    if not make:
                        raise self._taken_over() from None
                except OSError as error:
                    raise StoreError(f"{self._folder.url}/{GATE}: {error.strerror}") from error
            yield
        finally:
            self._gate_file.unlock()


LOOKS = 60  # Checks of a watched lock during a lease

notice: Callable[[str], None] = logging.getLogger("collapsium").warning


class Sign(Enum):
    """Evidence of a lock's owner being alive."""

    LIVES = "lives"
    SILENT = "silent"  # Its file has not changed since it was first read, and nothing else is known
    GONE = "gone"  # Its process is dead


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock."""

    generation: int  # The number of its file
    data: bytes  # Contents of the file
    record: LockRecord | None  # The parsed contents; None if they are damaged or of another release
    sign: Sign  # Evidence of its being alive: on this machine its process, elsewhere changes of its file
    silent: float = 0.0  # Seconds for which its file has not changed while it was watched

    @property
    def lease(self) -> float:
        """Seconds after which a silent owner counts as dead."""
        return LEASE if self.record is None else self.record.lease

    @property
    def lives(self) -> bool:
        """True unless the owner counts as dead."""
        return self.sign is Sign.LIVES or (self.sign is Sign.SILENT and self.silent <= self.lease)

    @property
    def name(self) -> str:
        """Process and machine, for messages."""
        if self.record is None:
            return "a process"
        return f"process {self.record.process} on {self.record.machine.split()[0]}"


class LockWatch:
    """Watches a lock without taking it."""

    def __init__(self, folder: Folder) -> None:
        self._folder, self._place = Folder(folder.url), folder.url.rpartition("/")[0]
        self._seen: tuple[int, bytes] | None = None
        self._since, self._changed = 0.0, False

    def look(self) -> Owner | None:
        """Return the owner of the lock; None if it was never held."""
        numbers = numbers_in(self._folder)
        while numbers:
            number = numbers.pop()
            try:
                return self._judged(number, self._folder.read(file_of(number), MOST_BYTES))
            # A later owner has just removed the file.
            except AbsentError:
                continue
            except DamagedError as error:
                return self._judged(number, str(error).encode())
        self._seen = None
        return None

    def _judged(self, number: int, data: bytes) -> Owner:
        if self._seen != (number, data):
            self._changed = self._seen is not None and self._seen[0] == number
            self._seen, self._since = (number, data), clock_seconds()
        silent, path = clock_seconds() - self._since, f"{self._folder.url}/{file_of(number)}"
        record = None
        # The file may be damaged, or of another release.
        with contextlib.suppress(DamagedError, ValidationError):
            record = LockRecord.model_validate(checked(parse_record(data, path, KIND, VERSION, VERSION), path))
        if record is None or record.machine != this_machine():
            sign = Sign.LIVES if self._changed and silent < LEASE / 2 else Sign.SILENT
        else:
            lives = is_alive(record.process, record.started)
            sign = Sign.SILENT if lives is None else Sign.LIVES if lives else Sign.GONE
        return Owner(number, data, record, sign, silent)

    def wait(self) -> Owner | None:
        """Wait until the owner counts as dead."""
        owner, noticed = self.look(), False
        while owner is not None and owner.lives:
            if owner.sign is Sign.LIVES:
                raise LockedError(f"{self._place}: {owner.name} works on it; wait for it, or stop it")
            if not noticed:
                notice(f"{self._place}: {owner.name} may work on it; watching its lock for up to {owner.lease:.0f} s")
                noticed = True
            pause(owner.lease / LOOKS)
            owner = self.look()
        return owner
