"""Trial splits of leaves: accepted if the bound increases, and undone without a trace otherwise."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from collapsium.pipeline import Corpus, fit, simulate
from collapsium.pipeline.models.registry import make_options
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import Summary
from collapsium.workers.families.hca import tree_update as splitting
from collapsium.workers.families.hca.hca import Hca
from collapsium.workers.families.hca.states import NodeMasses, Splits
from collapsium.workers.families.ncrp.tree import FREE, Tree
from tests.fits import bits, resumed, states
from tests.pipeline.engine.model_io.test_checkpoints import stop_at

QUIET = {"compare": False, "merge": 1.0, "prune": 0.0}
TREE = Tree(np.array([-1, 0, 0, FREE, FREE]), 2)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Vectors of nine leaves in three branches, for which the fit initially has one leaf for two of them."""
    place = tmp_path_factory.mktemp("simulated")
    simulate(place / "c", family="hca", depth=3, documents=600, words=30, seed=1, shard_tokens=15000)
    return place / "c"


def fitted_with_metrics(corpus, iterations, **options):
    _, found = states(corpus, "hca", options, iterations)
    return found, [progress.metrics for _, progress in found if progress.iteration > 0]


def trials(found):
    """Return the number of splits on trial after each iteration."""
    return sum(state.global_state.splits.begins_trial for state, _ in found)


@pytest.mark.parametrize("form", ["conditional", "factorised"])
def test_accepted_splits__increase_the_bound(simulated, form):
    options = {"depth": 3, "max_nodes": 13, "form": form}
    plain, without = fitted_with_metrics(simulated, 30, split=False, **options)
    found, metrics = fitted_with_metrics(simulated, 30, **options)
    assert trials(found) > 0
    assert trials(plain) == 0
    assert sum(record["grown"] for record in metrics) > 0
    assert metrics[-1]["objective"] > without[-1]["objective"] + 10.0
    assert max(record["nodes"] for record in metrics) <= 13
    for before, after in pairwise(metrics):
        # a split includes a merge that makes room for it
        went = after["pruned"] + after["merged"] and not after["grown"]
        assert went or after["objective"] >= before["objective"] - 1e-7 * abs(before["objective"])


@pytest.mark.parametrize("form", ["conditional", "factorised"])
def test_rejected_splits__leave_all_bits_as_they_were(simulated, form, monkeypatch):
    monkeypatch.setattr(splitting, "surpassed", lambda splits, bound: False)
    options = {"depth": 3, "max_nodes": 13, "form": form, **QUIET}
    plain, without = fitted_with_metrics(simulated, 24, split=False, **options)
    found, metrics = fitted_with_metrics(simulated, 24, **options)
    assert trials(found) > 1
    assert [record["objective"] for record in metrics] == [record["objective"] for record in without]
    for split_shard, plain_shard in zip(found[-1][0].swept, plain[-1][0].swept, strict=True):
        local = split_shard.value.local.to_arrays()
        for name, values in plain_shard.value.local.to_arrays().items():
            np.testing.assert_array_equal(local[name], values)
    rows = [state.blocks[0].value.rows.word_node for state in (found[-1][0], plain[-1][0])]
    nodes = np.append(np.flatnonzero(plain[-1][0].global_state.fitted.node_parent != FREE), rows[0].shape[1] - 1)
    np.testing.assert_array_equal(rows[0][:, nodes], rows[1][:, nodes])


@pytest.mark.long
@pytest.mark.parametrize("kept", [True, False])
def test_a_run_that_stops_during_a_trial__is_resumed_to_the_same_bits(simulated, tmp_path, monkeypatch, kept):
    """The split may be accepted, or everything before it must be restored."""
    if not kept:
        monkeypatch.setattr(splitting, "surpassed", lambda splits, bound: False)
    options = {"depth": 3, "max_nodes": 13}
    found, _ = fitted_with_metrics(simulated, 24, **options)
    on_trial = [state.iteration for state, _ in found if state.global_state.splits.trial_left]
    assert on_trial
    # The number of sweeps of a trial depends on the processor's rounding; a trial may last beyond iteration 24.
    iterations = max(24, on_trial[-1] + 2)
    settings = {"family": "hca", "iterations": iterations, "scheduler": "serial", **options}
    whole, shards = fit(simulated, tmp_path / "whole", **settings), len(Corpus(simulated).manifest.shards)
    for number in {on_trial[0], on_trial[-1], on_trial[-1] + 1}:
        with pytest.raises(KeyboardInterrupt):
            fit(simulated, tmp_path / str(number), sinks=[stop_at(number)], **settings)
        assert bits(resumed(tmp_path / str(number), scheduler="serial"), shards) == bits(whole, shards)


