"""Results of split-merge moves with their default settings: the topics that remain, and when the rounds end."""

from dataclasses import replace

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from collapsium.pipeline import Corpus, fit, simulate, split
from collapsium.workers.arrays.delta import Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb import schedule, split_merge
from collapsium.workers.families.cvb.global_state import HeldTokens
from collapsium.workers.families.cvb.hdp import Hdp
from collapsium.workers.families.cvb.states import CollapsedRows
from collapsium.workers.families.family import Summary
from tests.fits import scores_of
from tests.workers.families.cvb.conftest import corpora, iterations_of

HDP = Hdp(Hdp.Options(topics=3))
MOMENTS = np.array([[30.0, 10.0, 20.0], [0.0, 0.0, 0.0]])
"""Sums of three topics by which moves are judged."""


@pytest.mark.long
@pytest.mark.parametrize("seed", [4, 5, 6, 7])
def test_the_simulated_topics__remain(tmp_path, seed):
    """Starting from ten times as many topics, the true number remains and predicts as well as a fit with that number."""
    train, heldout = corpora(tmp_path, seed, documents=300)
    options = {"family": "hdp", "beta": 3.0, "iterations": 200, "scheduler": "serial", "heldout": heldout}
    fit(train, tmp_path / "true", topics=3, **{**options, "split_merge_moves": False})
    fit(train, tmp_path / "many", topics=30, **options)
    iterations = iterations_of(tmp_path / "many")[-1]
    assert iterations["topics_99"] == 3
    assert scores_of(tmp_path / "many")[-1] > scores_of(tmp_path / "true")[-1] - 0.01


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 4, 5])
def test_the_twenty_simulated_topics__remain_of_a_hundred(tmp_path, seed):
    """An earlier version with momentum during the rounds left 43, 48 and 27 topics for these seeds."""
    simulate(tmp_path / "drawn", family="lda", documents=1500, words=500, tokens=80, topics=20, alpha=0.1, seed=seed)
    split(tmp_path / "drawn", tmp_path / "train", tmp_path / "heldout", seed=seed)
    options = {"family": "hdp", "iterations": 200, "heldout": tmp_path / "heldout", "score_every": 200}
    fit(tmp_path / "train", tmp_path / "true", topics=20, split_merge_moves=False, **options)
    fit(tmp_path / "train", tmp_path / "many", topics=100, **options)
    assert iterations_of(tmp_path / "many")[-1]["topics_99"] == 20
    assert scores_of(tmp_path / "many")[-1] > scores_of(tmp_path / "true")[-1] - 0.01


@hypothesis.given(tokens=st.integers(1, 10**12))
def test_moves__hold_out_more_than_the_temperature_search(tokens):
    share = schedule.split_merge_share(tokens)
    assert share >= 2.0 * schedule.search_share(tokens)
    assert share * tokens == pytest.approx(np.clip(100_000, tokens / 100, tokens / 10))


@pytest.mark.parametrize(("gain", "merged"), [(-0.9, True), (-1.1, False), (0.6, True)])
def test_copies_of_a_topic__are_merged_unless_the_merge_significantly_loses(gain, merged):
    found = moves_after_round(np.array([True]), gain)
    assert (found.moves_into.tolist() == [0, 0, 2]) is merged
    assert found.moving is merged


@pytest.mark.parametrize(("gain", "merged"), [(-0.9, False), (0.4, False), (0.6, True)])
@pytest.mark.parametrize("alike", [None, np.array([False])])
def test_other_topics__are_merged_if_the_merge_gains_enough(gain, merged, alike):
    assert (moves_after_round(alike, gain).moves_into.tolist() == [0, 0, 2]) is merged


def moves_after_round(alike, gain, score=-6.0, sweep=60.0, merges=4, deletes=2):
    """Return the moves after a round with one merge candidate, whose gain is given in standard errors."""
    none = np.zeros(0, dtype=np.int64)
    state = replace(
        split_merge.begin(3, 200), ask=2, superfluous=True, merges=merges, deletes=deletes, moves_best=-6.0,
        merge_candidates=np.array([[0], [1]]), merge_alike=alike, delete_candidates=none,
    )  # fmt: skip
    before = initial_state(state)
    after = replace(before, sweeps=sweep, topic_moments=MOMENTS, topic_ahead=np.ones(3))
    gains = {"merge_gain": np.array([2.0 * gain]), "merge_square": np.array([4.0])}
    sums = {"held_score": np.array([score * 1e4, 1e4]), "delete_gain": none, "delete_square": none, **gains}
    found = split_merge.step(before, after, Delta({name: fresh(values) for name, values in sums.items()})).moves
    assert found.merge_alike is None
    return found


