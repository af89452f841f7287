"""The Gibbs families on several shards: initialisation, topics born in several shards, slots, and local sweeps."""

from dataclasses import replace

import numpy as np
import pytest

from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.models.registry import recorded_family
from collapsium.storage.corpus.shard import Shard
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import Summary
from collapsium.workers.families.gibbs.gibbs_hdp import GibbsHdpGlobalState
from collapsium.workers.families.gibbs.states import GibbsLocal
from tests.conftest import simulated_rows, write_corpus
from tests.fits import problem_of
from tests.strategies import documents_of

FAMILIES = {"gibbs-lda": {"topics": 5}, "gibbs-hdp": {"init_topics": 5}}


def first_global_state(family, shard, **options):
    fitted = recorded_family(family, {**FAMILIES[family], **options})
    return fitted.initialise(Summary(shard.documents, 30, shard.tokens), Stream(0))


def counts_by(shard, z, topics):
    documents, words = np.zeros((shard.documents, topics)), np.zeros((shard.words.size, topics))
    owner = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
    np.add.at(documents, (np.repeat(owner, shard.counts), z), 1)
    np.add.at(words, (np.repeat(shard.position, shard.counts), z), 1)
    return documents, words


@pytest.mark.parametrize("family", FAMILIES)
def test_initialisation_from_another_run__draws_topics_by_its_proportions_and_words(family):
    shard = Shard.of(3, documents_of(simulated_rows(3, documents=200, tokens=60)))
    noise = np.random.default_rng(1)
    theta, phi = noise.dirichlet(np.ones(3), shard.documents), noise.dirichlet(np.ones(shard.words.size), 3).T
    global_state = first_global_state(family, shard)
    warm = {"document_topic": theta, "word_topic": phi}
    fitted = recorded_family(family, FAMILIES[family])
    rows = fitted.initial_rows(shard.words.size, global_state)
    local, delta = fitted.start(shard, rows, global_state, Stream(1, "start", place=3), warm)
    documents, words = counts_by(shard, local.token_topic, delta["word_topic"].shape[1])
    np.testing.assert_array_equal(delta["word_topic"], words)
    assert not documents[:, 3:].any()  # the other run has three topics
    owner = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
    share = theta[owner] * phi[shard.position]
    share *= (shard.counts / share.sum(axis=1))[:, np.newaxis]
    expected = np.zeros((shard.words.size, 3))
    np.add.at(expected, shard.position, share)
    assert (np.abs(words[:, :3] - expected) < 4.5 * np.sqrt(expected + 1.0)).all()
    with pytest.raises(ValueError, match="topics to start from, found 999"):
        too_wide = {"document_topic": np.ones((shard.documents, 999)), "word_topic": np.ones((shard.words.size, 999))}
        fitted.start(shard, rows, global_state, Stream(1), too_wide)


CASES = [("gibbs-lda", {"topics": 4}), ("lda", {"topics": 4, "responsibilities": "dense"})]
CASES += [("gibbs-hdp", {"init_topics": start, "beta": 3.0, "gamma_shape": 90.0}) for start in (1, 6)]


@pytest.mark.parametrize(("family", "options"), CASES)
def test_local_sweeps_of_one_shard__continue_from_the_preceding_sweep(family, options, tmp_path, monkeypatch):
    """In local sweeps, the rows and totals equal a recount of the local state after the preceding sweep."""
    corpus = write_corpus(tmp_path / "one", simulated_rows(4), 30)
    problem = problem_of(corpus, family, options)
    fitted, seen = problem.family, []
    sweep = fitted.sweep

    def record_births(shard, local, rows, global_state, stream):
        arrays, word_topic = local.to_arrays(), rows.to_arrays()["word_topic"]
        columns = word_topic.shape[1]
        if isinstance(local, GibbsLocal):
            _, words = counts_by(shard, local.token_topic, columns)
            totals = global_state.topic[:columns]
            assert (global_state.topic_parameters[local.token_topic] > 0.0).all()
        else:
            words = np.zeros((shard.words.size, columns))
            np.add.at(words, shard.position, shard.counts[:, np.newaxis] * arrays["pair_topic"])
            totals = global_state.to_arrays()["topic_moments"][0]
        np.testing.assert_allclose(
            word_topic[shard.words] if len(words) != len(word_topic) else word_topic, words, atol=1e-3
        )
        np.testing.assert_allclose(totals, words.sum(axis=0), atol=1e-2)
        seen.append(stream.purpose)
        return sweep(shard, local, rows, global_state, stream)

    monkeypatch.setattr(fitted, "sweep", record_births)
    list(Fit(replace(problem, local_sweeps=4), Limits(iterations=3)))
    assert seen == ["sweep", "again 1", "again 2", "again 3"] * 3


