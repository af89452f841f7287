"""Who runs the tasks: the contract of an executor, the one that runs each at once, and how one is opened."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from collapsium.storage.errors import AbsentError, ClusterError

CLUSTER_TIMEOUT = 300.0
"""Seconds after which a silent worker or scheduler, or a cluster without workers, counts as lost."""


T = TypeVar("T")
ResultT_co = TypeVar("ResultT_co", covariant=True)


class Future(Generic[ResultT_co]):
    """Stands for the result of a task, which may not be there yet.

    Each executor has objects of its own for it; only that executor looks into them.
    """


@dataclass(frozen=True, slots=True)
class Activity:
    """What goes on in a worker process: its name, the bytes that it holds, and the tasks that it is at."""

    name: str
    memory: int
    doing: tuple[str, ...]


class Executor(Protocol):
    """Runs pure tasks; what it hands out stands for a result and may be an argument of another task."""

    @property
    def workers(self) -> int:
        """How many tasks can run side by side."""

    @property
    def homes(self) -> int:
        """How many places data can live in: worker processes."""

    @property
    def dashboard(self) -> str | None:
        """Address of a page that shows the work, if there is one."""

    def submit(self, function: Callable[..., T], *args: Any, home: int | None = None) -> Future[T]:
        """Run a task, best in the place number `home`; arguments may hold futures, in lists too."""

    def collect(self, futures: Sequence[Future[T]]) -> list[T]:
        """Wait for results and bring them here, in order; what a task raised is raised."""

    @property
    def memory(self) -> float | None:
        """Bytes that each place may hold; None where it is not said."""

    def moved(self) -> int:
        """Bytes that have moved between places so far."""

    def activity(self) -> list[Activity]:
        """Say what goes on in each worker process, as far as that is known without waiting."""

    def publish(self, message: dict[str, Any]) -> None:
        """Show a message about a run on the page of `dashboard`, where there is one; nothing is waited for."""

    def everywhere(self, function: Callable[..., T], *args: Any) -> list[T]:
        """Run a function once in each worker process there is, and wait."""

    @property
    def keeps_history(self) -> bool:
        """Whether it remembers how each result came about, to make it again; so long as anyone holds the result."""

    def halt(self) -> None:
        """Interrupt, once, each other thread that waits for results, now or the next time that it does."""

    def recover(self, error: ClusterError) -> None:
        """Make ready to go on after work was lost; several threads may ask for it side by side.

        Parameters
        ----------
        error : ClusterError
            What was raised.

        Raises
        ------
        ClusterGoneError
            There is nothing left to go on with.
        """

    def close(self) -> None:
        """Stop what was started."""


@dataclass(frozen=True)
class TLS:
    """Files of certificates by which the parts of a cluster know one another, in PEM.

    Attributes
    ----------
    ca : str
        Of the authority that has signed the others.
    cert, key : str
        Of this side, and its private key.
    """

    ca: str
    cert: str
    key: str

    def __post_init__(self) -> None:
        for name, path in (("ca", self.ca), ("cert", self.cert), ("key", self.key)):
            if not Path(path).is_file():
                raise AbsentError(f"`tls_{name}`: {path}: no such file")


class Halt:
    """Interrupts each thread but the one that asks for it, once: what it keeps then, it may wait for."""

    def __init__(self) -> None:
        self._met: set[int] | None = None

    def set(self) -> None:
        """Interrupt all others from now on."""
        self._met = {threading.get_ident()}

    def check(self) -> None:
        """Raise `KeyboardInterrupt` in a thread that has not met it yet."""
        if self._met is not None and threading.get_ident() not in self._met:
            self._met.add(threading.get_ident())
            raise KeyboardInterrupt


@dataclass(frozen=True)
class _Done(Future[T]):
    value: T


class SerialExecutor:
    """Runs every task in this thread when it is submitted."""

    workers = 1
    homes = 1
    dashboard = None
    memory = None
    keeps_history = False

    def submit(self, function: Callable[..., T], *args: Any, home: int | None = None) -> Future[T]:  # noqa: ARG002
        """Run a task now."""
        return _Done(function(*(self._open(arg) for arg in args)))

    def hold(self, value: T) -> Future[T]:
        """Return what stands for a value that is there already."""
        return _Done(value)

    def _open(self, arg: Any) -> Any:
        if isinstance(arg, _Done):
            return arg.value
        return [self._open(item) for item in arg] if isinstance(arg, list) else arg

    def collect(self, futures: Sequence[Future[T]]) -> list[T]:
        """Take out the results."""
        return [cast(_Done[T], future).value for future in futures]

    def moved(self) -> int:
        """Nothing moves."""
        return 0

    def activity(self) -> list[Activity]:
        """Say what this process holds."""
        import psutil

        return [Activity("driver", psutil.Process().memory_info().rss, ())]

    def publish(self, message: dict[str, Any]) -> None:
        """There is no page."""

    def everywhere(self, function: Callable[..., T], *args: Any) -> list[T]:
        """Run a function once."""
        return [function(*args)]

    def halt(self) -> None:
        """No other thread waits: members run one after another."""

    def recover(self, error: ClusterError) -> None:
        """Nothing is lost within a process."""

    def close(self) -> None:
        """Nothing was started."""
