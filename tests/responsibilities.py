"""Conformance of families with dense or active responsibilities, including the stochastic schedule."""

import math

import numpy as np
import pytest

from collapsium.pipeline import Corpus, fit, simulate, split
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.storage.errors import OptionError
from tests.conformance import Conformance
from tests.counting import pair_weights
from tests.fits import LosingExecutor, problem_of, scores_of, state_bits

MANY = 140  # more topics than a document's initial active set
STEPS = {"schedule": "stochastic", "passes": 2, "batch_shards": 2}


def stepped(corpus, family, options, cuts=None, scratch=None, executor=None):
    """Fit with the stochastic schedule; return the problem, the states, and the states with progress.

    The documents are folded into the last state. The fit is serial unless an executor is given.
    """
    problem = problem_of(corpus, family, options, cuts, executor, scratch=scratch, stochastic=True)
    found = list(Fit(problem, Limits(**STEPS)))
    return problem, [*(state for state, _ in found[:-1]), problem.folded_in(found[-1][0])], found


class Responsibilities(Conformance):
    """The conformance suite with tests of the stochastic schedule and of active responsibilities.

    `stochastic` lists the options that tests of the stochastic schedule are repeated with, and `drawn` has the options
    for a corpus simulated with few topics per document.
    """

    stochastic: tuple[dict, ...] = ()
    drawn: dict = {}  # noqa: RUF012 - never changed

    @pytest.mark.xdist_group("clusters")
    def test_steps__do_not_depend_on_the_executor(self, five_shards, steps, where, tmp_path, references, clusters):
        self.check_bits(five_shards, {**steps, **STEPS, "iterations": 6}, where, tmp_path, references, clusters)

    def test_a_stopped_stochastic_run__is_resumed_to_the_same_bits_and_events(
        self, five_shards, steps, tmp_path, references
    ):
        self.check_resumed(five_shards, {**steps, **STEPS, "iterations": 6}, tmp_path, references)

    def test_commands__read_the_model_of_a_stochastic_schedule(self, five_shards, steps, tmp_path, references):
        self.check_commands(
            five_shards, references.run(self.family, {**steps, **STEPS, "iterations": 6}, five_shards), tmp_path
        )

    def test_ground_truth_topics__are_recovered_in_two_passes(self, tmp_path, steps):
        self.check_ground_truth(tmp_path, 1500, {**steps, "schedule": "stochastic", "passes": 2})

    def test_steps__conserve_counts(self, five_shards, steps):
        problem, states_, found = stepped(five_shards[0], self.family, steps)
        manifest = Corpus(five_shards[0]).manifest
        assert [state.iteration for state in states_] == [1, 2, 3, 4, 5, 6]  # 1 + 2 + 2 shards, then 2 + 2 + 1
        for state in states_:
            held, counted_ = state.blocks[0].value.rows.word_topic, self.topic_tokens(state.global_state)
            assert (held >= 0.0).all()
            assert math.isclose(counted_.sum(), manifest.tokens, rel_tol=1e-6)
            np.testing.assert_allclose(held.sum(axis=0, dtype=np.float64), counted_, rtol=1e-3, atol=1e-2)
        rows = states_[-1].blocks[0].value.rows
        for shard, swept in zip(problem.shards, states_[-1].swept, strict=True):
            weight = pair_weights(problem.config, rows, shard.value).sum()
            assert math.isclose(swept.value.local.document_topic.sum(dtype=np.float64), weight, rel_tol=1e-5)
        assert all(math.isfinite(value) for _, progress in found for value in progress.metrics.values())

    def test_steps__do_not_depend_on_the_location_of_states_and_blocks(self, five_shards, steps, tmp_path):
        """States may be in scratch files, the vocabulary may be divided into blocks, and work may be lost and
        repeated."""
        whole = stepped(five_shards[0], self.family, steps)[1][-1]
        disk = stepped(five_shards[0], self.family, steps, scratch=str(tmp_path / "scratch"))[1][-1]
        assert any((tmp_path / "scratch").glob("*"))
        assert [
            array[0] for array, other in zip(state_bits(disk), state_bits(whole), strict=True) if array != other
        ] == []
        cut = stepped(five_shards[0], self.family, steps, cuts=(0, 7, 8, 30))[1][-1]
        blocks = [block.value.rows.to_arrays() for block in cut.blocks]
        for name, values in whole.blocks[0].value.rows.to_arrays().items():
            np.testing.assert_array_equal(np.concatenate([rows[name] for rows in blocks]), values)
        losing = LosingExecutor(SerialExecutor(), 4)
        _, again, found = stepped(five_shards[0], self.family, steps, executor=losing)
        assert losing.losses == 4
        assert any(progress.lost for _, progress in found)
        assert state_bits(again[-1]) == state_bits(whole)

    def test_steps__are_refused_if_variances_are_needed(self, small, options, tmp_path):
        global_state = problem_of(small[0], self.family, options).global_state
        settings = {"family": self.family, "scheduler": "serial", **STEPS, "iterations": 1, **options}
        if global_state.moments:
            with pytest.raises(OptionError, match="schedule: 'stochastic' requires `order` 0"):
                fit(small[0], tmp_path / "run", **settings)
            assert not (tmp_path / "run").exists()
        else:
            assert fit(small[0], tmp_path / "run", **settings).record.iterations == 1

    @pytest.mark.long
    def test_active_responsibilities__predict_as_well_as_dense_ones(self, corpus_of_many_topics, tmp_path):
        scores = {}
        for kind in ("dense", "active"):
            fit(
                corpus_of_many_topics[0], tmp_path / kind, family=self.family, scheduler="serial", heldout=corpus_of_many_topics[1],
                responsibilities=kind, topics=MANY, beta=20.0, iterations=80, score_every=20, **self.drawn,
            )  # fmt: skip
            scores[kind] = scores_of(tmp_path / kind)
        assert scores["dense"][-1] > scores["dense"][0] + 0.1  # the fit has learned something by then
        assert scores["active"][-1] > scores["dense"][-1] - 0.02


@pytest.fixture(scope="session")
def corpus_of_many_topics(tmp_path_factory):
    """Training and held-out tokens of 2000 documents simulated with a few of many topics each."""
    place = tmp_path_factory.mktemp("drawn")
    options = {"documents": 2000, "words": 500, "tokens": 80, "topics": MANY, "alpha": 0.02, "beta": 20.0}
    simulate(place / "whole", family="lda", seed=4, shard_tokens=50_000, **options)
    split(place / "whole", place / "train", place / "heldout", seed=1)
    return str(place / "train"), str(place / "heldout")
