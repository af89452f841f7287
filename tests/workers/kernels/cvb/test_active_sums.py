import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.shard import Shard
from collapsium.workers.kernels.cvb import words as sums
from collapsium.workers.kernels.cvb.records import ActiveTopics, Priors, TopicCounts
from collapsium.workers.kernels.jit import DocumentPairs
from tests.naive import active_topics as naive
from tests.strategies import documents_of, pair_totals
from tests.workers.kernels.cvb.listed import Listed, listed_shards, priors_of, weighed_shards

pytestmark = pytest.mark.kernels


def equal_priors(prior):
    """Return the same prior for all documents."""
    return Priors(prior, np.ones(1), 1.0)


@given(listed_shards(max_count=9) | weighed_shards(max_count=9))
def test_active_tables__equal_the_naive_version(state):
    prior = state.noise.uniform(0.1, 2.0, state.topics)
    tables, grown = np.ones(state.topics), np.ones(state.topics + 1)
    given_ = state.shard.offsets, pair_totals(state.shard), *state.where
    sums.active_tables(state.pairs, state.active, state.sparse, equal_priors(prior), tables, grown)
    twin, twin_grown = naive.tables(*given_, prior)
    np.testing.assert_allclose(tables - 1, twin, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(grown[:-1] - 1 + grown[-1] - 1, twin_grown, rtol=1e-6, atol=1e-6)
    # Together with the active topics' counts, these are all tokens, except in documents with all topics active and some background.
    listed = np.bincount(state.topic, weights=state.counts[0], minlength=state.topics)
    every = (np.diff(state.lists) == state.topics) * state.counts[1]
    tokens = listed.sum() + (prior * twin_grown).sum() + every.sum()
    np.testing.assert_allclose(tokens, state.shard.weighted_lengths.sum(), rtol=1e-6)


@given(listed_shards(max_count=9))
def test_active_tables_with_priors_of_documents__equal_the_naive_version(state):
    prior, priors_of_rows = (
        state.noise.uniform(0.1, 2.0, state.topics),
        state.noise.uniform(0.1, 2.0, (2, state.topics)),
    )
    place = state.noise.integers(0, 2, state.shard.documents).astype(np.int32)
    tables, grown = np.zeros(state.topics), np.zeros(state.topics + 1)
    priors = equal_priors(prior)._replace(design_priors=priors_of_rows, design_place=place)
    sums.active_tables(state.pairs, state.active, state.sparse, priors, tables, grown)
    twin, twin_grown = naive.tables(
        state.shard.offsets, pair_totals(state.shard), *state.where, prior, document_priors=priors_of_rows[place]
    )
    np.testing.assert_allclose(tables, twin, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(grown[:-1] + grown[-1], twin_grown, rtol=1e-6, atol=1e-6)


@given(listed_shards(max_count=9) | weighed_shards(max_count=9), st.sampled_from([1.0, 30.0, 1e4]))
def test_active_tables_with_pseudo_counts__equal_tables_of_certain_tokens(state, pseudo):
    prior = state.noise.uniform(0.1, 2.0, state.topics)
    tables, grown = np.ones(state.topics), np.ones(state.topics + 1)
    sparse = state.sparse._replace(pseudo=np.full(state.topic.size, pseudo, np.float32))
    sums.active_tables(state.pairs, state.active, sparse, equal_priors(prior), tables, grown)
    given_ = state.shard.offsets, pair_totals(state.shard), *state.where
    np.testing.assert_allclose(tables - 1, naive.tables(*given_, prior, pseudo)[0], rtol=1e-4, atol=1e-5)


@given(listed_shards(max_count=9) | weighed_shards(max_count=9), st.sampled_from([1.0, -1.0]))
def test_active_moments__equal_the_naive_version(state, sign):
    variance, log_absent = np.ones(state.shape), np.ones(state.shape)
    sums.active_moments(state.pairs, state.active, state.sparse, sign, variance, log_absent)
    twin = naive.moments(state.shape, *state.pair_arrays, *state.where)
    np.testing.assert_allclose(variance, 1 + sign * twin[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(log_absent, 1 + sign * twin[1], rtol=1e-9, atol=1e-9)


@given(listed_shards(), st.sampled_from([0.0, 50.0]), st.sampled_from([0.0, 0.7]))
def test_active_probability__equals_the_naive_version(state, extra, beyond):
    rows, documents = state.rows(extra), state.shard.documents
    words = state.shape[0]
    # all words are held out, also of documents without training tokens
    offsets = np.arange(documents + 1, dtype=np.int64) * words
    position = np.tile(np.arange(words, dtype=np.int32), documents)
    given_ = offsets, position, rows["row_topic"], rows["b"], rows["a"], rows["totals"], np.array([beyond, 20.0])
    found = np.full(position.size, np.nan)
    pairs, topics = (
        DocumentPairs(offsets, position, np.ones_like(position)),
        TopicCounts(rows["row_topic"], rows["totals"]),
    )
    sums.active_probability(pairs, state.active, *state.counts, priors_of(rows), topics, given_[-1], found)
    twin = naive.probability(*given_, state.lists, state.topic, *state.counts)
    np.testing.assert_allclose(found, twin, rtol=1e-6)
    assert (found > 0).all()


def test_active_probability__sums_to_one_over_the_vocabulary():
    """This includes documents with all topics active, whose remaining tokens belong to no topic."""
    shard = Shard.of(0, documents_of([{0: 3, 1: 1}, {2: 2}, {}, {1: 5}]))
    topic, lists_ = np.array([0, 2, 1, 0, 1, 2], dtype=np.uint16), np.array([0, 2, 3, 3, 6], dtype=np.int64)
    share = np.array([20000, 5000, 1000, 31000, 7, 9000, 8000, 7000], dtype=np.uint16)
    state = Listed(shard, 3, lists_, topic, share, np.random.default_rng(0))
    rows = state.rows(5.0)
    row_topic = rows["row_topic"]
    totals = rows["b"].sum() + row_topic.sum(axis=0, dtype=np.float64)
    offsets, position = np.arange(5, dtype=np.int64) * 3, np.tile(np.arange(3, dtype=np.int32), 4)
    found, pairs = np.empty(12), DocumentPairs(offsets, position, np.ones_like(position))
    rest, where = np.array([0.3, rows["b"].sum()]), ActiveTopics(lists_, topic)
    sums.active_probability(pairs, where, *state.counts, priors_of(rows), TopicCounts(row_topic, totals), rest, found)
    np.testing.assert_allclose(found.reshape(4, 3).sum(axis=1), 1.0, rtol=1e-6)
