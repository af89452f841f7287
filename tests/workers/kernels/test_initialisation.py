"""Kernels of initialisations, against plain NumPy."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.initialisation import (
    CLUSTERS,
    QUICK_CLUSTERS,
    VECTORS,
    centred,
    cluster_proportions,
    first_word_directions,
    rotated,
    scaled,
    unit_rows,
)
from collapsium.workers.initialisation import word_vectors as singular_vectors
from collapsium.workers.kernels import initialisation
from collapsium.workers.kernels.jit import DocumentPairs
from tests.naive import initialisation as naive

pytestmark = [pytest.mark.kernels, pytest.mark.usefixtures("wrapping")]
WORDS = 7
SEEDS = st.integers(0, 1 << 20)


def draw_documents(seed):
    """Draw random documents over rows, some of whose words have no number."""
    generator = np.random.default_rng(seed)
    rows, documents = WORDS + 2, int(generator.integers(1, 9))
    chosen = generator.random((documents, rows)) < 0.5
    offsets = np.concatenate([[0], np.cumsum(chosen.sum(axis=1))]).astype(np.int64)
    position = np.nonzero(chosen)[1].astype(np.int32)
    counts = generator.integers(1, 6, size=position.size).astype(np.int32)
    number = np.concatenate([np.arange(WORDS), [-1, -1]])[generator.permutation(rows)].astype(np.int64)
    return generator, DocumentPairs(offsets, position, counts), number


@given(SEEDS, st.integers(0, WORDS - 1), st.integers(1, WORDS))
def test_cooccurrences__are_products_of_counts(seed, low, size):
    _, pairs, number = draw_documents(seed)
    high = min(low + size, WORDS)
    together = np.ones((high - low, WORDS))
    initialisation.cooccurrences(pairs, number, low, together)
    np.testing.assert_allclose(together - 1.0, naive.cooccurrences(*pairs[:3], number, WORDS)[low:high], atol=1e-12)


@given(SEEDS)
def test_information__is_positive_mutual_information(seed):
    generator = np.random.default_rng(seed)
    together = generator.random((4, WORDS)) * (generator.random((4, WORDS)) < 0.7)
    sums, context = together.sum(axis=1), generator.dirichlet(np.ones(WORDS))
    result = np.empty(together.shape, dtype=np.float32)
    initialisation.positive_information(together, sums, context, result)
    np.testing.assert_allclose(result, naive.positive_information(together, sums, context), rtol=1e-5, atol=1e-6)


@given(SEEDS, st.integers(1, 6))
def test_products_and_directions__match_linear_algebra(seed, columns):
    generator = np.random.default_rng(seed)
    matrix = np.maximum(generator.normal(size=(5, WORDS)), 0.0).astype(np.float32)
    right, left = generator.normal(size=(WORDS, columns)), generator.normal(size=(5, columns))
    product, transposed = np.empty((5, columns)), np.empty((WORDS, columns))
    initialisation.multiply(matrix, right, product)
    initialisation.multiply_transposed(matrix, left, transposed)
    np.testing.assert_allclose(product, matrix @ right, atol=1e-6)
    np.testing.assert_allclose(transposed, matrix.T @ left, atol=1e-6)
    rows = np.ascontiguousarray(right.T)
    initialisation.orthonormalise(rows)
    np.testing.assert_allclose(rows @ rows.T, np.eye(columns), atol=1e-9)
    sums, vectors = np.empty((columns, columns)), np.empty((columns, columns))
    initialisation.products(np.ascontiguousarray(right.T), sums)
    expected = right.T @ right
    np.testing.assert_allclose(sums, expected, atol=1e-9)
    initialisation.eigenvectors(sums, vectors, VECTORS.jacobi_sweeps)
    np.testing.assert_allclose(np.sort(np.diag(sums)), np.linalg.eigvalsh(expected), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(vectors.T @ np.diag(np.diag(sums)) @ vectors, expected, atol=1e-8)


def test_dependent_rows__become_zero():
    rows = np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 3.0]])
    initialisation.orthonormalise(rows)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [1.0, 0.0, 0.0, 1.0], atol=1e-12)


@given(SEEDS)
def test_word_vectors__match_the_singular_value_decomposition(seed):
    matrix = np.random.default_rng(seed).random((WORDS, WORDS))
    left, sizes, _ = np.linalg.svd(matrix)
    expected = left * np.sqrt(sizes)
    directions = np.linalg.qr(np.random.default_rng(seed + 1).normal(size=(WORDS, WORDS)))[0]
    vectors = singular_vectors(directions, matrix.T @ directions, VECTORS.dimensions)
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-5)


@given(SEEDS)
def test_vectors_of_documents__are_weighted_sums(seed):
    generator, pairs, number = draw_documents(seed)
    weight, vectors = generator.random(number.size), generator.normal(size=(number.size, 5)).astype(np.float32)
    result = np.empty((pairs.offsets.size - 1, 5), dtype=np.float32)
    initialisation.document_vectors(pairs, weight, vectors, result)
    np.testing.assert_allclose(result, naive.document_vectors(*pairs[:3], weight, vectors), atol=1e-5)


@given(SEEDS, st.integers(1, 12), st.booleans(), st.integers(1, 3))
def test_seeds_and_labels__match_k_means(seed, size, weighted, candidates):
    generator = np.random.default_rng(seed)
    weights = generator.random(9) + 0.1 if weighted else np.zeros(0)
    vectors = generator.normal(size=(9, 4))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    draws, seeds = generator.random((size, candidates)), np.empty(size, dtype=np.int64)
    initialisation.choose_seeds(vectors, weights, draws, seeds)
    # Once every vector is a seed, no distance remains.
    some = min(size, 9)
    assert seeds[:some].tolist() == naive.choose_seeds(vectors, weights, draws[:some])
    vectors[3] = 0.0
    centroids, labels = vectors[[0, 1, 5]], np.empty(9, dtype=np.int64)
    sums, sizes = np.zeros((3, 4)), np.zeros(3)
    cosines = initialisation.nearest(vectors, weights, centroids, labels, sums, sizes)
    expected, all_sums, all_sizes, all_cosines = naive.nearest(vectors, weights, centroids)
    assert labels.tolist() == expected.tolist()
    assert labels[3] == -1
    np.testing.assert_allclose(cosines, all_cosines, atol=1e-5)
    np.testing.assert_allclose(sums, all_sums, atol=1e-5)
    np.testing.assert_allclose(sizes, all_sizes)
    assert weighted or sizes.tolist() == [labels.tolist().count(k) for k in range(3)]
    shares = np.empty((9, 3), dtype=np.float32)
    initialisation.cluster_shares(vectors, centroids, 30.0, shares)
    np.testing.assert_allclose(shares, naive.cluster_shares(vectors, centroids, 30.0), rtol=1e-4, atol=1e-9)


@given(SEEDS, st.sampled_from([0.0, 0.5]), st.sampled_from([0.3, 1.0]))
def test_a_mixture__matches_plain_sums(seed, root_share, power):
    generator, pairs, number = draw_documents(seed)
    topics, root = generator.dirichlet(np.ones(WORDS), size=3).T.astype(np.float32), generator.dirichlet(np.ones(WORDS))
    model = initialisation.Mixture(np.ascontiguousarray(topics), root, generator.normal(size=3), root_share, power)
    shares = np.empty((pairs.offsets.size - 1, 3), dtype=np.float32)
    initialisation.document_shares(pairs, number, model, shares)
    counted = naive.table(*pairs[:3], number, WORDS)
    np.testing.assert_allclose(shares, naive.document_shares(counted, *model), atol=1e-5)
    leaf, rest = np.zeros((WORDS, 3)), np.zeros(WORDS)
    initialisation.count_words(pairs, number, model, shares, leaf, rest)
    expected = naive.count_words(counted, shares, model.leaf, root, root_share)
    np.testing.assert_allclose(leaf, expected[0], atol=1e-4)
    np.testing.assert_allclose(rest, expected[1], atol=1e-4)
    assert leaf.sum() + rest.sum() == pytest.approx(counted.sum(), rel=1e-5)


@given(SEEDS, st.integers(1, 6))
def test_documents__start_in_at_most_the_given_number_of_clusters(seed, max_shares):
    """With fewer clusters, each document is in its nearest ones, in the same relative proportions."""
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(9, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[3] = 0.0
    settings = replace(CLUSTERS, max_shares=max_shares, sharpness=2.0, block=4)
    limited = cluster_proportions(vectors, vectors[[0, 1, 2, 5, 7, 8]], settings)
    shares = naive.cluster_shares(vectors, vectors[[0, 1, 2, 5, 7, 8]], 2.0)
    shares[shares < settings.min_share * shares.max(axis=1, keepdims=True)] = 0.0
    assert np.diff(limited.offsets).tolist() == np.minimum(np.count_nonzero(shares, axis=1), max_shares).tolist()
    for document in range(9):
        entries = slice(limited.offsets[document], limited.offsets[document + 1])
        chosen = limited.topics[entries]
        assert shares[document, chosen].sum() == pytest.approx(np.sort(shares[document])[6 - chosen.size :].sum())
        expected = shares[document, chosen] / max(shares[document, chosen].sum(), 1e-9)
        np.testing.assert_allclose(limited.shares[entries], expected, rtol=1e-4)


@given(SEEDS, st.integers(1, 4))
def test_products_of_correspondence__match_the_scaled_table(seed, columns):
    generator, pairs, number = draw_documents(seed)
    directions = generator.normal(size=(WORDS, columns)).astype(np.float32)
    products = np.ones((WORDS, columns), dtype=np.float32)
    initialisation.add_products(pairs, number, directions, products)
    expected = naive.add_products(*pairs[:3], number, directions)
    np.testing.assert_allclose(products - 1.0, expected, rtol=1e-4, atol=1e-4)


@given(SEEDS, st.integers(1, 3), st.integers(0, 1))
def test_mixtures_of_documents__are_steps_of_em(seed, rounds, first):
    generator, pairs, number = draw_documents(seed)
    shares = generator.random((WORDS, 3)) * (generator.random((WORDS, 3)) < 0.6)
    words = initialisation.WordMixtures(
        np.concatenate([[0], np.cumsum(np.count_nonzero(shares, axis=1))]).astype(np.int64),
        np.nonzero(shares)[1].astype(np.int32),
        shares[shares > 0.0].astype(np.float32),
    )
    mixed = np.empty((max(pairs.offsets.size - 1 - first, 0), 3), dtype=np.float32)
    initialisation.mix_documents(pairs, number, words, rounds, first, mixed)
    expected = naive.mix_documents(naive.table(*pairs[:3], number, WORDS), shares, rounds)
    np.testing.assert_allclose(mixed, expected[first:], rtol=1e-4, atol=1e-6)


@given(SEEDS, st.integers(1, 5))
def test_rotated_columns__are_principal_axes(seed, columns):
    matrix = np.random.default_rng(seed).normal(size=(WORDS, columns)).astype(np.float32)
    orthonormal = rotated(matrix, -0.5, columns, QUICK_CLUSTERS)
    np.testing.assert_allclose(orthonormal.T @ orthonormal, np.eye(columns), atol=1e-3)
    left, sizes, _ = np.linalg.svd(matrix.astype(np.float64), full_matrices=False)
    axes = rotated(matrix, -0.25, columns - 1, QUICK_CLUSTERS).astype(np.float64)
    expected = (left * np.sqrt(sizes))[:, : columns - 1]
    np.testing.assert_allclose(axes @ axes.T, expected @ expected.T, atol=1e-2 * sizes[0])


def test_coordinates_of_words_that_cooccur_by_chance__are_zero():
    """If all documents have the same word proportions, there are no directions, and no word is near another."""
    rows, inertias = unit_rows(rotated(np.zeros((WORDS, 4), dtype=np.float32), -0.25, 3, QUICK_CLUSTERS))
    assert rows.shape == (WORDS, 0)
    assert inertias.tolist() == [0.0] * WORDS
    shares = cluster_proportions(rows, np.zeros((3, 0), dtype=np.float32), CLUSTERS)
    assert not shares.known.any()


def test_coordinates_of_words_that_share_documents__are_alike():
    """If two groups of words occur in different documents, the first axis separates them."""
    table = np.kron(np.eye(2, dtype=np.int32), np.ones((20, 4), dtype=np.int32))
    position = np.nonzero(table)[1].astype(np.int32)
    offsets = np.arange(0, position.size + 1, 4, dtype=np.int64)
    pairs, masses = DocumentPairs(offsets, position, np.ones_like(position)), np.full(8, 20.0)
    directions = first_word_directions(masses, QUICK_CLUSTERS, Stream(1))
    for left in (2, 1, 0):
        products = np.zeros_like(directions)
        initialisation.add_products(pairs, np.arange(8), scaled(directions, masses), products)
        products = centred(scaled(products, masses), masses)
        directions = rotated(products, -0.5 if left else -0.25, 5, QUICK_CLUSTERS)
    rows, inertias = unit_rows(directions)
    assert directions.shape[1] == 1
    assert abs(rows[:4].sum() - rows[4:].sum()) == pytest.approx(8.0, abs=1e-3)
    np.testing.assert_allclose(inertias, inertias[0], rtol=1e-3)