def test_slots_of_shards_in_different_lanes__are_disjoint():
    state = {"vocabulary": 30.0, "beta": 1.0, "topic": np.zeros(32, dtype=np.int64), "alpha": 1.0, "start_topics": 1}
    global_state = GibbsHdpGlobalState(**state, gamma=1.0, lanes=5, pi=np.zeros(32), free=np.arange(32) % 3 == 1)
    taken = {}
    for shard in range(7):
        found = global_state.slots_of(shard)
        taken[shard] = {*found.free, *found.take_further(), *found.take_further()}
        assert found.free == sorted(found.free)
        assert all(global_state.free[slot] for slot in found.free)
        assert min(taken[shard] - set(found.free)) >= 32
    for first in range(7):
        for second in range(first):
            assert bool(taken[first] & taken[second]) == (first % 5 == second % 5)


def test_topics_born_in_several_shards__stay_separate_and_more_slots_are_made(tmp_path, monkeypatch):
    """Five shards without common words start with one topic, and together create more topics than there were slots."""
    rows = [{6 * (number // 12) + number % 6: 20} for number in range(60)]
    corpus = write_corpus(tmp_path / "five", rows, 30, shard_tokens=240)
    options = {"init_topics": 1, "beta": 0.5, "gamma_shape": 70.0, "alpha_shape": 40.0}
    problem = problem_of(corpus, "gibbs-hdp", options)
    assert len(problem.shards) == problem.global_state.lanes == 5
    fitted, born = problem.family, []
    sweep = fitted.sweep

    def record_births(*arguments):
        local, delta = sweep(*arguments)
        born.append(set(np.flatnonzero(delta["born"])))
        return local, delta

    monkeypatch.setattr(fitted, "sweep", record_births)
    wide = problem.global_state.pi.size
    for state, progress in Fit(problem, Limits(iterations=12)):
        after = state.global_state
        assert after.pi.size >= wide
        wide = after.pi.size
        free = np.flatnonzero(after.free)
        assert (np.bincount(free % 5, minlength=5) >= 2).all()  # two free slots per shard before its next sweep
        np.testing.assert_array_equal(after.free, after.topic == 0)
        np.testing.assert_array_equal(after.pi > 0.0, after.topic > 0)
        assert after.pi.sum() < 1.0
        assert progress.metrics["topics"] == np.count_nonzero(after.topic)
    rounds = [born[at : at + 5] for at in range(0, len(born), 5)]
    assert len(rounds) == 12
    assert all(
        sum(len(items) for items in born_in_round) == len(set().union(*born_in_round)) for born_in_round in rounds
    )
    assert any(all(born_in_round) for born_in_round in rounds)  # some sweep creates topics in all five shards
    assert wide > problem.global_state.pi.size
    assert after.topic.sum() == 1200
    # A block only has the columns of its last sweep; the finished model has all.
    block = fitted.finished_rows(state.blocks[0].value.rows, after)
    assert block.word_topic.shape == (30, wide)


def test_shards_without_tokens__can_be_swept():
    shard = Shard.of(0, documents_of([{}, {}]))
    for family in FAMILIES:
        model, global_state = recorded_family(family, FAMILIES[family]), first_global_state(family, shard)
        block = tasks.empty_block(model, 0, 30, global_state)
        swept = tasks.start(model, shard, None, [block], global_state, Stream(1, "start"))
        for number in range(3):
            block = tasks.fold(model, block, [swept.delta], global_state)
            global_state = model.update(global_state, block.sums, Stream(1, "u", number))
            swept = tasks.sweep(model, shard, swept, None, [block], global_state, Stream(1, "sweep", number))
        assert not swept.delta["word_topic"].any()
        theta = model.infer(swept.local, global_state)["document_topic"]
        assert np.isfinite(theta).all()
        assert isinstance(block.sums, Delta)