def initial_state(state):
    """Return the initial global state of a fit of three topics with these moves."""
    held = HeldTokens(moves_seed=np.array(1), held_share=0.1, held_before=0.1)
    return replace(HDP.initialise(Summary(9, 5, 60), Stream(0)), moves=state, held=held)


def test_after_moves__predicts_the_counts_that_pending_moves_will_leave():
    state = replace(split_merge.begin(6, 200), moving=True)
    state = replace(state, moves_into=np.array([0, 0, -1, 3, 4, 5]), moves_split=np.array([-1, -1, -1, 5, -1, -1]))
    global_state = replace(initial_state(split_merge.begin(3, 200)), moves=state)
    counts = np.array([5.0, 3.0, 7.0, 8.0, 2.0, 0.0])
    assert global_state.after_moves(counts).tolist() == [8.0, 0.0, 0.0, 4.0, 2.0, 4.0]
    assert replace(global_state, moves=replace(state, moving=False)).after_moves(counts).tolist() == counts.tolist()


def test_flat_topics__are_not_taken_for_copies():
    """If the products of flat topics lack small cells, the rest of their variance may come out negative."""
    state = replace(split_merge.begin(3, 200), ask=1)
    before = replace(initial_state(state), vocabulary=5000.0, topic_moments=np.array([[100.0, 1e4, 1e4], [0.0] * 3]))
    products = np.array([[0.9, 1500.0, 0.0], [0.0, 5e6, 4.999e6], [0.0, 0.0, 5e6]])
    spill = {"delete_spill": fresh(np.zeros((0, 3)))}
    found = split_merge.step(before, before, Delta({"topic_products": fresh(products), **spill})).moves
    copies = found.merge_candidates[:, found.merge_alike]
    assert copies.T.tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("moving", "superfluous", "momentum"), [(False, False, 0.8), (True, False, 0.0), (False, True, 0.0)]
)
def test_momentum__is_off_while_rounds_with_moves_last(moving, superfluous, momentum):
    moves = replace(split_merge.begin(3, 200), moving=moving, superfluous=superfluous)
    state = replace(initial_state(moves), topic_moments=MOMENTS)
    block = CollapsedRows(word_active=np.ones((5, 3), dtype=np.float32), word_rest=np.zeros(5))
    assert HDP.update_parameters(block, state).active.momentum == momentum


@pytest.mark.parametrize(("sweep", "idle"), [(151.0, 0), (90.0, schedule.IDLE_ROUNDS)])
def test_momentum__is_on_again_when_the_rounds_end(sweep, idle):
    state = replace(split_merge.begin(3, 200), superfluous=True, split_tried=True, moves_idle=idle)
    before = initial_state(state)
    found = split_merge.step(before, replace(before, sweeps=sweep), Delta({})).moves
    assert found.moving
    assert not found.superfluous


@pytest.mark.parametrize(
    ("gain", "copies", "superfluous"),
    # Copies predict alike, so merging them should gain nothing.
    [(1.9, False, False), (2.1, False, True), (-1.9, True, True), (-2.1, True, False)],
)
def test_the_first_round__moves_nothing_and_is_the_last_without_significant_merges(gain, copies, superfluous):
    state = replace(split_merge.begin(3, 200), ask=2, merge_candidates=np.array([[0], [1]]))
    state = replace(state, merge_alike=np.array([copies]))
    before = initial_state(state)
    after = replace(before, sweeps=42.0, topic_moments=MOMENTS, topic_ahead=np.ones(3))
    none = {"delete_gain": np.zeros(0), "delete_square": np.zeros(0)}
    gains = {"merge_gain": np.array([gain]), "merge_square": np.array([4.0])}
    sums = {"held_score": np.array([-6e4, 1e4]), **gains, **none}
    found = split_merge.step(before, after, Delta({name: fresh(values) for name, values in sums.items()})).moves
    assert found.merges == 0
    assert found.topic_alive.all()
    assert not found.moving
    assert found.superfluous == superfluous
    # Later rounds have a larger alpha, so their scores cannot be compared with this one.
    assert found.moves_best == split_merge.WORST_SCORE
    assert found.moves_idle == (0 if superfluous else schedule.IDLE_ROUNDS)
    assert found.split_tried == (not superfluous)


