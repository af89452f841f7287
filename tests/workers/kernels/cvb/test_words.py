import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.families.document_entries import pair_weights
from collapsium.workers.kernels.cvb import words
from collapsium.workers.kernels.cvb.records import WordMoments
from collapsium.workers.kernels.jit import UNWEIGHTED
from tests.naive import assign as naive_assign
from tests.naive import moments as exact
from tests.naive import words as naive
from tests.strategies import pair_totals, shards, with_token_weights

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize("weights", [False, True])
@given(drawn=shards(max_count=9), seed=st.integers(0, 1000))
def test_log_absent__equals_the_naive_version(drawn, seed, weights):
    shard, q = drawn
    shard = with_token_weights(shard, seed) if weights else shard
    found = np.empty((shard.words.size, q.shape[1]))
    words.add_log_absent(shard.position, shard.counts, pair_weights(shard), q, found)
    twin = naive.log_absent(shard.words.size, shard.position, pair_totals(shard), q)
    np.testing.assert_allclose(np.exp(found), np.exp(twin), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found, twin, rtol=1e-3, atol=1e-6)


def test_log_absent__is_finite_for_a_responsibility_of_one():
    q = np.ones((1, 1), dtype=np.float32)
    found = np.empty((1, 1))
    words.add_log_absent(np.zeros(1, dtype=np.int32), np.array([100000], dtype=np.int32), UNWEIGHTED, q, found)
    assert np.isfinite(found).all()
    assert found[0, 0] < -600


@pytest.mark.parametrize("weights", [False, True])
@given(drawn=shards(), seed=st.integers(0, 1000))
def test_counts__equal_the_naive_version(drawn, seed, weights):
    shard, q = drawn
    shard = with_token_weights(shard, seed) if weights else shard
    shape = (shard.words.size, q.shape[1])
    mean, variance, none = np.ones(shape), np.zeros(shape), np.zeros((0, 0))
    words.add_counts(shard.position, shard.counts, pair_weights(shard), q, mean, variance)
    np.testing.assert_allclose(
        mean - 1, naive_assign.word_topic(shape[0], shard.position, pair_totals(shard), q), rtol=1e-7, atol=1e-12
    )
    np.testing.assert_allclose(
        variance, naive_assign.word_variance(shape[0], shard.position, pair_totals(shard), q), rtol=1e-7, atol=1e-12
    )
    again = np.ones(shape)
    words.add_counts(shard.position, shard.counts, pair_weights(shard), q, again, none)
    np.testing.assert_array_equal(again, mean)


@given(shards(), st.floats(0.01, 5.0))
def test_word_tables__equal_the_naive_version(drawn, prior):
    shard, q = drawn
    rows = shard.words.size
    mean = naive_assign.word_topic(rows, shard.position, shard.counts, q)
    variance = naive_assign.word_variance(rows, shard.position, shard.counts, q)
    absent = naive.log_absent(rows, shard.position, shard.counts, q)
    tables, bound = np.empty(rows), np.zeros(1)
    words.word_tables(WordMoments(mean, variance, absent), np.full(rows, prior), tables, bound)
    np.testing.assert_allclose(tables, exact.tables(prior, mean, variance, absent).sum(axis=1), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(bound[0], exact.log_rising(prior, mean, variance, absent).sum(), rtol=1e-4, atol=1e-6)


@given(st.lists(st.floats(0, 50), min_size=1, max_size=5), st.floats(0.5, 200.0))
def test_topic_totals__equal_the_naive_version(totals, prior):
    mean = np.array(totals)
    variance, absent = mean * 0.4, -1.3 * mean
    log_xi, rising = np.empty_like(mean), np.empty_like(mean)
    words.topic_totals(mean, variance, absent, np.array([prior]), log_xi, rising)
    np.testing.assert_allclose(log_xi, exact.log_xi(prior, mean, variance, absent), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(rising, exact.log_rising(prior, mean, variance, absent), rtol=1e-7, atol=1e-9)


@given(st.lists(st.integers(0, 2000), max_size=8), st.floats(0.01, 300.0))
def test_log_eta__equals_the_naive_version(lengths, prior):
    sums, found = np.zeros(2), np.zeros(2)
    words.log_eta(np.array(lengths, dtype=np.float64), np.array([prior]), sums)
    np.testing.assert_allclose(sums, naive.log_eta(lengths, prior), rtol=1e-8, atol=1e-8)
    priors = prior * np.arange(1.0, len(lengths) + 1)
    words.log_eta(np.array(lengths, dtype=np.float64), priors, found)
    expected = [naive.log_eta([n], a) for n, a in zip(lengths, priors, strict=True)]
    np.testing.assert_allclose(found, np.sum(expected, axis=0) if expected else 0.0, rtol=1e-8, atol=1e-8)
