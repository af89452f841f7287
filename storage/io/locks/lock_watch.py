"""Watch a lock without taking it, to learn whether its owner is alive."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from collapsium.storage.errors import AbsentError, DamagedError, LockedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.locks import clock, processes
from collapsium.storage.io.locks.lock_files import LEASE, MOST_BYTES, LockRecord, file_of, numbers_in, parse_lock

LOOKS = 60  # Checks of a watched lock during a lease

notice: Callable[[str], None] = logging.getLogger("collapsium").warning


class Sign(Enum):
    """Evidence of a lock's owner being alive."""

    LIVES = "lives"
    SILENT = "silent"  # Its file has not changed since it was first read; nothing else is known
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
        self._folder = Folder(folder.url)
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
            self._seen, self._since = (number, data), clock.now()
        record = parse_lock(f"{self._folder.url}/{file_of(number)}", data)
        return Owner(number, data, record, self._sign(record), clock.now() - self._since)

    def _sign(self, record: LockRecord | None) -> Sign:
        if record is None or record.machine != processes.this_machine():
            return Sign.LIVES if self._changed and clock.now() - self._since < LEASE / 2 else Sign.SILENT
        lives = processes.lives(record.process, record.started)
        return Sign.SILENT if lives is None else Sign.LIVES if lives else Sign.GONE

    def wait(self) -> Owner | None:
        """Wait until the owner counts as dead."""
        owner, noticed = self.look(), False
        while owner is not None and owner.lives:
            if owner.sign is Sign.LIVES:
                raise LockedError(f"{self._place}: {owner.name} works on it; wait for it, or stop it")
            if not noticed:
                notice(f"{self._place}: {owner.name} may work on it; watching its lock for up to {owner.lease:.0f} s")
                noticed = True
            clock.pause(owner.lease / LOOKS)
            owner = self.look()
        return owner

    @property
    def _place(self) -> str:
        return self._folder.url.rpartition("/")[0]
