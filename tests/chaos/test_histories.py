"""Two hundred histories of the simulated cluster; `make chaos` lives through ten thousand."""

import numpy as np
import pytest

from collapsium.storage.errors import ClusterError
from tests.chaos.fate import Fate
from tests.chaos.histories import check, prepare
from tests.chaos.simulated import MOST, SimulatedExecutor

CHUNK, CHUNKS = 25, 8
KNOWN = {}


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, CHUNK * CHUNKS, CHUNK))
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_histories__end_as_the_undisturbed_run(first):
    base, faults, lives = prepare(), 0, 0
    for seed in range(first, first + CHUNK):
        try:
            fate = check(base, KNOWN, seed)
        except Exception as error:
            error.add_note(f"replay it with: python -m tests.chaos.histories {seed}")
            raise
        faults, lives = faults + len(fate.faults), lives + fate.session + 1
    assert faults > CHUNK  # else nothing was tried
    assert lives > CHUNK


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_one_history__ends_as_the_undisturbed_run():
    assert len(check(prepare(), KNOWN, 73).faults) > 10


@pytest.mark.long
def test_a_seed__replays_exactly():
    base = prepare()
    for seed in (3, 11):
        assert check(base, KNOWN, seed).faults == check(base, KNOWN, seed).faults


class Quiet(Fate):
    """Knows the faults that a test names, and no others."""

    def __init__(self, **rates):
        super().__init__(0)
        self.rates = {**dict.fromkeys(self.rates, 0.0), **rates}


def make(values):
    return np.array(values, dtype=np.float64)


def double(array):
    return array * 2


def spoil(array):
    array += 1
    return array


COUNTED = []


def count(_):
    COUNTED.append(1)
    return np.array(float(len(COUNTED)))


@pytest.mark.long
def test_the_simulated_cluster__gives_what_the_tasks_give():
    executor = SimulatedExecutor(Quiet(lose=1.0, duplicate=1.0), 3)
    futures = [executor.submit(make, [number]) for number in range(20)]
    for _ in range(3):
        futures = [executor.submit(double, future, process=number) for number, future in enumerate(futures)]
    found = executor.collect(futures)
    assert [float(row[0]) for row in found] == [8.0 * number for number in range(20)]
    assert executor.fate.faults


@pytest.mark.long
def test_the_simulated_cluster__finds_out_tasks_that_are_not_pure():
    executor = SimulatedExecutor(Quiet(duplicate=30.0), 1)
    with pytest.raises(ValueError, match="read-only"):
        executor.collect([executor.submit(spoil, executor.submit(make, [1]))])
    executor = SimulatedExecutor(Quiet(duplicate=30.0), 1)
    with pytest.raises(AssertionError, match="count is not a function of its arguments"):
        executor.collect([executor.submit(count, 1)])


@pytest.mark.long
def test_the_simulated_cluster__gives_up_a_task_that_kills_its_workers():
    executor = SimulatedExecutor(Quiet(task=40.0), 2)
    with pytest.raises(ClusterError, match=f"make has killed {MOST} workers"):
        executor.collect([executor.submit(make, [1])])
