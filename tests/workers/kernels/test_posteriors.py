"""Sampled proportions and weighted sums, against naive versions and exact posteriors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.kernels.prediction import (
    SampledProportions,
    TokenSequences,
    sample_proportions,
    weighted_squares,
    weighted_sums,
)
from tests.naive import posteriors as naive


def sampled(documents, word_topic, prior, skipped, counted, seed):
    ends = np.concatenate([[0], np.cumsum([len(words) for words in documents])]).astype(np.int64)
    words = np.concatenate([np.array(words, dtype=np.int32) for words in documents]).astype(np.int32)
    first = ends[:-1] * (skipped + counted + 1)
    result = SampledProportions(*(np.empty(prior.shape) for _ in range(3)))
    key = Stream(seed, "posteriors").key()
    sample_proportions(TokenSequences(ends, words, first), word_topic, prior, skipped, counted, key, result)
    return result, key, first


@given(seed=st.integers(0, 1000), topics=st.integers(1, 4), lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4))
def test_sampled_proportions__equal_the_naive_version(seed, topics, lengths):
    generator = np.random.default_rng(seed)
    word_topic, prior = (
        generator.dirichlet(np.ones(5), topics).T.copy(),
        generator.gamma(1.0, size=(len(lengths), topics)),
    )
    documents = [generator.integers(0, 5, length).tolist() for length in lengths]
    result, key, first = sampled(documents, word_topic, prior + 0.01, 2, 3, seed)
    for row, words in enumerate(documents):
        expected = naive.sample_proportions(words, word_topic, prior[row] + 0.01, 2, 3, key, int(first[row]))
        for kernel, twin in zip(result, expected, strict=True):
            np.testing.assert_allclose(kernel[row], twin, rtol=1e-9, atol=1e-12)


def test_sampled_proportions__converge_to_the_exact_posterior():
    """With a single token, theta is a mixture of Dirichlets over its topics."""
    word_topic, prior = np.array([[0.7, 0.1], [0.3, 0.9]]), np.array([[0.5, 1.5]])
    result, _, _ = sampled([[0]], word_topic, prior, 10, 200_000, 3)
    weights = prior[0] * word_topic[0]
    weights /= weights.sum()
    mean = sum(weight * (prior[0] + np.eye(2)[k]) / 3.0 for k, weight in enumerate(weights))
    square = sum(
        weight * (prior[0] + np.eye(2)[k]) * (prior[0] + np.eye(2)[k] + 1) / (3.0 * 4.0)
        for k, weight in enumerate(weights)
    )
    np.testing.assert_allclose(result.mean[0], mean, atol=2e-3)
    np.testing.assert_allclose(result.variance[0], square - mean**2, atol=2e-3)


def test_documents_without_tokens__have_the_priors_moments():
    result, _, _ = sampled([[]], np.ones((1, 2)), np.array([[1.0, 3.0]]), 1, 2, 0)
    np.testing.assert_allclose(result.mean[0], [0.25, 0.75])
    np.testing.assert_allclose(result.variance[0], [0.25 * 0.75 / 5, 0.25 * 0.75 / 5])


@pytest.mark.parametrize("documents", [0, 1, 9])
def test_sums__equal_numpy(documents):
    generator = np.random.default_rng(documents)
    rows, values = generator.normal(size=(documents, 3)), generator.random((documents, 2))
    squares, sums = np.ones((6, 2)), np.ones((3, 2))
    weighted_squares(rows, values, squares)
    weighted_sums(rows, values, sums)
    pairs = np.array([rows[:, p] * rows[:, q] for p in range(3) for q in range(p, 3)])
    np.testing.assert_allclose(squares, 1 + pairs @ values, rtol=1e-12)
    np.testing.assert_allclose(sums, 1 + rows.T @ values, rtol=1e-12)
