"""Detect lost workers and schedulers while the driver waits, so that a run recovers or fails but never hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from collapsium.storage.errors import ClusterError

# Pauses and limits, in seconds, while the driver waits for a Dask cluster; `cluster_timeout` bounds them all.
RESULT_POLL = 0.5  # Between two checks for a result
# Between two requests for the state of the cluster, and limit of the wait for its answer
CLUSTER_POLL = 10.0
MEMBER_POLL = 1.0  # Between two looks for workers that have joined or left, which wait for no answer
WORKER_POLL = 0.2  # Between two checks for workers that have started
QUIET_START = 5.0  # Wait for the first workers before a notice says so
CLOSE_LIMIT = 5.0  # Limit for closing a client or a cluster of our own
RUN_EVERYWHERE_LIMIT = 600.0  # Limit for a function that runs in all workers, such as compiling the kernels
MIN_RECOVERY = 2.0  # Limit for reaching a cluster again that has been waited for already
# Processor use, in percent of one processor, above which a worker computes rather than hangs
BUSY_PERCENT = 5.0


@dataclass(frozen=True)
class WorkerSign:
    """The state of a worker as the scheduler reports it."""

    silent: float  # Seconds since its last heartbeat
    processor: float  # Processor use, in percent of one processor
    paused: bool  # True if it takes no further tasks because its memory is nearly full
    tasks: tuple[str, ...]  # Keys of this driver's tasks that are assigned to it
    shared: bool = False  # True if tasks of other drivers are assigned to it too, behind which this driver's may wait
    leaving: bool = False  # True if it hands over what it holds, and takes no further tasks
    threads: int = 1  # Number of its threads
    memory: float = 0.0  # Its memory limit in bytes; 0 without a limit
    exchanging: bool = False  # True if the driver waits for an exchange, in which workers compute without tasks


@dataclass
class Watch:
    """Decides from the scheduler's reports which workers are lost, while the driver waits."""

    # Seconds without progress after which a worker, or the cluster, counts as lost; option `cluster_timeout`
    timeout: float
    notice: Callable[[str], None]  # Receives a line of text about each problem
    _alive: dict[str, float] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)
    _moved: float = 0.0
    _counter: int = -1
    _stranded: int = 0
    _waited: bool = False

    def deadline(self) -> float:
        """Return the monotonic time at which recovery fails; the wait before the loss was noticed counts."""
        waited, self._waited = self._waited, False
        return time.monotonic() + (min(MIN_RECOVERY, self.timeout) if waited else self.timeout)

    def begin(self) -> None:
        """Start a wait."""
        self._alive.clear()
        self._moved, self._counter, self._stranded = time.monotonic(), -1, 0

    def look(self, counter: int, workers: Mapping[str, WorkerSign], stranded: int = 0) -> list[str]:
        """Process a report of the scheduler."""
        now = time.monotonic()
        self._warned.discard("scheduler")
        self._stranded = self._stranded + 1 if stranded and workers else 0
        if self._stranded > 1:
            raise ClusterError("all workers were lost, with all that they held")
        if counter != self._counter or any(_is_computing(sign) or sign.shared for sign in workers.values()):
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
        """Process a report of the scheduler while all workers run a function that is not a task."""
        if workers is None:
            return
        self._moved = time.monotonic()
        self._warned.discard("scheduler")
        quiet = [address for address, sign in sorted(workers.items()) if sign.silent > self.timeout]
        if quiet:
            raise ClusterError(f"worker {quiet[0]} has been unresponsive for {workers[quiet[0]].silent:.0f} s")

    def silent(self, error: str) -> None:
        """Process a request that the scheduler did not answer; raise `ClusterError` after the timeout."""
        still = time.monotonic() - self._moved
        self._warn("scheduler", f"the scheduler does not answer ({error}); waiting {self.timeout:.0f} s at most")
        if still > self.timeout:
            self._waited = True
            raise ClusterError(f"the scheduler has not answered for {still:.0f} s")

    def _is_stuck(self, address: str, sign: WorkerSign, now: float) -> bool:
        heartbeat = now - sign.silent
        # A worker that others use too is removed only if it is unresponsive.
        computes = sign.shared or (_is_computing(sign) and not sign.paused)
        if not sign.tasks or computes or address not in self._alive:
            self._alive[address] = max(heartbeat, self._alive.get(address, heartbeat))
        quiet = now - self._alive[address]
        if quiet < self.timeout / 4:
            self._warned.discard(address)
            return False
        task = f" at {sign.tasks[0]}" if sign.tasks else ""
        reason = "has paused, its memory being full," if sign.paused else "is unresponsive"
        self._warn(address, f"worker {address} {reason}{task}; it counts as lost after {self.timeout:.0f} s")
        return quiet > self.timeout

    def _warn(self, subject: str, text: str) -> None:
        """Give notice once until the problem has passed."""
        if subject not in self._warned:
            self._warned.add(subject)
            self.notice(text)


def _is_computing(sign: WorkerSign) -> bool:
    return (bool(sign.tasks) or sign.exchanging) and sign.processor > BUSY_PERCENT
