"""Estimates of documents' likelihood, against naive versions and against enumeration of all topic assignments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.kernels import prediction as kernels
from collapsium.workers.kernels.prediction import DirichletTopics, TokenSequences
from tests.naive import likelihood as naive

pytestmark = [pytest.mark.kernels, pytest.mark.usefixtures("wrapping")]

STEPS = 5
STANDARD_ERRORS = 3.0


@st.composite
def models(draw):
    """Draw a few short documents, topics, a prior, and a stream."""
    generator = np.random.default_rng(draw(st.integers(0, 2**31)))
    topics, words = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    documents = [generator.integers(words, size=draw(st.integers(0, 5))) for _ in range(draw(st.integers(1, 3)))]
    word_topic = np.ascontiguousarray(generator.dirichlet(np.full(words, 0.5), size=topics).T + 1e-9)
    return (
        documents,
        DirichletTopics(word_topic, generator.uniform(0.05, 2.0, topics)),
        Stream(draw(st.integers(0, 99))).key(),
    )


def sequences(documents, numbers=1 << 20):
    """Return the documents as arguments of the kernels; each has its own stream of random numbers."""
    offsets = np.cumsum([0, *map(len, documents)]).astype(np.int64)
    position = np.concatenate([np.zeros(0, np.int32), *documents]).astype(np.int32)
    return TokenSequences(offsets, position, np.arange(len(documents), dtype=np.int64) * numbers)


@given(models())
def test_left_to_right__equals_the_naive_version(drawn):
    documents, model, key = drawn
    out = np.empty(len(documents))
    kernels.left_to_right(sequences(documents), model, 3, key, out)
    expected = [
        naive.left_to_right(words.tolist(), *model, 3, key, number << 20) for number, words in enumerate(documents)
    ]
    np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-10)


@given(models())
def test_annealed_importance__equals_the_naive_version(drawn):
    documents, model, key = drawn
    out = np.empty(len(documents))
    kernels.annealed_importance(sequences(documents), model, STEPS, 2, key, out)
    expected = [
        naive.annealed_importance(words.tolist(), *model, STEPS, 2, key, number << 20)
        for number, words in enumerate(documents)
    ]
    np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_estimates__are_within_three_standard_errors_of_the_enumerated_likelihood(seed):
    generator = np.random.default_rng(seed)
    word_topic = np.ascontiguousarray(generator.dirichlet(np.full(6, 0.4), size=3).T + 1e-6)
    model = DirichletTopics(word_topic, np.array([0.1, 0.4, 1.3]))
    words = generator.integers(6, size=7)
    truth = naive.exact(words.tolist(), *model)
    repeated = sequences([words] * 400, 1 << 16)
    out = np.empty(400)
    estimates = {}
    kernels.left_to_right(repeated, model, 1, Stream(seed, "left").key(), out)
    estimates["left_to_right"] = np.exp(out - truth)
    kernels.annealed_importance(repeated, model, 20, 1, Stream(seed, "anneal").key(), out)
    estimates["annealed_importance"] = np.exp(out - truth)
    for name, ratios in estimates.items():
        error = ratios.std() / np.sqrt(ratios.size)
        assert abs(ratios.mean() - 1.0) < STANDARD_ERRORS * error + 1e-12, name