def splits_of(tried=(0, 0, 0, 0, 0)):
    return replace(Splits.none(5), tried=np.array(tried))


def test_leaf_to_split__is_the_leaf_with_the_largest_residual_beyond_noise():
    ends = np.array([0.0, 100.0, 100.0, 0.0, 0.0])
    noise = (10.0 + 2.0) ** 2 / 2.0
    for gain, tried, expected in (
        ([0.0, 500.0, 900.0, 0.0, 0.0], (0, 0, 0, 0, 0), [2, 3, 1]),
        ([0.0, 500.0, 900.0, 0.0, 0.0], (0, 0, 1, 0, 0), [1, 3, 1]),
        ([0.0, 500.0, 900.0, 0.0, 0.0], (0, 1, 1, 0, 0), [2, 3, 0]),
        ([0.0, 500.0, 900.0, 0.0, 0.0], (0, 2, 2, 0, 0), [-1, -1, -1]),
        ([0.0, noise - 1.0, noise - 1.0, 0.0, 0.0], (0, 0, 0, 0, 0), [-1, -1, -1]),
    ):
        found = splitting.leaf_to_split(splits_of(tried), TREE, np.array(gain), ends, 4.0, 2.0)
        assert found.tolist() == expected
    small = np.array([0.0, 3.0, 3.0, 0.0, 0.0])
    assert splitting.leaf_to_split(splits_of(), TREE, np.full(5, 1e6), small, 4.0, 2.0)[0] == -1
    full = Tree(np.array([-1, 0, 0, 0, 0]), 2)
    assert splitting.leaf_to_split(splits_of(), full, np.full(5, 1e6), np.full(5, 50.0), 4.0, 2.0)[0] == -1


def test_split_leaf__adds_a_sibling_for_a_leafs_other_side():
    moves, ends = splitting.split_leaf(TREE, np.array([2, 3, 1]), np.array([0.0, 10.0, 30.0, 12.0, 0.0]))
    assert moves.tree.parents.tolist() == [-1, 0, 0, 0, FREE]
    assert ends.tolist() == [0.0, 10.0, 18.0, 12.0, 0.0]
    assert moves.sources == {2: [(2, 1.0), (3, -1.0)], 3: [(3, 1.0)]}
    assert moves.counts["grown"] == 1


def test_restored__is_the_state_before_a_trial():
    options = make_options("hca", {"depth": 2, "max_nodes": 5})
    before = Hca(options).initialise(Summary(60, 4, 240), Stream(0))
    columns = before.fitted.node_parent.size
    before = replace(before, masses=NodeMasses(np.ones(columns), np.ones(columns)))
    moved = np.where(np.arange(columns) < 4, np.minimum(np.arange(columns), 1) - 1, FREE)
    trial = replace(before.next_sweep, upcoming=replace(before.next_sweep.upcoming, next_parent=moved), tau=3.0)
    begun = splitting.start_trial(before, trial, 2, -7.0)
    assert begun.next_sweep.tau == 3.0
    assert begun.splits.trial_bound == -7.0
    read = type(begun).from_arrays(begun.to_arrays())  # types as read from a checkpoint
    after = splitting.restored(replace(read, fitted=replace(read.fitted, node_parent=moved)))
    for part in ("next_sweep", "fitted", "masses"):
        for name, values in getattr(before, part).to_arrays().items():
            np.testing.assert_array_equal(getattr(after, part).to_arrays()[name], values)
    assert np.flatnonzero(after.splits.tried).tolist() == [2]
    assert after.splits.restoring
    assert after.saved is None
    assert not [name for name in after.to_arrays() if name.startswith("saved_")]
