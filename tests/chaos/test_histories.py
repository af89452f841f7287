"""Two hundred histories of the simulated cluster; `make chaos` runs ten thousand."""

import numpy as np
import pytest

from collapsium.storage.errors import ClusterError
from tests.chaos.fate import Fate
from tests.chaos.histories import check, prepare
from tests.chaos.simulated import DEATHS_LIMIT, SimulatedExecutor

CHUNK, CHUNKS = 25, 8
KNOWN = {}


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, CHUNK * CHUNKS, CHUNK))
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_histories__end_like_the_undisturbed_fit(first):
    base, faults, lives = prepare(), 0, 0
    for seed in range(first, first + CHUNK):
        try:
            fate = check(base, KNOWN, seed)
        except Exception as error:
            error.add_note(f"replay it with: python -m tests.chaos.histories {seed}")
            raise
        faults, lives = faults + len(fate.faults), lives + fate.session + 1
    assert faults > CHUNK  # otherwise the histories have hardly tested anything
    assert lives > CHUNK


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_one_history__ends_like_the_undisturbed_fit():
    assert len(check(prepare(), KNOWN, 73).faults) > 10


@pytest.mark.long
def test_a_seed__replays_exactly():
    base = prepare()
    for seed in (3, 11):
        assert check(base, KNOWN, seed).faults == check(base, KNOWN, seed).faults


class OnlyFaults(Fate):
    """A fate with the given rates of faults; all other rates are zero."""

    def __init__(self, **rates):
        super().__init__(0)
        self.rates = {**dict.fromkeys(self.rates, 0.0), **rates}


def make_array(values):
    return np.array(values, dtype=np.float64)


def double_array(array):
    return array * 2


def change_in_place(array):
    array += 1
    return array


COUNTED = []


def count_calls(_):
    COUNTED.append(1)
    return np.array(float(len(COUNTED)))


@pytest.mark.long
def test_the_simulated_cluster__returns_the_results_of_the_tasks():
    executor = SimulatedExecutor(OnlyFaults(lose=1.0, duplicate=1.0), 3)
    futures = [executor.submit(make_array, [number]) for number in range(20)]
    for _ in range(3):
        futures = [executor.submit(double_array, future, process=number) for number, future in enumerate(futures)]
    found = executor.collect(futures)
    assert [float(row[0]) for row in found] == [8.0 * number for number in range(20)]
    assert executor.fate.faults


@pytest.mark.long
def test_the_simulated_cluster__detects_tasks_that_are_not_pure():
    executor = SimulatedExecutor(OnlyFaults(duplicate=30.0), 1)
    with pytest.raises(ValueError, match="read-only"):
        executor.collect([executor.submit(change_in_place, executor.submit(make_array, [1]))])
    executor = SimulatedExecutor(OnlyFaults(duplicate=30.0), 1)
    with pytest.raises(AssertionError, match="count_calls is not a function of its arguments"):
        executor.collect([executor.submit(count_calls, 1)])


@pytest.mark.long
def test_the_simulated_cluster__gives_up_a_task_that_has_killed_its_limit_of_workers():
    executor = SimulatedExecutor(OnlyFaults(task=40.0), 2)
    with pytest.raises(ClusterError, match=f"make_array has killed {DEATHS_LIMIT} workers"):
        executor.collect([executor.submit(make_array, [1])])
