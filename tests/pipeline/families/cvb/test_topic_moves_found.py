"""What moves come to with the settings that they have: the topics that are left, and when to stop."""

from dataclasses import replace

import numpy as np
import pytest

from collapsium.pipeline import Corpus, fit, simulate, split
from collapsium.pipeline.families.base import Summary
from collapsium.pipeline.families.cvb import topic_moves as rounds
from collapsium.pipeline.families.cvb.hdp import Hdp
from collapsium.workers.arrays.delta import Delta, fresh
from collapsium.workers.arrays.random_streams import Stream
from tests.fits import scores_of
from tests.pipeline.families.cvb.conftest import corpora, iterations_of


@pytest.mark.long
@pytest.mark.parametrize("seed", [5, 6, 7])
def test_planted_topics__are_what_is_left(tmp_path, seed):
    """From many more; and they predict as well as where so many were asked for."""
    train, heldout = corpora(tmp_path, seed, documents=300)
    given = {"family": "hdp", "beta": 3.0, "iterations": 200, "scheduler": "serial", "heldout": heldout}
    fit(train, tmp_path / "true", topics=3, **{**given, "moves": False})
    fit(train, tmp_path / "many", topics=30, **given)
    told = iterations_of(tmp_path / "many")[-1]
    assert told["topics_99"] == 3
    assert scores_of(tmp_path / "many")[-1] > scores_of(tmp_path / "true")[-1] - 0.01


@pytest.mark.parametrize(("score", "ends"), [(-5.5, False), (-6.0049, False), (-6.0051, True)])
def test_a_round_that_finds_the_score_fallen__moves_nothing_and_is_the_last(score, ends):
    none = np.zeros(0, dtype=np.int64)
    state = replace(
        rounds.initial_state(3, 200), ask=2, merges=4, deletes=2, moves_best=-6.0,
        merge_candidates=np.array([[0], [1]]), delete_candidates=none,
    )  # fmt: skip
    options = Hdp.Options(topics=3)
    before = replace(Hdp().initialise(Summary(9, 5, 60), options, Stream(0)), moves=state, held=rounds.held_tokens(1))
    moments = np.array([[30.0, 10.0, 20.0], [0.0, 0.0, 0.0]])
    after = replace(before, sweeps=60.0, topic_moments=moments, topic_ahead=np.ones(3))
    gains = {"merge_gain": np.array([9.0]), "merge_square": np.array([1.0]), "delete_gain": none, "delete_square": none}
    sums = {"held_score": np.array([score * 1e4, 1e4]), **gains}
    found = rounds.next_state(before, after, Delta({name: fresh(values) for name, values in sums.items()})).moves
    assert found.moving is not ends
    assert (found.moves_idle == rounds.SCHEDULE.idle_rounds) is ends
    if not ends:
        assert found.moves_best == max(score, -6.0)
        assert found.moves_into.tolist() == [0, 0, 2]
        assert found.merges == 5


def test_topics_too_many_to_be_found__do_not_all_go(tmp_path):
    """Of documents with a little of many topics: merges each of which gains lose together, and end in time.

    Rounds end once what is held out scores lower by more than chance: so much may be lost.
    """
    simulate(tmp_path / "drawn", family="lda", documents=400, words=200, tokens=60, topics=20, alpha=0.3, seed=1)
    split(tmp_path / "drawn", tmp_path / "train", tmp_path / "heldout", seed=1)
    given = {"family": "hdp", "heldout": tmp_path / "heldout", "iterations": 120, "topics": 60, "score_every": 120}
    given["start"] = "random"
    for name in ("with", "without"):
        fit(tmp_path / "train", tmp_path / name, moves=name == "with", **given)
    held = rounds.SCHEDULE.held_share * Corpus(tmp_path / "train").manifest.tokens
    assert scores_of(tmp_path / "with")[-1] > scores_of(tmp_path / "without")[-1] - rounds.SCHEDULE.max_fall / np.sqrt(
        held
    )
    assert iterations_of(tmp_path / "with")[-1]["topics"] > 2
