"""Kernels of gamma-distributed proportions with rates, against naive versions, on random labelled corpora."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.kernels.vb.mean_field import (
    DocumentLabels,
    ExpectedCounts,
    MeanFieldTopics,
    PassLimits,
    RateStatistics,
    expected_proportions,
    gamma_proportions,
    sweep_gamma_proportions,
)
from tests.naive import gamma_proportions as naive
from tests.strategies import shards


@st.composite
def labelled(draw, signed):
    """Draw a shard, initial counts, and labels of its documents with their values and log rates."""
    shard, first = draw(shards())
    topics, generator = first.shape[1], np.random.default_rng(draw(st.integers(0, 1000)))
    every = draw(st.integers(0, 5))
    has = generator.random((shard.documents, every)) < draw(st.sampled_from([0.0, 0.4, 1.0]))
    offsets = np.concatenate([[0], np.cumsum(has.sum(axis=1))]).astype(np.int64)
    label = np.nonzero(has)[1].astype(np.int32)
    value = np.round(generator.normal(size=label.size), 1) if signed else np.ones(label.size)
    log = generator.normal(scale=draw(st.sampled_from([0.0, 1.0, 8.0])), size=(every, topics))
    before = np.zeros((shard.documents, topics), dtype=np.float32)
    for document, tokens in enumerate(shard.lengths):
        before[document] = tokens * generator.dirichlet(np.ones(topics))
    return shard, before, DocumentLabels(offsets, label, value, log), generator


def assert_equals_naive(drawn, signed):
    shard, before, labels, generator = drawn
    size, every, kinds = before.shape[1], labels.log_rate.shape[0], 8 if signed else 4
    word_expected = np.exp(generator.normal(size=(shard.words.size, size)))
    prior, topic_log = generator.gamma(0.5, size=size) + 1e-6, generator.normal(size=size)
    expected = ExpectedCounts(np.empty(before.shape, np.float32), np.empty(word_expected.shape))
    curvature = np.zeros((every, 2 * every, size))
    statistics = RateStatistics(np.zeros((2, size)), np.zeros((every, kinds, size)), curvature)
    bound = np.zeros(1)
    inputs = document_pairs(shard), MeanFieldTopics(word_expected, prior, topic_log), labels, before, PassLimits(3, 0.0)
    sweep_gamma_proportions(*inputs, expected, statistics, bound)
    twin = naive.sweep(*inputs, kinds)
    filled = {**expected._asdict(), **statistics._asdict(), "bound": bound}
    for name, values in filled.items():
        close = {"rtol": 1e-6, "atol": 1e-6} if name == "document_topic" else {"rtol": 1e-8, "atol": 1e-8}
        np.testing.assert_allclose(np.squeeze(values), np.squeeze(twin[name]), **close, err_msg=name)
    theta, counts = np.empty(before.shape), before.astype(np.float64)
    gamma_proportions(labels, prior, counts, theta)
    np.testing.assert_allclose(theta, naive.proportions(labels, prior, counts), rtol=1e-9, atol=1e-14)
    prior = prior + 0.1
    expected_proportions(labels, prior, theta)
    np.testing.assert_allclose(theta, naive.expected(labels, prior), rtol=1e-8, atol=1e-10)


@pytest.mark.kernels
@given(labelled(signed=False))
def test_sweep__equals_the_naive_version_with_labels(drawn):
    assert_equals_naive(drawn, False)


@pytest.mark.kernels
@given(labelled(signed=True))
def test_sweep__equals_the_naive_version_with_covariates(drawn):
    assert_equals_naive(drawn, True)
