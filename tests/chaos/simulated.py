"""A simulated cluster: an executor whose workers, tasks, store and driver fail as `Fate` decides."""

import pickle
import weakref
from collections.abc import Mapping
from itertools import count

import numpy as np

from collapsium.storage.errors import ClusterError, ClusterGoneError
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.state import State
from collapsium.workers.tasks import Block, Swept
from tests.chaos.fate import DriverCrash

DEATHS_LIMIT = 3  # workers that a task may kill before it is given up, like Dask's `allowed-failures`


class Future:
    """A submitted task, its result or error, and the worker that holds the result."""

    def __init__(self, number, function, args, process):
        self.number, self.function, self.args, self.process = number, function, args, process
        self.worker = self.value = self.error = None
        self.deaths = 0

    @property
    def done(self):
        """Return whether the task ended, with a result that some worker holds or with an error."""
        return self.worker is not None or self.error is not None

    def needs(self):
        """Return the futures among the arguments."""
        return list(_futures(self.args))


def _futures(arg):
    if isinstance(arg, Future):
        yield arg
    elif isinstance(arg, (list, tuple)) and not isinstance(arg, str):
        for item in arg:
            yield from _futures(item)


def frozen(value):
    """Make all arrays of a result read-only, so that a task that changes an argument in place fails."""
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    elif isinstance(value, State):
        frozen(value.to_arrays())
    elif isinstance(value, Mapping):
        for item in value.values():
            frozen(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            frozen(item)
    elif isinstance(value, Swept):
        frozen(value.local)
        frozen(value.delta)
    elif isinstance(value, Block):
        frozen(value.rows)
        frozen(value.sums)
    elif isinstance(value, Delta):
        frozen({name: part.values for name, part in value.parts.items()})
    return value


def bits(value):
    """Return a comparable form of a result, without times."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, State):
        return bits(value.to_arrays())
    if isinstance(value, Mapping):
        return [(name, bits(item)) for name, item in sorted(value.items())]
    if isinstance(value, Swept):
        return bits(value.local), bits(value.delta)
    if isinstance(value, Block):
        return value.low, value.high, bits(value.rows), bits(value.sums)
    if isinstance(value, Delta):
        return bits({name: part.values for name, part in value.parts.items()}), bits(dict(value.ids))
    return None


class SimulatedExecutor:
    """An executor that runs tasks in random order on workers that lose results, die and are replaced."""

    dashboard = None
    memory = None
    keeps_history = True

    def __init__(self, fate, processes):
        self.fate, self.workers, self.processes = fate, processes, processes
        self._names = count()
        self._alive = [next(self._names) for _ in range(processes)]
        self._waiting = []  # weak references: futures that nothing refers to any more are not run
        self._submitted = self._steps = 0
        self._lost = False  # whether the scheduler was lost, with all that it knew

    def links(self):
        """Return None, because simulated workers cannot reach each other; deltas are summed by a tree of tasks."""

    def look(self):
        """Do nothing: workers only join and leave by faults of this class."""

    def tell(self, function, *args):
        """Do nothing: simulated workers hold nothing but results."""

    def submit(self, function, *args, process=None, strict=False):
        self._step("submit")
        self._submitted += 1
        future = Future(self._submitted, function, args, process)
        if self._lost:
            future.error = ClusterError("the scheduler is gone")
        self._waiting.append(weakref.ref(future))
        return future

    def _step(self, what):
        fate = self.fate
        self._steps += 1
        if fate.dead:
            raise DriverCrash
        if fate.happens("crash", 0.006, what, self._steps):
            fate.dead = True
            raise DriverCrash
        if fate.happens("interrupt", 0.005, what, self._steps):
            raise KeyboardInterrupt
        if fate.happens("sleep", 0.005, what, self._steps):
            fate.sleep()

    def collect(self, futures, links=None):
        futures = list(futures)
        while True:
            self._step("collect")
            if self._lost:
                raise ClusterError("the scheduler is gone")
            failed = [future for future in futures if future.error is not None]
            if failed:
                raise failed[0].error
            if all(future.done for future in futures):
                return [pickle.loads(pickle.dumps(future.value)) for future in futures]
            if self.fate.happens("scheduler", 0.003, self._steps):
                self._lost = True
                continue
            if self.fate.happens("lose", 0.03, self._steps):
                self._lose(self._alive[int(self.fate.draw("who", self._steps) * len(self._alive))])
            self._run(self._choose(futures))

    def _lose(self, worker):
        """Replace a worker; its results are lost."""
        self._alive[self._alive.index(worker)] = next(self._names)
        for reference in self._waiting:
            future = reference()
            if future is not None and future.worker == worker:
                future.worker = future.value = None

    def _choose(self, futures):
        """Return a random task whose arguments are ready, mostly one that was submitted early."""
        self._waiting = [reference for reference in self._waiting if reference() is not None]
        ready, seen, stack = [], set(), [*futures, *(reference() for reference in self._waiting)]
        while stack:
            future = stack.pop()
            if future is None or future.number in seen or future.done:
                continue
            seen.add(future.number)
            needs = [need for need in future.needs() if not need.done]
            failed = next((need.error for need in future.needs() if need.error is not None), None)
            if failed is not None:
                future.error = failed
                return None
            if needs:
                stack += needs
            else:
                ready.append(future)
        ready.sort(key=lambda future: future.number)
        return ready[int(self.fate.draw("next", self._steps) ** 2 * len(ready))]

    def _run(self, future):
        """Run a task on its preferred worker or on another; it may kill the worker, or run twice."""
        if future is None:
            return
        is_preferred = future.process is not None and self.fate.draw("home", self._steps) < 0.8
        place = (
            future.process % self.processes
            if is_preferred
            else int(self.fate.draw("place", self._steps) * self.processes)
        )
        worker, name = self._alive[place], future.function.__name__
        if self.fate.happens("task", 0.05, name, self._steps):  # the task kills its worker
            self._lose(worker)
            future.deaths += 1
            if future.deaths > DEATHS_LIMIT:
                future.error = ClusterError(f"{name} has killed {DEATHS_LIMIT} workers")
            return
        args = [self._opened(arg, worker) for arg in future.args]
        try:
            value = frozen(future.function(*args))
            if self.fate.happens("duplicate", 0.1, name, self._steps):
                value, before = frozen(future.function(*args)), value
                assert bits(before) == bits(value), f"{name} is not a function of its arguments"
        except Exception as error:
            future.error = error
            return
        future.worker, future.value = worker, value
        if self.fate.happens("lose", 0.01, "result", self._steps):
            future.worker = future.value = None

    def _opened(self, arg, worker):
        """Return the argument of a task: a copy if another worker or the driver sent it."""
        if isinstance(arg, Future):
            return arg.value if arg.worker == worker else frozen(pickle.loads(pickle.dumps(arg.value)))
        if isinstance(arg, list):
            return [self._opened(item, worker) for item in arg]
        return pickle.loads(pickle.dumps(arg))

    def moved(self):
        return 0

    def activity(self):
        return []

    def publish(self, message):
        pass

    def everywhere(self, function, *args, joining=False):
        return [function(*args)]

    def recover(self, error):
        self._step("recover")
        if self.fate.happens("gone", 0.3, self._steps):
            raise ClusterGoneError(f"the cluster cannot be reached again after: {error}")
        self._lost = False
        self._alive = [next(self._names) for _ in range(self.processes)]
        self._waiting = []

    def close(self):
        pass
