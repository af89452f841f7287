import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.kernels.vb.mean_field import (
    MIN_LOG_WEIGHT,
    ExpectedCounts,
    MeanFieldTopics,
    PassLimits,
    count_products,
    fold_words,
    sweep_mean_field,
)
from tests.naive import mean_field as naive
from tests.strategies import pair_totals, shards, with_token_weights

pytestmark = pytest.mark.kernels


def inputs_for(shard, topics, seed):
    """Return word weights, a prior, psi of the topics' totals, and initial counts of documents."""
    generator = np.random.default_rng(seed)
    expected = np.exp(-generator.exponential(3.0, size=(shard.words.size, topics)))
    prior, topic_log = generator.gamma(0.5, size=topics) + 1e-2, generator.normal(3.0, 1.0, size=topics)
    before = (shard.lengths[:, np.newaxis] * generator.dirichlet(np.ones(topics), size=shard.documents)).astype("f4")
    return expected, prior, topic_log, before


@given(shards(some_token=False), st.integers(0, 1000), st.integers(1, 4), st.sampled_from([0.0, 0.3]), st.booleans())
def test_sweep__equals_the_naive_version_and_counts_every_token(drawn, seed, passes, tolerance, wanted):
    shard, q = drawn
    # Half of the examples have weighted words.
    shard = with_token_weights(shard, seed) if seed % 2 else shard
    topics = q.shape[1]
    expected, prior, topic_log, before = inputs_for(shard, topics, seed)
    by_document, by_word = np.full(before.shape, np.nan, dtype="f4"), np.full(expected.shape, np.nan)
    log_theta, bound = np.ones(topics if wanted else 0), np.ones(1)
    topics_, limits = MeanFieldTopics(expected, prior, topic_log), PassLimits(passes, tolerance)
    inputs = document_pairs(shard), topics_, before, limits
    sweep_mean_field(*inputs, ExpectedCounts(by_document, by_word), log_theta, bound)
    totals = shard.offsets, shard.position, pair_totals(shard)
    twin_document, twin_word, twin_theta, twin_bound = naive.sweep(totals, *inputs[1:])
    np.testing.assert_allclose(by_document, twin_document, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(by_word, twin_word, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(bound[0] - 1.0, twin_bound, rtol=1e-9, atol=1e-9)
    if wanted:
        np.testing.assert_allclose(log_theta - 1.0, twin_theta, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(by_document.sum(axis=1), shard.weighted_lengths, rtol=1e-6, atol=1e-9)
    words = np.bincount(shard.position, pair_totals(shard), minlength=shard.words.size)
    np.testing.assert_allclose(by_word.sum(axis=1), words, rtol=1e-12)


@given(shards(some_token=False), st.integers(0, 1000), st.floats(1e-9, 1e-2))
def test_sweep__is_finite_and_counts_every_token_with_vanishing_weights(drawn, seed, small):
    """Dirichlet parameters may be so small that exp(psi) of them underflows to zero."""
    shard, q = drawn
    topics = q.shape[1]
    generator = np.random.default_rng(seed)
    counts = np.where(generator.random((shard.words.size, topics)) < 0.5, 0.0, 5.0)
    expected, sums = np.empty(counts.shape), np.zeros(2)
    fold_words(counts, np.ones(counts.shape), np.full(len(counts), small), expected, sums)
    assert (expected >= np.exp(MIN_LOG_WEIGHT) * (1 - 1e-9)).all()
    assert (expected.max(axis=1, initial=0.0) == 1.0).all() or not expected.size
    before = np.zeros((shard.documents, topics), dtype="f4")
    by_document, by_word, bound = np.empty(before.shape, dtype="f4"), np.empty(expected.shape), np.zeros(1)
    topics_ = MeanFieldTopics(expected, np.full(topics, small), np.zeros(topics))
    counts_ = ExpectedCounts(by_document, by_word)
    sweep_mean_field(document_pairs(shard), topics_, before, PassLimits(5, 0.0), counts_, np.zeros(0), bound)
    assert np.isfinite([bound[0], *sums]).all()
    np.testing.assert_allclose(by_document.sum(axis=1), shard.lengths, rtol=1e-6)
    np.testing.assert_allclose(by_word.sum(), shard.tokens, rtol=1e-12)


@given(st.integers(0, 6), st.integers(1, 5), st.integers(0, 1000))
def test_fold__equals_the_naive_version(words, topics, seed):
    generator = np.random.default_rng(seed)
    counts = generator.gamma(0.3, 10.0, size=(words, topics)) * (generator.random((words, topics)) < 0.7)
    expected, prior = np.exp(-generator.exponential(3.0, size=counts.shape)), generator.uniform(0.05, 2.0, words)
    found, sums = np.empty(counts.shape), np.array([1.0, 2.0])
    fold_words(counts, expected, prior, found, sums)
    new, bound, logs = naive.fold(counts, expected, prior) if words else (np.zeros(counts.shape), 0.0, 0.0)
    np.testing.assert_allclose(found, new, rtol=1e-10, atol=1e-150)
    np.testing.assert_allclose(sums - [1.0, 2.0], [bound, logs], rtol=1e-9, atol=1e-9)


@given(shards(some_token=False), st.integers(0, 1000))
def test_products__equal_the_naive_version_and_count_every_token(drawn, seed):
    shard, q = drawn
    shard = with_token_weights(shard, seed) if seed % 2 else shard
    topics, generator = q.shape[1], np.random.default_rng(seed)
    theta = generator.dirichlet(np.full(topics, 0.3), size=shard.documents) + 1e-100
    phi = generator.random((shard.words.size, topics)) + 1e-100
    by_document, by_word = np.empty(theta.shape, dtype="f4"), np.empty(phi.shape)
    count_products(document_pairs(shard), theta, phi, ExpectedCounts(by_document, by_word))
    twin = naive.products((shard.offsets, shard.position, pair_totals(shard)), theta, phi)
    np.testing.assert_allclose(by_document, twin[0], rtol=1e-6, atol=1e-30)
    np.testing.assert_allclose(by_word, twin[1], rtol=1e-9, atol=1e-30)
    np.testing.assert_allclose(by_document.sum(axis=1), shard.weighted_lengths, rtol=1e-6)
