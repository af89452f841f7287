"""The order in which deltas are added depends only on the number of shards, and few deltas wait at a time."""

import functools
import math
import re
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import fit
from collapsium.pipeline.engine.loop import _Sums, require_readable
from collapsium.pipeline.engine.state import GROUP_SHARDS
from collapsium.pipeline.models.registry import load_family
from collapsium.storage.errors import NumericalError
from collapsium.workers import tasks
from collapsium.workers.arrays.annotations import numbers
from collapsium.workers.arrays.state import GlobalState


class TupleRecorder:
    """Records the terms of each sum as a tuple instead of adding them."""

    def __init__(self):
        self.added = 0

    def submit(self, function, given_deltas, process=None):
        assert function is tasks.add
        assert len(given_deltas) == 2
        self.added += 1
        return tuple(given_deltas)


def leaves(tree):
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, tuple) else [tree]


def height(tree):
    return 1 + max(map(height, tree)) if isinstance(tree, tuple) else 0


def summed(count, after_each=lambda sums: None):
    sums = _Sums(TupleRecorder())
    for number in range(count):
        sums.add(number, 0)
        after_each(sums)
    return sums


@given(st.integers(0, 300))
def test_sums__contain_each_delta_once_in_order(count):
    assert [leaf for tree in summed(count).remaining for leaf in leaves(tree)] == list(range(count))


@given(st.integers(1, 300))
def test_sums__let_only_a_few_deltas_wait(count):
    """At most one sum per height of the tree waits besides the current group; a delta is added at most as often as the
    tree is high."""
    waiting = []
    sums = summed(count, lambda sums: waiting.append(len(sums.remaining)))
    groups = max(count // GROUP_SHARDS, 1)
    assert max(waiting) <= 2 + math.floor(math.log2(groups))
    assert max(map(height, sums.remaining)) <= GROUP_SHARDS - 1 + math.ceil(math.log2(groups))
    assert sums._executor.added == count - len(sums.remaining)  # the least number of additions for this number of sums


class FoldRecorder:
    """Records additions from left to right as nested tuples, and the process of each."""

    def __init__(self):
        self.processes = []

    def submit(self, task, deltas, process):
        if task is tasks.received:
            return deltas
        self.processes.append(process)
        return functools.reduce(lambda left, right: (left, right), deltas)


@given(st.lists(st.integers(0, 3), max_size=80), st.integers(0, 2), st.integers(1, GROUP_SHARDS))
def test_sums__are_the_same_for_any_processes_of_shards_and_any_number_of_waiting_deltas(processes, looks, waiting):
    sums, executor = _Sums(folding := FoldRecorder(), waiting), FoldRecorder()
    alone = _Sums(executor)
    for number, process in enumerate(processes):
        sums.add(number, process)
        alone.add(number, 0)
        if number < looks:
            assert sums.remaining == alone.remaining
    assert sums.remaining == alone.remaining
    assert len(folding.processes) <= len(executor.processes)


def test_sums_for_another_host__are_added_there_in_one_task():
    sums = _Sums(folding := FoldRecorder())
    for number, process in enumerate([0, 0, 0, 0, 1, 1, 1, 1]):
        sums.add(number, process)
    assert folding.processes == [0, 0, 0, 1]


@pytest.mark.parametrize(("waiting", "tasks_each"), [(1, 7), (2, 4), (3, 3), (7, 1)])
def test_sums_of_waiting_deltas__are_added_in_one_task(waiting, tasks_each):
    sums = _Sums(folding := FoldRecorder(), waiting)
    for number in range(GROUP_SHARDS):
        sums.add(number, 0)
    assert len(folding.processes) == tasks_each
    assert [leaf for tree in sums.remaining for leaf in leaves(tree)] == list(range(GROUP_SHARDS))


@given(st.integers(1, 60), st.integers(0, 200))
def test_sums_of_the_first_deltas__do_not_depend_on_later_ones(groups, more):
    """Sums of the first shards are final, so that no sum has to wait for the total number of shards."""
    before = summed(groups * GROUP_SHARDS).remaining
    after = summed(groups * GROUP_SHARDS + more).remaining

    def parts(tree):
        return {tree}.union(*(parts(part) for part in tree)) if isinstance(tree, tuple) else {tree}

    assert set(before) <= set().union(*(parts(tree) for tree in after))


@pytest.mark.parametrize(
    ("groups", "heights"), [(1, [0]), (2, [1]), (3, [1, 0]), (4, [2]), (5, [2, 0]), (6, [2, 1]), (7, [2, 1, 0])]
)
def test_sums_of_groups__are_added_in_pairs(groups, heights):
    found = summed(groups * GROUP_SHARDS).remaining
    assert [height(tree) for tree in found] == [GROUP_SHARDS - 1 + height for height in heights]


@pytest.mark.parametrize(("family", "options"), [("lda", {"alpha": 1e30}), ("gibbs-hdp", {"beta": 1e300})])
def test_numbers_too_large_for_a_model__end_a_fit_and_leave_no_run(small, tmp_path, family, options):
    topics = {"topics": 2} if family == "lda" else {}
    with pytest.raises(NumericalError, match=r"iteration 0: .* and a model has at most 1e\+15"):
        fit(small[0], tmp_path / "run", family=family, iterations=1, scheduler="serial", **topics, **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("value", "limit"), [(2e15, "most 1e+15"), (-2e15, "least -1e+15")])
def test_numbers_beyond_either_limit__end_a_fit_by_name(value, limit):
    @dataclass(frozen=True)
    class Loadings(GlobalState):
        loading: Annotated[npt.NDArray[np.float64], numbers("topic")]

    message = f"iteration 3: loading is {value:g}, and a model has at {limit}; the options"
    with pytest.raises(NumericalError, match=re.escape(message)):
        require_readable(Loadings(np.array([0.0, value])), 3)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e300])
def test_metrics_that_are_not_finite__end_a_fit_with_their_name(small, tmp_path, monkeypatch, value):
    monkeypatch.setattr(load_family("lda"), "objective", lambda *_: {"objective": value})
    with pytest.raises(NumericalError, match="iteration 0: objective is no longer finite"):
        fit(small[0], tmp_path / "run", family="lda", topics=2, iterations=1, scheduler="serial")
