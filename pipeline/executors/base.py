"""The interface of executors, which run the tasks of a fit, and the serial executor."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import AbsentError, ClusterError

if TYPE_CHECKING:
    from collapsium.workers.exchange import Links

# Seconds after which a silent worker or scheduler, or a cluster without workers, counts as lost
CLUSTER_TIMEOUT = 300.0
TASKS_PER_WORKER = 32  # Tasks submitted ahead for each worker, which bounds memory


T = TypeVar("T")
ResultT_co = TypeVar("ResultT_co", covariant=True)


class Future(Generic[ResultT_co]):
    """The result of a task, which may still be pending.

    Futures differ between executors, and only their executors use their contents.
    """


@dataclass(frozen=True, slots=True)
class Activity:
    """The state of a worker process: its name, resident memory in bytes, and running tasks."""

    name: str
    memory: int
    doing: tuple[str, ...]


class Executor(Protocol):
    """Runs pure tasks. Futures may be arguments of further tasks."""

    @property
    def workers(self) -> int:
        """Number of tasks that can run at the same time."""

    @property
    def processes(self) -> int:
        """Number of worker processes, in whose memory data can live."""

    @property
    def dashboard(self) -> str | None:
        """Address of the dashboard; None without one."""

    def submit(
        self, function: Callable[..., T], *args: object, process: int | None = None, strict: bool = False
    ) -> Future[T]:
        """Run a task, preferably in a worker process, only there if `strict`; arguments may be (lists of) futures."""

    def collect(self, futures: Sequence[Future[T]], links: Links | None = None) -> list[T]:
        """Wait for results and return them in order; an exception of a task is raised.

        Parameters
        ----------
        futures : sequence of Future
            The results to wait for.
        links : Links, optional
            Links between worker processes that all have to stay until then.

        Returns
        -------
        list
            The results.

        Raises
        ------
        HostLostError
            A worker process of `links` has left.
        """

    @property
    def memory(self) -> float | None:
        """Memory limit of each worker process, in bytes; None without a limit."""

    def moved(self) -> int:
        """Return the bytes that worker processes have sent one another so far."""

    def activity(self) -> list[Activity]:
        """Return the last known state of each worker process, without waiting."""

    def publish(self, message: JsonObject) -> None:
        """Send a message about a run to the dashboard, if there is one, without waiting."""

    def everywhere(self, function: Callable[..., T], *args: object, joining: bool = False) -> list[T]:
        """Run a function once in each worker process, with `joining` also in those that join later; return results."""

    @property
    def keeps_history(self) -> bool:
        """True if lost results are recomputed, so that a future keeps all that it was computed from in memory."""

    def links(self) -> Links | None:
        """Return the connections between the present worker processes; None where tasks share one process."""

    def look(self) -> None:
        """Look for worker processes that have joined or left, and wait until all of them are ready."""

    def tell(self, function: Callable[..., object], *args: object) -> None:
        """Run a function once in each worker process that can be reached, without waiting; nothing is raised."""

    def halt(self, *, failed: bool = False) -> None:
        """Raise `KeyboardInterrupt` once in every other thread that waits for results, now or at its next wait.

        Parameters
        ----------
        failed : bool, optional
            Whether the caller has failed, and was not interrupted; the others then get a `HaltedError`.
        """

    def recover(self, error: ClusterError) -> None:
        """Reconnect after work was lost. Several threads may call this at the same time.

        Parameters
        ----------
        error : ClusterError
            The error that reported the loss.

        Raises
        ------
        ClusterGoneError
            The cluster cannot be reached again.
        """

    def close(self) -> None:
        """Stop the threads and processes that this executor has started."""


@dataclass(frozen=True)
class TLS:
    """Certificates of an encrypted cluster, as PEM files.

    Attributes
    ----------
    ca : str
        Certificate of the authority that signed the others.
    cert, key : str
        Certificate of this process, and its private key.
    """

    ca: str
    cert: str
    key: str

    def __post_init__(self) -> None:
        for name, path in (("ca", self.ca), ("cert", self.cert), ("key", self.key)):
            if not Path(path).is_file():
                raise AbsentError(f"`tls_{name}`: {path}: no such file")


class HaltedError(KeyboardInterrupt):
    """A thread has to end because another one has failed; nobody has interrupted the program."""


class Halt:
    """Interrupts every thread but the caller's, once, so that a thread may still wait while it saves its state."""

    def __init__(self) -> None:
        self._interrupted: set[int] | None = None
        self._error: type[KeyboardInterrupt] = KeyboardInterrupt

    def set(self, *, failed: bool = False) -> None:
        """Interrupt all other threads from now on; with `failed` because this one has failed."""
        self._error = HaltedError if failed else KeyboardInterrupt
        self._interrupted = {threading.get_ident()}

    def check(self) -> None:
        """Raise `KeyboardInterrupt` in a thread that was not interrupted yet."""
        if self._interrupted is not None and threading.get_ident() not in self._interrupted:
            self._interrupted.add(threading.get_ident())
            raise self._error