@pytest.mark.parametrize(("merges", "held", "warns"), [(0, False, True), (0, True, False), (1, False, False)])
def test_a_search_without_redundant_topics__warns_that_the_number_of_topics_is_the_limit(merges, held, warns):
    state = initial_state(replace(split_merge.begin(3, 200), merges=merges))
    state = state if held else replace(state, held=replace(state.held, held_share=0.0))
    remark = HDP.remark(state)
    assert remark == ("no redundant topic was found: 3 is your limit, not a finding" if warns else None)


@pytest.mark.parametrize(("iterations", "possible"), [(20, False), (61, False), (62, True)])
def test_moves__are_possible_if_a_second_round_can_begin(iterations, possible):
    assert split_merge.possible(iterations) == possible


@pytest.mark.parametrize("superfluous", [False, True])
def test_deletions__are_proposed_once_redundant_topics_were_found(superfluous):
    before = initial_state(replace(split_merge.begin(3, 200), superfluous=superfluous))
    found = split_merge.step(before, replace(before, sweeps=45.0, topic_moments=MOMENTS), Delta({})).moves
    assert found.ask == 1
    assert found.delete_candidates.tolist() == ([1, 2] if superfluous else [])


def test_rounds_of_an_old_checkpoint__continue():
    """It has no flag that the first round found redundant topics, which follows from its number of merges."""
    before = initial_state(replace(split_merge.begin(3, 200), merges=2))
    found = split_merge.step(before, replace(before, sweeps=46.0), Delta({})).moves
    assert found.superfluous


def test_a_score_that_falls_without_moves__does_not_end_the_rounds():
    found = moves_after_round(None, 0.6, score=-6.0051, sweep=47.0, merges=0, deletes=0)
    assert found.moves_idle == 1
    assert not found.split_tried


def test_first_moves_after_which_the_score_falls__are_the_last():
    found = moves_after_round(None, 0.6, score=-6.0051, sweep=47.0)
    assert found.moves_idle == schedule.IDLE_ROUNDS
    assert found.split_tried
    assert not found.moving


@pytest.mark.parametrize("idle", [0, 3])
@pytest.mark.parametrize(("score", "fallen"), [(-5.5, False), (-6.0049, False), (-6.0051, True)])
def test_a_round_after_which_the_score_has_fallen__moves_nothing(score, fallen, idle):
    """No moves are made until the score has recovered; after several such rounds in a row, the rounds end."""
    none = np.zeros(0, dtype=np.int64)
    state = replace(
        split_merge.begin(3, 200), ask=2, superfluous=True, merges=4, deletes=2, moves_best=-6.0, moves_idle=idle,
        merge_candidates=np.array([[0], [1]]), delete_candidates=none,
    )  # fmt: skip
    before = initial_state(state)
    after = replace(before, sweeps=60.0, topic_moments=MOMENTS, topic_ahead=np.ones(3))
    gains = {"merge_gain": np.array([9.0]), "merge_square": np.array([1.0]), "delete_gain": none, "delete_square": none}
    sums = {"held_score": np.array([score * 1e4, 1e4]), **gains}
    found = split_merge.step(before, after, Delta({name: fresh(values) for name, values in sums.items()})).moves
    assert found.moving is not fallen
    assert found.moves_idle == (idle + 1 if fallen else 0)
    if not fallen:
        assert found.moves_best == max(score, -6.0)
        assert found.moves_into.tolist() == [0, 0, 2]
        assert found.merges == 5


def test_topics_too_many_to_be_found__are_not_all_merged(tmp_path):
    """Merges that each gain may lose together, in documents with a little of many topics; the rounds must end in time.

    Rounds end once the held-out score has fallen by more than chance allows, so that much may be lost.
    """
    simulate(tmp_path / "drawn", family="lda", documents=400, words=200, tokens=60, topics=20, alpha=0.3, seed=1)
    split(tmp_path / "drawn", tmp_path / "train", tmp_path / "heldout", seed=1)
    options = {"family": "hdp", "heldout": tmp_path / "heldout", "iterations": 120, "topics": 60, "score_every": 120}
    options["init"] = "random"
    for name in ("with", "without"):
        fit(tmp_path / "train", tmp_path / name, split_merge_moves=name == "with", **options)
    held = schedule.MAX_SPLIT_MERGE_HELD_SHARE * Corpus(tmp_path / "train").manifest.tokens
    assert scores_of(tmp_path / "with")[-1] > scores_of(tmp_path / "without")[-1] - schedule.MAX_FALL / np.sqrt(held)
    assert iterations_of(tmp_path / "with")[-1]["topics"] > 2
