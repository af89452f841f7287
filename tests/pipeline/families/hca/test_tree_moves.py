"""Splits of leaves on trial: kept where the bound is larger, and without a trace where it is not."""

from itertools import pairwise

import numpy as np
import pytest

from collapsium.pipeline import Corpus, fit, resume, simulate
from collapsium.pipeline.families.hca import tree_moves as splitting
from collapsium.workers.families.ncrp.tree import FREE, Tree
from tests.conformance import bits, states
from tests.pipeline.engine.model_io.test_checkpoints import stop_at

QUIET = {"compare": False, "merge": 1.0, "prune": 0.0}
TREE = Tree(np.array([-1, 0, 0, FREE, FREE]), 2)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Vectors of nine leaves in three branches, whose tree of 13 nodes begins with a leaf for two."""
    place = tmp_path_factory.mktemp("planted")
    simulate(place / "c", family="hca", depth=3, documents=1000, words=30, seed=1, shard_tokens=15000)
    return place / "c"


def told_of(corpus, iterations, **options):
    _, found = states(corpus, "hca", options, iterations)
    return found, [progress.figures for _, progress in found if progress.iteration > 0]


def trials(found):
    """How many splits were on trial after an iteration."""
    return sum(int(state.globals["trial_left"]) == splitting.ROUNDS for state, _ in found)


@pytest.mark.parametrize("form", ["conditional", "factorised"])
def test_splits__raise_the_bound_and_never_lower_it(planted, form):
    options = {"depth": 3, "max_nodes": 13, "form": form}
    plain, without = told_of(planted, 30, split=False, **options)
    found, told = told_of(planted, 30, **options)
    assert trials(found) > 0
    assert trials(plain) == 0
    assert sum(one["grown"] for one in told) > 0
    assert told[-1]["objective"] > without[-1]["objective"] + 10.0
    assert max(one["nodes"] for one in told) <= 13
    for before, after in pairwise(told):
        went = after["pruned"] + after["merged"] and not after["grown"]  # a split takes a merge with it
        assert went or after["objective"] >= before["objective"] - 1e-7 * abs(before["objective"])


@pytest.mark.parametrize("form", ["conditional", "factorised"])
def test_splits_in_vain__leave_all_bits_as_they_were(planted, form, monkeypatch):
    monkeypatch.setattr(splitting, "surpassed", lambda globals, bound: False)
    options = {"depth": 3, "max_nodes": 13, "form": form, **QUIET}
    plain, without = told_of(planted, 24, split=False, **options)
    found, told = told_of(planted, 24, **options)
    assert trials(found) > 1
    assert [one["objective"] for one in told] == [one["objective"] for one in without]
    for ours, theirs in zip(found[-1][0].swept, plain[-1][0].swept, strict=True):
        for name, values in theirs.value.local.items():
            np.testing.assert_array_equal(ours.value.local[name], values)
    rows = [state.blocks[0].value.rows["word_node"] for state in (found[-1][0], plain[-1][0])]
    nodes = np.append(np.flatnonzero(plain[-1][0].globals["node_parent"] != FREE), rows[0].shape[1] - 1)
    np.testing.assert_array_equal(rows[0][:, nodes], rows[1][:, nodes])


@pytest.mark.long
@pytest.mark.parametrize("kept", [True, False])
def test_a_run_that_stops_in_the_midst_of_a_trial__is_resumed_to_the_same_bits(planted, tmp_path, monkeypatch, kept):
    """Whether the split stays, or all that went before has to come back."""
    if not kept:
        monkeypatch.setattr(splitting, "surpassed", lambda globals, bound: False)
    options = {"depth": 3, "max_nodes": 13}
    found, _ = told_of(planted, 24, **options)
    on_trial = [state.iteration for state, _ in found if int(state.globals["trial_left"])]
    assert on_trial
    given = {"family": "hca", "iterations": 24, "scheduler": "serial", **options}
    whole, shards = fit(planted, tmp_path / "whole", **given), len(Corpus(planted).manifest.shards)
    for number in {on_trial[0], on_trial[-1], on_trial[-1] + 1}:
        with pytest.raises(KeyboardInterrupt):
            fit(planted, tmp_path / str(number), sinks=[stop_at(number)], **given)
        assert bits(resume(tmp_path / str(number), scheduler="serial"), shards) == bits(whole, shards)


def globals_of(tried=(0, 0, 0, 0, 0)):
    return {**splitting.begun(5), "tried": np.array(tried), "vocabulary": np.array(4.0)}


def test_chosen__is_the_leaf_of_which_most_is_left_beyond_noise():
    ends = np.array([0.0, 100.0, 100.0, 0.0, 0.0])
    noise = (10.0 + 2.0) ** 2 / 2.0
    for gain, tried, expected in (
        ([0.0, 500.0, 900.0, 0.0, 0.0], (0, 0, 0, 0, 0), [2, 3, 1]),
        ([0.0, 500.0, 900.0, 0.0, 0.0], (0, 0, 1, 0, 0), [1, 3, 1]),
        ([0.0, 500.0, 900.0, 0.0, 0.0], (0, 1, 1, 0, 0), [2, 3, 0]),
        ([0.0, 500.0, 900.0, 0.0, 0.0], (0, 2, 2, 0, 0), [-1, -1, -1]),
        ([0.0, noise - 1.0, noise - 1.0, 0.0, 0.0], (0, 0, 0, 0, 0), [-1, -1, -1]),
    ):
        found = splitting.chosen(globals_of(tried), TREE, np.array(gain), ends, 2.0)
        assert found.tolist() == expected
    few = np.array([0.0, 3.0, 3.0, 0.0, 0.0])
    assert splitting.chosen(globals_of(), TREE, np.full(5, 1e6), few, 2.0)[0] == -1
    full = Tree(np.array([-1, 0, 0, 0, 0]), 2)
    assert splitting.chosen(globals_of(), full, np.full(5, 1e6), np.full(5, 50.0), 2.0)[0] == -1


def test_parted__makes_a_sibling_of_a_leafs_other_side():
    moves, ends = splitting.parted(TREE, np.array([2, 3, 1]), np.array([0.0, 10.0, 30.0, 12.0, 0.0]))
    assert moves.tree.parents.tolist() == [-1, 0, 0, 0, FREE]
    assert ends.tolist() == [0.0, 10.0, 18.0, 12.0, 0.0]
    assert moves.sources == {2: [(2, 1.0), (3, -1.0)], 3: [(3, 1.0)]}
    assert moves.counts["grown"] == 1


def test_restored__are_the_globals_of_before_a_trial():
    before = {**globals_of(), "next_parent": TREE.parents, "tau": np.array(2.0)}
    before.update(node_parent=TREE.parents, node_passes=np.ones(5), node_ends=np.ones(5))
    trial = {"next_parent": np.array([-1, 0, 0, 0, FREE]), "tau": np.array(3.0)}
    begun = splitting.on_trial(before, trial, 2, -7.0)
    assert float(begun["tau"]) == 3.0
    after = splitting.restored({**begun, "node_parent": trial["next_parent"]})
    for name in ("next_parent", "tau", "node_parent", "node_passes", "node_ends"):
        np.testing.assert_array_equal(after[name], before[name])
    assert after["tried"].tolist() == [0, 0, 1, 0, 0]
    assert int(after["restoring"]) == 1
    assert not [name for name in after if name.startswith("kept_") and name != "kept_bound"]
