"""Run tasks in threads of this process, without Dask; kernels release the GIL, so they run in parallel."""

from __future__ import annotations

import heapq
import queue
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

from collapsium.pipeline.executors.base import Future, Halt, ProcessExecutor, T

if TYPE_CHECKING:
    from collapsium.workers.exchange import Links

SECONDS_BEFORE_NOTICE = 300.0  # Seconds without a finished task after which a notice says so


class _Task:
    """A task and the future of its result; a task is not run if all references to it are dropped before it begins."""

    __slots__ = ("__weakref__", "args", "dependents", "done", "error", "function", "number", "value", "waiting")

    def __init__(self, function: Callable[..., object] | None, args: tuple[object, ...], number: int) -> None:
        self.function, self.args, self.number = function, args, number
        self.waiting, self.done = 0, False
        self.value: object = None
        self.error: BaseException | None = None
        self.dependents: list[weakref.ref[_Task]] = []

    def needs(self) -> Iterator[_Task]:
        """Yield the tasks whose results are arguments of this one."""
        for arg in self.args:
            yield from _tasks(arg)

    def run(self) -> None:
        """Run the task and drop the references to its arguments."""
        try:
            failed = next((need.error for need in self.needs() if need.error is not None), None)
            if failed is not None:
                raise failed
            if self.function is None:
                raise RuntimeError("a task runs once")
            self.value = self.function(*(_resolved(arg) for arg in self.args))
        # `collect` raises the error in the thread that waits.
        except BaseException as error:
            self.error = error
        self.function, self.args = None, ()


def _tasks(arg: object) -> Iterator[_Task]:
    """Yield the tasks in an argument, which may be a list."""
    if isinstance(arg, _Task):
        yield arg
    elif isinstance(arg, list):
        for item in arg:
            yield from _tasks(item)


def _resolved(arg: object) -> object:
    """Return an argument with tasks replaced by their results."""
    if isinstance(arg, _Task):
        return arg.value
    return [_resolved(item) for item in arg] if isinstance(arg, list) else arg


class ThreadExecutor(ProcessExecutor):
    """Runs tasks in threads, in the order of submission among those whose arguments are ready."""

    def __init__(self, threads: int, notice: Callable[[str], None] = lambda text: None) -> None:  # noqa: ARG005
        self.workers, self._notice = threads, notice
        self._done, self._halt = 0, Halt()
        # An interrupt can come between a condition's lock and its own code, but not between `with` and a lock. So the
        # main thread takes the lock itself, and only the threads of this executor wait for the condition.
        self._lock = threading.RLock()
        self._change = threading.Condition(self._lock)
        self._waiting: set[queue.SimpleQueue[None]] = set()  # Of each thread that waits for results, one
        self._ready: list[tuple[int, weakref.ref[_Task]]] = []
        self._submitted, self._closed, self._ended = 0, False, False
        self._doing = [""] * threads
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"collapsium-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(
        self,
        function: Callable[..., T],
        *args: object,
        process: int | None = None,  # noqa: ARG002
        strict: bool = False,  # noqa: ARG002
    ) -> Future[T]:
        """Submit a task; it is not run if its future is dropped before it begins."""
        with self._lock:
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
        """Wait for a task that can begin; return None once the executor is closed."""
        with self._lock:
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
            with self._lock:
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
                self._wake()
            # Otherwise the result would stay in memory until the next task arrives.
            del task

    def collect(self, futures: Sequence[Future[T]], links: Links | None = None) -> list[T]:  # noqa: ARG002
        """Wait for results and return them in order; an exception of a task is raised as soon as it occurs."""
        tasks = cast(Sequence[_Task], futures)
        changes: queue.SimpleQueue[None] = queue.SimpleQueue()
        try:
            self._waiting.add(changes)
            self._wait(tasks, changes)
        finally:
            self._waiting.discard(changes)
        for task in tasks:
            if task.error is not None:
                raise task.error
        return [cast(T, task.value) for task in tasks]

    def _wait(self, tasks: Sequence[_Task], changes: queue.SimpleQueue[None]) -> None:
        """Wait until all tasks have ended, or one has failed."""
        before, idle = -1, 0.0
        while not all(task.done for task in tasks):
            self._halt.check()
            if any(task.error is not None for task in tasks):
                return
            # No thread is left to run the tasks.
            if self._ended:
                raise RuntimeError("the executor is closed")
            try:
                changes.get(timeout=SECONDS_BEFORE_NOTICE)
            except queue.Empty:
                if self._done == before:
                    idle += SECONDS_BEFORE_NOTICE
                    self._notice(f"no task has finished for {idle:.0f} s")
            before = self._done

    def _wake(self) -> None:
        """Let the threads that wait for results look at their tasks again."""
        for changes in tuple(self._waiting):
            changes.put(None)

    def _running(self) -> tuple[str, ...]:
        return tuple(name for name in self._doing if name)

    def halt(self, *, failed: bool = False) -> None:
        """Raise `KeyboardInterrupt` or `HaltedError` once in every other thread that waits for results."""
        self._halt.set(failed=failed)
        self._wake()

    def close(self) -> None:
        """Finish the running tasks and begin no other."""
        with self._lock:
            self._closed = True
            self._change.notify_all()
        for thread in self._threads:
            thread.join()
        self._ended = True
        self._wake()
