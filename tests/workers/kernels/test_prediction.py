import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.families.dirichlet import SAME_PRIOR
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.kernels.jit import DocumentPairs
from collapsium.workers.kernels.prediction import MOVED_TOKENS, fold_in, pair_probability
from tests.naive import predict as naive
from tests.strategies import pair_totals, shards, with_token_weights

pytestmark = pytest.mark.kernels


@given(shards(some_token=False), st.integers(0, 1000))
def test_pair_probability__equals_the_naive_version(drawn, seed):
    shard, q = drawn
    generator = np.random.default_rng(seed)
    theta = generator.dirichlet(np.ones(q.shape[1] + 1), size=shard.documents)
    theta, rest = np.ascontiguousarray(theta[:, 1:]), np.ascontiguousarray(theta[:, 0])
    phi, tau = generator.random((shard.words.size, q.shape[1])), generator.random(shard.words.size)
    found = np.empty(shard.pairs)
    pair_probability(shard.offsets, shard.position, theta, phi, rest, tau, found)
    np.testing.assert_allclose(found, naive.pair_probability(shard.offsets, shard.position, theta, phi, rest, tau))


@pytest.mark.parametrize("weights", [False, True])
@given(drawn=shards(some_token=False), seed=st.integers(0, 1000), sweeps=st.sampled_from([1, 3, 100]))
def test_fold_in__equals_the_naive_version_and_counts_every_token(drawn, seed, sweeps, weights):
    shard, q = drawn
    shard = with_token_weights(shard, seed) if weights else shard
    generator = np.random.default_rng(seed)
    phi = (
        generator.dirichlet(np.ones(shard.words.size), size=q.shape[1]).T.copy()
        if shard.words.size
        else np.zeros((0, q.shape[1]))
    )
    prior = generator.uniform(0.01, 1.0, q.shape[1])
    found = np.empty((shard.documents, q.shape[1]))
    fold_in(document_pairs(shard), phi, np.atleast_2d(prior), SAME_PRIOR, sweeps, found)
    twin = naive.fold_in(shard.offsets, shard.position, pair_totals(shard), phi, prior, sweeps, shard.weights)
    np.testing.assert_allclose(found, twin, rtol=1e-6, atol=2e-4)
    np.testing.assert_allclose(found.sum(axis=1), shard.weighted_lengths, rtol=1e-9, atol=1e-9)


def topics_of(generator, words, topics):
    """Draw word probabilities, and Dirichlet parameters of documents."""
    phi = generator.dirichlet(np.full(words, 0.05), size=topics).T.copy()
    return phi, generator.uniform(0.01, 0.2, topics)


def documents_of(generator, words, lengths):
    """Draw documents of distinct words, whose counts increase with the length."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    position = np.concatenate([generator.choice(words, size, replace=False) for size in lengths]).astype(np.int32)
    return DocumentPairs(offsets, position, generator.integers(1, 40, position.size).astype(np.int32))


@given(st.integers(0, 2**31), st.integers(1, 21))
def test_fold_in__ends_where_a_plain_sweep_moves_no_count(seed, topics):
    generator = np.random.default_rng(seed)
    phi, prior = topics_of(generator, 40, topics)
    pairs, found = documents_of(generator, 40, [3, 30]), np.empty((2, topics))
    fold_in(pairs, phi, np.atleast_2d(prior), SAME_PRIOR, 2000, found)
    again = np.empty_like(found)
    fold_in(pairs, phi, np.atleast_2d(prior), SAME_PRIOR, 1000, again)
    np.testing.assert_array_equal(found, again)
    for document, document_counts in enumerate(found):
        first, last = pairs.offsets[document : document + 2]
        counts, rows = pairs.counts[first:last, np.newaxis], np.maximum(phi[pairs.position[first:last]], 1e-30)
        q, expected = rows * (prior + document_counts), document_counts
        # Plain sweeps from these counts, which end at a fixed point near them.
        for _ in range(200):
            q = rows * (prior + np.maximum(expected - q / q.sum(axis=1, keepdims=True), 0.0))
            expected = (counts * q / q.sum(axis=1, keepdims=True)).sum(axis=0)
        np.testing.assert_allclose(document_counts, expected, atol=50 * MOVED_TOKENS, rtol=1e-3)


def test_fold_in__gives_the_same_bits_at_all_addresses_of_arrays():
    generator = np.random.default_rng(3)
    phi, prior = topics_of(generator, 300, 21)
    pairs, first = documents_of(generator, 300, [5, 40, 0]), None
    for shift in range(8):
        shifted = np.empty(phi.size + shift)[shift:].reshape(phi.shape)
        shifted[:] = phi
        found = np.empty(3 * 21 + shift)[shift:].reshape(3, 21)
        fold_in(pairs, shifted, np.atleast_2d(prior), SAME_PRIOR, 100, found)
        first = found.copy() if first is None else first
        np.testing.assert_array_equal(found, first)


def test_words_that_no_topic_generates__get_the_topics_of_their_document():
    phi = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    pairs = DocumentPairs(np.array([0, 2]), np.array([0, 1], dtype=np.int32), np.array([50, 1], dtype=np.int32))
    found = np.empty((1, 3))
    fold_in(pairs, phi, np.atleast_2d(np.full(3, 0.1)), SAME_PRIOR, 100, found)
    np.testing.assert_allclose(found, [[50 + 50.1 / 50.3, 0.1 / 50.3, 0.1 / 50.3]], rtol=1e-4)


@given(
    st.integers(0, 2**31),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([1e-8, 1e-12, 1e-20, 1e-40, 1e-300]),
    st.integers(1, 21),
)
def test_tiny_priors__leave_proportions_that_are_numbers_of_zero_or_more(seed, others, size, topics):
    generator = np.random.default_rng(seed)
    phi, prior = topics_of(generator, 40, topics)
    prior *= size * np.where(np.arange(topics) < topics // 2, others, 1.0)
    pairs = documents_of(generator, 40, [1, 3, 30, 0])
    pairs.counts[0] = 1
    found = np.empty((4, topics))
    fold_in(pairs, phi, np.atleast_2d(prior), SAME_PRIOR, 100, found)
    assert (found + prior >= 0.0).all()
    tokens = np.add.reduceat(pairs.counts, pairs.offsets[:3])
    np.testing.assert_allclose(found.sum(axis=1), [*tokens, 0], rtol=1e-6)


@given(shards(some_token=False), st.integers(0, 1000))
def test_fold_in_with_priors_of_documents__equals_single_documents(drawn, seed):
    shard, q = drawn
    generator = np.random.default_rng(seed)
    phi = generator.random((shard.words.size, q.shape[1])) + 0.01
    priors = generator.uniform(0.01, 1.0, (3, q.shape[1]))
    place = generator.integers(0, 3, shard.documents).astype(np.int32)
    found = np.empty((shard.documents, q.shape[1]))
    fold_in(document_pairs(shard), phi, priors, place, 100, found)
    for row, prior in enumerate(priors):
        alone = np.empty_like(found)
        fold_in(document_pairs(shard), phi, prior[np.newaxis], SAME_PRIOR, 100, alone)
        np.testing.assert_allclose(found[place == row], alone[place == row], rtol=1e-6, atol=2e-3)
