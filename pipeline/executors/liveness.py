"""Watching a cluster while the driver waits for it: a run recovers or says what is wrong, but never hangs silently."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from collapsium.storage.errors import ClusterError

MIN_RECOVERY = 2.0  # seconds in which a cluster is looked for that has been waited for in vain already
BUSY = 5.0  # percent of a processor that a worker uses which computes, rather than hangs


@dataclass(frozen=True)
class WorkerSign:
    """What a scheduler knows of a worker.

    Attributes
    ----------
    silent : float
        Seconds since it was last heard of.
    processor : float
        Percent of a processor that it uses.
    paused : bool
        Whether it takes no further tasks, as its memory is nearly full.
    tasks : tuple of str
        Keys of the tasks that it is to do.
    """

    silent: float
    processor: float
    paused: bool
    tasks: tuple[str, ...]


@dataclass
class Watch:
    """Judges what the scheduler says while the driver waits.

    Attributes
    ----------
    timeout : float
        Seconds without a sign of life after which a worker is given up, and a cluster where nothing moves.
    notice : callable
        Told in a line what is wrong.
    """

    timeout: float
    notice: Callable[[str], None]
    _alive: dict[str, float] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)
    _moved: float = 0.0
    _counter: int = -1
    _stranded: int = 0
    _waited: bool = False

    def deadline(self) -> float:
        """Return when, on the monotonic clock, a lost cluster is given up; waiting before the loss counts."""
        waited, self._waited = self._waited, False
        return time.monotonic() + (min(MIN_RECOVERY, self.timeout) if waited else self.timeout)

    def begin(self) -> None:
        """Begin to wait."""
        self._alive.clear()
        self._moved, self._counter, self._stranded = time.monotonic(), -1, 0

    def look(self, counter: int, workers: Mapping[str, WorkerSign], stranded: int = 0) -> list[str]:
        """Judge what the scheduler says.

        Parameters
        ----------
        counter : int
            How much has happened to tasks so far.
        workers : mapping of str to WorkerSign
            The workers by address.
        stranded : int, optional
            Tasks that the scheduler knows no worker for. Where all workers were lost, Dask leaves those that had a home
            among them so, also when others have come.

        Returns
        -------
        list of str
            Workers to give up.

        Raises
        ------
        ClusterError
            Nothing moves, and no worker is to blame.
        """
        now = time.monotonic()
        self._stranded = self._stranded + 1 if stranded and workers else 0
        if self._stranded > 1:
            raise ClusterError("all workers were lost, with all that they held")
        if counter != self._counter or any(sign.processor > BUSY and sign.tasks for sign in workers.values()):
            self._counter, self._moved = counter, now
        stuck = [address for address, sign in sorted(workers.items()) if self._is_stuck(address, sign, now)]
        still = now - self._moved
        if still > self.timeout and not stuck:
            self._waited = True
            raise ClusterError(f"nothing has moved for {still:.0f} s with {len(workers)} workers")
        if not workers and still > min(self.timeout / 10, 10.0):
            self._warn("workers", f"the cluster has no workers; waiting for some ({self.timeout:.0f} s at most)")
        elif workers:
            self._warned.discard("workers")
        return stuck

    def answered(self, workers: Mapping[str, WorkerSign] | None) -> None:
        """Judge what the scheduler says while all workers do something that is no task.

        Parameters
        ----------
        workers : mapping of str to WorkerSign or None
            The workers by address; None where it has not answered.

        Raises
        ------
        ClusterError
            A worker was not heard of for too long.
        """
        if workers is None:
            return
        self._moved = time.monotonic()
        self._warned.discard("scheduler")
        quiet = [address for address, sign in sorted(workers.items()) if sign.silent > self.timeout]
        if quiet:
            raise ClusterError(f"worker {quiet[0]} has shown no sign of life for {workers[quiet[0]].silent:.0f} s")

    def silent(self, error: str) -> None:
        """Judge that the scheduler did not answer; raise `ClusterError` once that has gone on for too long."""
        still = time.monotonic() - self._moved
        self._warn("scheduler", f"the scheduler does not answer ({error}); waiting {self.timeout:.0f} s at most")
        if still > self.timeout:
            self._waited = True
            raise ClusterError(f"the scheduler has not answered for {still:.0f} s")

    def _is_stuck(self, address: str, sign: WorkerSign, now: float) -> bool:
        computes = not sign.tasks or (sign.processor > BUSY and not sign.paused)
        heard = now - sign.silent
        if computes or address not in self._alive:
            self._alive[address] = max(heard, self._alive.get(address, heard))
        quiet = now - self._alive[address]
        if quiet < self.timeout / 4:
            self._warned.discard(address)
            return False
        doing = f" at {sign.tasks[0]}" if sign.tasks else ""
        why = "has paused, its memory being full," if sign.paused else "shows no sign of life"
        self._warn(address, f"worker {address} {why}{doing}; it is given up after {self.timeout:.0f} s")
        return quiet > self.timeout

    def _warn(self, what: str, text: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            self.notice(text)
