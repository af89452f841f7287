"""Tasks in threads of this process, without Dask: kernels let go of the interpreter, so they run side by side."""

from __future__ import annotations

import heapq
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import psutil

from collapsium.pipeline.executors.base import Activity, Future, Halt, T
from collapsium.storage.errors import ClusterError

LONG = 300.0  # seconds without the end of a task, after which that is said


class _Task:
    """A task, and what stands for its result: who lets go of it before it has begun takes it back."""

    __slots__ = ("__weakref__", "args", "dependents", "done", "error", "function", "number", "value", "waiting")

    def __init__(self, function: Callable[..., Any] | None, args: tuple[Any, ...], number: int) -> None:
        self.function, self.args, self.number = function, args, number
        self.waiting, self.done = 0, False
        self.value: Any = None
        self.error: BaseException | None = None
        self.dependents: list[weakref.ref[_Task]] = []

    def needs(self) -> Iterator[_Task]:
        """Give the tasks whose results it takes."""
        for arg in self.args:
            yield from _tasks(arg)

    def run(self) -> None:
        """Run it, and let go of what it took."""
        try:
            failed = next((need.error for need in self.needs() if need.error is not None), None)
            if failed is not None:
                raise failed
            if self.function is None:
                raise RuntimeError("a task runs once")
            self.value = self.function(*(_opened(arg) for arg in self.args))
        except BaseException as error:  # whatever it is, whoever collects it shall meet it
            self.error = error
        self.function, self.args = None, ()


def _tasks(arg: Any) -> Iterator[_Task]:
    if isinstance(arg, _Task):
        yield arg
    elif isinstance(arg, list):
        for one in arg:
            yield from _tasks(one)


def _opened(arg: Any) -> Any:
    if isinstance(arg, _Task):
        return arg.value
    return [_opened(one) for one in arg] if isinstance(arg, list) else arg


class ThreadExecutor:
    """Runs tasks in threads, the one submitted first before others that could begin.

    Parameters
    ----------
    threads : int
        How many.
    notice : callable, optional
        Told in a line when nothing has come to its end for long.
    """

    homes = 1
    dashboard = None
    memory = None
    keeps_history = False

    def __init__(self, threads: int, notice: Callable[[str], None] = lambda text: None) -> None:  # noqa: ARG005
        self.workers, self._notice = threads, notice
        self._done, self._halt = 0, Halt()
        self._change = threading.Condition()
        self._ready: list[tuple[int, weakref.ref[_Task]]] = []
        self._submitted, self._closed, self._ended = 0, False, False
        self._doing = [""] * threads
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"collapsium-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable[..., T], *args: Any, home: int | None = None) -> Future[T]:  # noqa: ARG002
        """Submit a task; what its result stands for may be let go of, and the task is not run then."""
        with self._change:
            self._submitted += 1
            task = _Task(function, args, self._submitted)
            for need in task.needs():
                if not need.done:
                    need.dependents.append(weakref.ref(task))
                    task.waiting += 1
            if not task.waiting:
                self._put(task)
        return cast(Future[T], task)

    def _put(self, task: _Task) -> None:
        heapq.heappush(self._ready, (task.number, weakref.ref(task)))
        self._change.notify_all()

    def _take(self) -> _Task | None:
        """Wait for a task that can begin; none once the executor is closed."""
        with self._change:
            while not self._closed:
                while self._ready:
                    task = heapq.heappop(self._ready)[1]()
                    if task is not None:
                        return task
                self._change.wait()
        return None

    def _work(self, number: int) -> None:
        while (task := self._take()) is not None:
            self._doing[number] = getattr(task.function, "__name__", "")
            task.run()
            self._doing[number] = ""
            with self._change:
                task.done = True
                self._done += 1
                for reference in task.dependents:
                    dependent = reference()
                    if dependent is not None:
                        dependent.waiting -= 1
                        if not dependent.waiting:
                            self._put(dependent)
                    del dependent
                task.dependents = []
                self._change.notify_all()
            del task  # its result shall not wait here for the next task

    def collect(self, futures: Sequence[Future[T]]) -> list[T]:
        """Wait for results, in order; what a task raised is raised as soon as it is known."""
        before, still = -1, 0.0
        waited = cast(Sequence[_Task], futures)
        with self._change:
            while not all(task.done for task in waited):
                self._halt.check()
                if any(task.error is not None for task in waited):
                    break
                if self._ended:  # nothing more will come
                    raise RuntimeError("the executor is closed")
                if not self._change.wait(LONG) and self._done == before:
                    still += LONG
                    self._notice(f"no task has come to its end for {still:.0f} s")
                before = self._done
        for task in waited:
            if task.error is not None:
                raise task.error
        return [task.value for task in waited]

    def moved(self) -> int:
        """Nothing moves within a process."""
        return 0

    def activity(self) -> list[Activity]:
        """Say what this process holds, and what its threads are at."""
        doing = tuple(one for one in self._doing if one)
        return [Activity("driver", psutil.Process().memory_info().rss, doing)]

    def publish(self, message: dict[str, Any]) -> None:
        """There is no page."""

    def everywhere(self, function: Callable[..., T], *args: Any) -> list[T]:
        """Run a function once: there is one process."""
        return [function(*args)]

    def halt(self) -> None:
        """Interrupt each other thread that waits, once."""
        with self._change:
            self._halt.set()
            self._change.notify_all()

    def recover(self, error: ClusterError) -> None:
        """Nothing is lost within a process."""

    def close(self) -> None:
        """Let the tasks that run come to their end, and begin no other."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        for thread in self._threads:
            thread.join()
        with self._change:
            self._ended = True
            self._change.notify_all()