@dataclass(frozen=True)
class _Done(Future[T]):
    value: T


class ProcessExecutor:
    """Base class of executors whose tasks all run in this process."""

    processes = 1
    dashboard = None
    memory = None
    keeps_history = False

    def moved(self) -> int:
        """Return 0: there is one process."""
        return 0

    def activity(self) -> list[Activity]:
        """Return the memory of this process, and the tasks that its threads run."""
        import psutil

        return [Activity("driver", psutil.Process().memory_info().rss, self._running())]

    def _running(self) -> tuple[str, ...]:
        return ()

    def publish(self, message: JsonObject) -> None:
        """Do nothing: there is no dashboard."""

    def everywhere(self, function: Callable[..., T], *args: object, joining: bool = False) -> list[T]:  # noqa: ARG002
        """Run a function once, as there is one process."""
        return [function(*args)]

    def links(self) -> None:
        """Return None: there is one process."""

    def look(self) -> None:
        """Do nothing: there is one process."""

    def tell(self, function: Callable[..., object], *args: object) -> None:
        """Do nothing: there is no worker process."""

    def recover(self, error: ClusterError) -> None:
        """Do nothing: a process loses no work."""


class SerialExecutor(ProcessExecutor):
    """Runs every task in this thread when it is submitted."""

    workers = 1

    def submit(
        self,
        function: Callable[..., T],
        *args: object,
        process: int | None = None,  # noqa: ARG002
        strict: bool = False,  # noqa: ARG002
    ) -> Future[T]:
        """Run a task at once."""
        return _Done(function(*(self._resolved(arg) for arg in args)))

    def hold(self, value: T) -> Future[T]:
        """Return a future of a value that is known already."""
        return _Done(value)

    def _resolved(self, arg: object) -> object:
        """Return an argument with futures replaced by their results."""
        if isinstance(arg, _Done):
            return arg.value
        return [self._resolved(item) for item in arg] if isinstance(arg, list) else arg

    def collect(self, futures: Sequence[Future[T]], links: Links | None = None) -> list[T]:  # noqa: ARG002
        """Return the results."""
        return [cast(_Done[T], future).value for future in futures]

    def halt(self, *, failed: bool = False) -> None:
        """Do nothing: members run one after another, so no other thread waits."""

    def close(self) -> None:
        """Do nothing: no thread or process was started."""


def in_order(executor: Executor, futures: Iterable[Future[T]], max_waiting: int | None = None) -> Iterator[T]:
    """Yield the results of tasks in order, with a bounded number of submitted tasks."""
    if max_waiting is None:
        max_waiting = 1 if executor.workers == 1 else TASKS_PER_WORKER * executor.workers
    waiting: deque[Future[T]] = deque()
    for future in futures:
        waiting.append(future)
        if len(waiting) >= max_waiting:
            yield executor.collect([waiting.popleft()])[0]
    while waiting:
        yield executor.collect([waiting.popleft()])[0]
