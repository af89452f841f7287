"""Diversity of topics, against counts by hand and its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline.analysis.metrics.catalogue import FREX_WEIGHT
from collapsium.pipeline.analysis.metrics.topic_words import (
    inverted_rbo,
    rank_biased_overlap,
    strict_diversity,
    topic_diversity,
)
from collapsium.pipeline.models.topics import frex

SAME = np.array([[0, 1, 2], [0, 1, 2]])
APART = np.array([[0, 1, 2], [3, 4, 5]])
ONE_SHARED = np.array([[0, 1, 2], [2, 3, 4]])


def test_diversity__counts_distinct_words_or_words_of_a_single_topic():
    assert [topic_diversity(words) for words in (SAME, APART, ONE_SHARED)] == pytest.approx([0.5, 1.0, 5 / 6])
    assert [strict_diversity(words) for words in (SAME, APART, ONE_SHARED)] == pytest.approx([0.0, 1.0, 4 / 6])


def test_inverted_rbo__is_0_for_equal_topics_and_1_for_disjoint_ones():
    assert inverted_rbo(SAME) == pytest.approx(0.0)
    assert inverted_rbo(APART) == pytest.approx(1.0)
    assert inverted_rbo(SAME[:1]) == 1.0


@given(st.permutations(range(8)), st.permutations(range(8)), st.integers(1, 6), st.floats(0.1, 0.99))
def test_rank_biased_overlap__matches_its_definition(first, second, size, persistence):
    first, second = np.array(first[:size]), np.array(second[:size])
    shared = [len(set(first[:depth]) & set(second[:depth])) for depth in range(1, size + 1)]
    expected = shared[-1] / size * persistence**size + (1 - persistence) / persistence * sum(
        count / depth * persistence**depth for depth, count in enumerate(shared, 1)
    )
    assert rank_biased_overlap(first, second, persistence) == pytest.approx(expected)


def test_words__may_be_numbers_or_texts():
    texts = [[f"w{word}" for word in row] for row in ONE_SHARED.tolist()]
    for measure in (topic_diversity, strict_diversity, inverted_rbo):
        assert measure(texts) == measure(ONE_SHARED)


@given(st.integers(1, 5), st.integers(2, 12), st.integers(0, 99))
def test_frex__is_the_harmonic_mean_of_the_ranks_of_exclusivity_and_frequency(topics, words, seed):
    phi = np.random.default_rng(seed).dirichlet(np.ones(words), topics)
    exclusive = phi / phi.sum(axis=0)
    scores = frex(phi, exclusive, FREX_WEIGHT)
    for topic in range(topics):
        for word in range(words):
            by_exclusivity = np.mean(exclusive[topic] <= exclusive[topic, word])
            by_frequency = np.mean(phi[topic] <= phi[topic, word])
            expected = 1 / (FREX_WEIGHT / by_exclusivity + (1 - FREX_WEIGHT) / by_frequency)
            assert scores[topic, word] == pytest.approx(expected)
