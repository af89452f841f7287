"""Who runs the tasks: the contract of an executor, and the one that runs each at once, for debugging."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


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

    def submit(self, function: Callable[..., Any], *args: Any, home: int | None = None) -> Any:
        """Run a task, best in the place number `home`; arguments may hold futures, in lists too."""

    def collect(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for results and bring them here, in order; what a task raised is raised."""

    def everywhere(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run a function once in each worker process there is, and wait."""

    def close(self) -> None:
        """Stop what was started."""


@dataclass(frozen=True, slots=True)
class _Done:
    value: Any


class SerialExecutor:
    """Runs every task in this thread when it is submitted."""

    workers = 1
    homes = 1
    dashboard = None

    def submit(self, function: Callable[..., Any], *args: Any, home: int | None = None) -> Any:  # noqa: ARG002
        """Run a task now."""
        return _Done(function(*(self._open(arg) for arg in args)))

    def _open(self, arg: Any) -> Any:
        if isinstance(arg, _Done):
            return arg.value
        return [self._open(item) for item in arg] if isinstance(arg, list) else arg

    def collect(self, futures: Sequence[Any]) -> list[Any]:
        """Take out the results."""
        return [future.value for future in futures]

    def everywhere(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run a function once."""
        return [function(*args)]

    def close(self) -> None:
        """Nothing was started."""
