"""The lock of a run: one process works on it at a time, and whoever comes after a dead one takes over.

A lock is a numbered file in the run's folder ``lock``, made by a write of which only one can succeed. It names its
owner and when it was last renewed. The owner of the highest number holds the run; one that finds a higher number has
lost it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from collapsar.storage.errors import AbsentError, CollapsarError, DamagedError, LockedError
from collapsar.storage.folder import Folder
from collapsar.storage.records import Count, Number, check, dump, numbers_of_names, read_record

LEASE = 60.0  # seconds for which an owner elsewhere is believed to live
KIND = "collapsar-lock"
VERSION = 2


class LockRecord(BaseModel):
    """What the file of a lock says of its owner, beside whose fields later releases may write others."""

    model_config = ConfigDict(extra="allow")

    machine: Annotated[str, Field(pattern=r"\S")]
    process: Count
    began: Number
    renewed: Number
    lease: Number


def this_machine() -> str:
    """Name this machine since it was started; containers that do not see each other's processes are several."""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with contextlib.suppress(OSError):
            place = Path(path)
            parts.append(str(place.readlink()) if place.is_symlink() else place.read_text(encoding="ascii").strip())
    return " ".join(parts)


@dataclass(frozen=True)
class Owner:
    """Who holds a lock.

    Attributes
    ----------
    machine : str
        Its name.
    process : int
        Its number there.
    seen : float
        Seconds since the lock was renewed.
    lives : bool
        Whether it is believed to live: on this machine by looking, elsewhere so long as its lease runs.
    """

    machine: str
    process: int
    seen: float
    lives: bool


class RunLock:
    """The lock of a run.

    Parameters
    ----------
    folder : Folder
        The run's folder ``lock``.
    lease : float, optional
        Seconds after which an owner on another machine that has not renewed its lock is taken to be dead.
    """

    def __init__(self, folder: Folder, lease: float = LEASE) -> None:
        self._folder, self._lease = folder, lease
        self._number = 0
        self._nonce = uuid.uuid4().hex
        self._renewed = 0.0
        self._released = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Take the lock, and renew it from now on.

        Raises
        ------
        LockedError
            Another process holds it.
        """
        others = self._others()
        for number, record in others.items():
            self._require_dead(record)
            self._number = max(self._number, number)
        self._number += 1
        if not self._folder.create(_name(self._number), dump(self._record())):
            raise LockedError(f"{self._place}: another process has just begun to work on it")
        self._renewed = time.monotonic()
        rivals = [number for number in self._others() if number not in others]
        if rivals:  # who began at the same moment
            self._folder.delete(_name(self._number))
            raise LockedError(f"{self._place}: another process has just begun to work on it")
        for number in others:
            self._folder.delete(_name(number))
        self._thread = threading.Thread(target=self._renew, name="collapsar-lock", daemon=True)
        self._thread.start()

    def require(self) -> None:
        """Raise `LockedError` if another process has taken the run over, as after a sleep longer than the lease."""
        if time.monotonic() - self._renewed > self._lease or any(number > self._number for number in self._numbers()):
            raise LockedError(
                f"{self._place}: the lock was lost, as it was not renewed for {self._lease:.0f} s; another process may "
                "work on the run now"
            )

    def owner(self) -> Owner | None:
        """Look who holds the lock, without taking it; None where nobody does."""
        try:
            records = self._others()
        except LockedError:  # its file is damaged, or just being written
            return None
        if not records:
            return None
        record = records[max(records)]
        age = max(time.time() - float(record["renewed"]), 0.0)
        return Owner(record["machine"].split()[0], int(record["process"]), age, _owner_lives(record))

    def release(self) -> None:
        """Let others have it."""
        self._released.set()
        if self._thread is not None:
            self._thread.join()
        if self._number:
            with contextlib.suppress(CollapsarError):
                self._folder.delete(_name(self._number))
                if not self._numbers():
                    self._folder.remove(known=())

    @property
    def _place(self) -> str:
        return self._folder.url.rpartition("/")[0]

    def _record(self) -> dict[str, Any]:
        import psutil

        process = psutil.Process()
        return {
            "format": KIND,
            "version": VERSION,
            "machine": this_machine(),
            "process": process.pid,
            "began": process.create_time(),
            "renewed": time.time(),
            "lease": self._lease,
            "nonce": self._nonce,
        }

    def _renew(self) -> None:
        """Renew the lock until it is released or lost; a store that fails for a while is tried again."""
        while not self._released.wait(self._lease / 4):
            try:
                if any(number > self._number for number in self._numbers()):
                    return
                self._folder.write(_name(self._number), dump(self._record()))
                self._renewed = time.monotonic()
            except CollapsarError:
                continue

    def _numbers(self) -> list[int]:
        return numbers_of_names(self._folder.names(), 8, ".json")

    def _others(self) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        for number in self._numbers():
            if number == self._number:
                continue
            try:
                record = read_record(self._folder, _name(number), KIND, VERSION, oldest=2)
                check(LockRecord, record, f"{self._folder.url}/{_name(number)}")
                found[number] = record
            except AbsentError:
                continue
            except DamagedError as error:
                raise LockedError(f"{error}; if no process works on the run, remove the file") from None
        return found

    def _require_dead(self, record: dict[str, Any]) -> None:
        """Raise `LockedError` unless the owner is dead for sure, or silent for longer than its lease."""
        if not _owner_lives(record):
            return
        age = time.time() - float(record["renewed"])
        where = record["machine"].split()[0]
        raise LockedError(
            f"{self._place}: process {record['process']} on {where} works on it (seen {max(age, 0.0):.0f} s ago); wait "
            "for it, or stop it"
        )


def _owner_lives(record: dict[str, Any]) -> bool:
    """Say whether an owner may live: it is dead for sure, or silent for longer than its lease, or it does."""
    if record["machine"] == this_machine():
        return _lives(int(record["process"]), float(record["began"]))
    return time.time() - float(record["renewed"]) <= float(record["lease"])


def _lives(process: int, began: float) -> bool:
    if process == os.getpid():
        return True
    import psutil

    try:
        found = psutil.Process(process)
        return bool(abs(found.create_time() - began) < 1.0 and found.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def _name(number: int) -> str:
    return f"{number:08d}.json"
