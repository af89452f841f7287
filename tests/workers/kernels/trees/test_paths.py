import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.shard import Shard
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.families.ncrp.tree import ROOT, Tree
from collapsium.workers.kernels.jit import DocumentPairs
from collapsium.workers.kernels.trees import paths
from collapsium.workers.kernels.trees.paths import (
    DocumentPrior,
    LargestEnds,
    LevelCounts,
    StoppingRule,
    StoredEnds,
    TreeStatistics,
    TreeTopics,
    sweep_levels,
    sweep_paths,
)
from tests.conftest import INTERPRETED, mark_rest_long
from tests.naive import tree as naive
from tests.strategies import bags, documents_of, trees

pytestmark = pytest.mark.kernels

MOST, SHARE = 16, 1e-3


@st.composite
def corpora(draw):
    """Draw a shard, with empty documents, large counts, and sometimes a single word."""
    rows, _ = draw(bags(max_documents=4, max_count=draw(st.sampled_from([1, 4, 1000])), some_token=False))
    return Shard.of(0, documents_of(rows))


def draw_inputs(shard, tree, seed, alpha_scale, sharp):
    """Return topics, masses of ends, and level proportions; sharp topics make some words almost impossible."""
    generator = np.random.default_rng(seed)
    size, words = tree.columns.size, shard.words.size
    log_node = -generator.gamma(1.0, sharp, size=(words, size)) - 1e-3
    log_outside = -generator.gamma(1.0, min(sharp, 10.0), size=tree.depth) - 1e-3
    end_log = generator.normal(0.0, 3.0, size=size) - 1.0
    alpha = alpha_scale * generator.gamma(1.0, size=tree.depth) + alpha_scale * 0.1
    share = generator.dirichlet(np.ones(tree.depth), size=shard.documents)
    return log_node, end_log, log_outside, alpha, shard.lengths[:, np.newaxis] * share


def made_for(shard, tree):
    size = tree.columns.size
    expected, listed = np.full((shard.words.size, size), np.nan), np.full((shard.documents, MOST), 77, dtype=np.int32)
    masses = np.full((shard.documents, MOST), np.nan, dtype=np.float32)
    return (
        np.full((shard.documents, tree.depth), np.nan),
        TreeStatistics(expected, np.full(size, 0.5), np.full(tree.depth, 2.0), np.array([3.0])),
        LargestEnds(listed, masses, SHARE),
    )


def bits_of(document_level, statistics, largest):
    """Return the bytes of all arrays that a sweep fills."""
    return [document_level.tobytes(), *(array.tobytes() for array in (*statistics, *largest[:2]))]


def require_same(filled, sums, rtol, atol):
    document_level, (row_node, ends, log_theta, bound), (kept, masses, _) = filled
    np.testing.assert_allclose(document_level, sums.document_level, rtol=rtol, atol=atol)
    np.testing.assert_allclose(row_node, sums.row_node, rtol=rtol, atol=atol)
    np.testing.assert_allclose(ends - 0.5, sums.ends, rtol=rtol, atol=atol)
    np.testing.assert_allclose(log_theta - 2.0, sums.log_theta, rtol=rtol, atol=10 * atol)
    np.testing.assert_allclose(bound[0] - 3.0, sums.bound, rtol=rtol, atol=10 * atol)
    for q, listed, mass in zip(sums.q, kept, masses, strict=True):
        is_listed = listed >= 0
        _, expected = naive.largest(q, SHARE, MOST)
        assert is_listed.sum() == len(expected)
        assert len(set(listed[is_listed])) == is_listed.sum()
        np.testing.assert_allclose(mass[is_listed], expected, rtol=max(rtol, 1e-6), atol=atol)
        np.testing.assert_allclose(q[listed[is_listed]], mass[is_listed], rtol=max(rtol, 1e-6), atol=atol)
        assert (np.diff(mass[is_listed]) <= 0.0).all()
        assert (listed[~is_listed] == -1).all()
        assert (mass[~is_listed] == 0.0).all()


@given(
    corpora(),
    trees(),
    st.integers(0, 1000),
    st.integers(1, 4),
    st.sampled_from([0.0, 1e-2, 1.0]),
    st.sampled_from([1e-2, 1.0, 100.0, 1e6]),
    st.sampled_from([1.0, 10.0, 100.0]),
)
def test_sweep_paths__equals_the_naive_version_and_counts_every_token(
    shard, tree, seed, passes, tolerance, scale, sharp
):
    log_node, end_log, log_outside, alpha, before = draw_inputs(shard, tree, seed, scale, sharp)
    word_node, outside = np.exp(log_node), np.exp(log_outside)
    filled, pairs = made_for(shard, tree), document_pairs(shard)
    topics, prior = TreeTopics(tree.parent, tree.level, word_node, outside), DocumentPrior(end_log, alpha)
    sweep_paths(pairs, topics, prior, before, StoppingRule(passes, tolerance), *filled)
    given_ = word_node, tree.parent, tree.level, end_log, outside, alpha, before
    require_same(filled, naive.sweep_paths(*pairs[:3], *given_, passes, tolerance), 1e-8, 1e-8)
    np.testing.assert_allclose(filled[0].sum(axis=1), shard.lengths, rtol=1e-12)
    np.testing.assert_allclose(filled[1].ends.sum(), 0.5 * tree.columns.size + shard.documents, rtol=1e-12)


@given(
    corpora(),
    trees(),
    st.integers(0, 1000),
    st.integers(1, 3),
    st.sampled_from([1e-2, 1.0, 100.0, 1e6]),
    st.sampled_from([1.0, 10.0, 100.0]),
)
def test_sweep_levels__equals_the_naive_version_and_counts_every_token(shard, tree, seed, passes, scale, sharp):
    log_node, end_log, log_outside, alpha, _ = draw_inputs(shard, tree, seed, scale, sharp)
    generator = np.random.default_rng(seed + 1)
    before = generator.dirichlet(np.ones(tree.depth), size=shard.pairs).astype(np.float32).reshape(-1, tree.depth)
    document_level, *filled = made_for(shard, tree)
    pair_level, pairs = np.full_like(before, np.nan), document_pairs(shard)
    topics, prior = TreeTopics(tree.parent, tree.level, log_node, log_outside), DocumentPrior(end_log, alpha)
    sweep_levels(pairs, topics, prior, before, passes, LevelCounts(document_level, pair_level), *filled)
    given_ = log_node, tree.parent, tree.level, end_log, log_outside, alpha, before
    twin = naive.sweep_levels(*pairs[:3], *given_, passes)
    # Values stored in single precision enter the next pass, where counts of a thousand multiply them.
    rtol, atol = (1e-6, 1e-6) if passes == 1 else (1e-4, 1e-3)
    require_same((document_level, *filled), twin, rtol, atol)
    np.testing.assert_allclose(pair_level, twin.pair_level, rtol=rtol, atol=atol)
    np.testing.assert_allclose(document_level.sum(axis=1), shard.lengths, rtol=1e-6)


@given(corpora(), trees(depths=(2, 3)), st.integers(0, 1000), st.sampled_from([1e-6, 1e-3, 0.1]))
def test_sweep_paths__is_finite_with_vanishing_weights(shard, tree, seed, alpha):
    """Dirichlet parameters may be so small that exp(psi) of them underflows to zero."""
    generator = np.random.default_rng(seed)
    size, depth = tree.columns.size, tree.depth
    word_node = np.where(generator.random((shard.words.size, size)) < 0.5, paths.MIN_PROBABILITY, 0.2)
    end_log, outside = np.zeros(size), np.full(depth, paths.MIN_PROBABILITY)
    before = shard.lengths[:, np.newaxis] * np.eye(depth)[generator.integers(0, depth, shard.documents)]
    document_level, statistics, largest = made_for(shard, tree)
    topics = TreeTopics(tree.parent, tree.level, word_node, outside)
    prior, stopping = DocumentPrior(end_log, np.full(depth, alpha)), StoppingRule(5, 0.0)
    with np.errstate(over="ignore"):  # with interpreted kernels, an unused square may overflow
        sweep_paths(document_pairs(shard), topics, prior, before, stopping, document_level, statistics, largest)
    assert all(np.isfinite(array).all() for array in (document_level, *statistics, *largest[:2]))
    np.testing.assert_allclose(document_level.sum(axis=1), shard.lengths, rtol=1e-9)
    np.testing.assert_allclose(statistics.ends.sum(), 0.5 * size + shard.documents, rtol=1e-9)


@given(st.lists(st.sampled_from([0.0, 1e-4, 1e-3, 0.1, 0.25, 0.5]), min_size=1, max_size=30), st.integers(1, 20))
def test_keep_largest__equals_the_naive_version(values, limit):
    """This includes ties, and documents without an end that has the share, for which the largest end is kept."""
    q = np.array(values)
    ends, masses = np.full(limit, 7, dtype=np.int32), np.full(limit, np.nan, dtype=np.float32)
    paths.keep_largest(q, SHARE, ends, masses)
    chosen, expected = naive.largest(values, SHARE, limit)
    np.testing.assert_array_equal(ends, chosen + [-1] * (limit - len(chosen)))
    np.testing.assert_array_equal(masses, np.array(expected + [0.0] * (limit - len(chosen)), dtype=np.float32))


def counts_of(generator, words, size):
    return generator.gamma(0.3, 30.0, size=(words, size)) * (generator.random((words, size)) < 0.6)


@given(st.integers(0, 8), st.integers(1, 6), st.integers(0, 1000))
def test_root_products__equal_the_naive_version(words, size, seed):
    counts, gram = counts_of(np.random.default_rng(seed), words, size), np.full((size, size), np.nan)
    counts[counts < 2 * paths.MIN_COUNT] = 0.0
    paths.root_products(counts, gram)
    np.testing.assert_allclose(gram, naive.root_products(counts), rtol=1e-10, atol=1e-12)


@given(st.integers(0, 8), st.integers(2, 6), st.integers(0, 1000), st.sampled_from([1e-3, 0.1, 1.0, 1e3]))
def test_merge_gains__equal_the_naive_version(words, size, seed, scale):
    generator = np.random.default_rng(seed)
    counts = counts_of(generator, words, size)
    first, second = generator.integers(0, size, (2, 7))
    prior, gain = scale * generator.uniform(0.5, 2.0, 7), np.full(7, np.nan)
    paths.merge_gains(counts, first, second, prior, gain)
    np.testing.assert_allclose(gain, naive.merge_gains(counts, first, second, prior), rtol=1e-8, atol=1e-5)


@given(corpora(), trees(), st.integers(0, 1000))
def test_path_probability__equals_the_naive_version(shard, tree, seed):
    generator = np.random.default_rng(seed)
    size = tree.columns.size
    word_node = generator.dirichlet(np.ones(shard.words.size + 1), size=size).T[: shard.words.size] + 1e-9
    theta = generator.dirichlet(np.ones(tree.depth), size=shard.documents)
    stored = generator.integers(1, min(size, 4) + 1, shard.documents)
    ends = np.concatenate([generator.permutation(size)[:n] for n in stored]).astype(np.int32)
    masses = generator.uniform(0.01, 1.0, ends.size).astype(np.float32)
    lists, outside = np.concatenate([[0], np.cumsum(stored)]).astype(np.int64), np.full(tree.depth, 1 / 7)
    probability, document_log = np.full(shard.pairs, np.nan), np.full(shard.documents, np.nan)
    topics, pairs = TreeTopics(tree.parent, tree.level, np.ascontiguousarray(word_node), outside), document_pairs(shard)
    paths.path_probability(pairs, topics, theta, StoredEnds(lists, ends, masses), probability, document_log)
    given_ = word_node, tree.parent, tree.level, theta, lists, ends, masses, outside
    twin = naive.path_probability(*pairs[:3], *given_)
    np.testing.assert_allclose(probability, twin[0], rtol=1e-9)
    np.testing.assert_allclose(document_log, twin[1], rtol=1e-9, atol=1e-9)


def shuffled_memory(generator):
    """Leave holes of many sizes in the heap, so that later arrays have arbitrary addresses."""
    library = ctypes.CDLL(None)
    library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    held = [library.malloc(int(size)) for size in generator.integers(16, 500, 80)]
    gone = generator.random(len(held)) < 0.5
    for place in generator.permutation(np.flatnonzero(gone)):
        library.free(held[place])
    return lambda: [library.free(held[place]) for place in np.flatnonzero(~gone)]


@pytest.mark.parametrize(
    ("size", "depth"), mark_rest_long([(5, 2), (12, 2), (21, 3), (21, 5), (40, 8)], retained=(1, 3))
)
def test_sweeps__give_the_same_bits_at_all_addresses_of_arrays(size, depth):
    """The compiler may sum in another order if two arrays are close to each other."""
    generator = np.random.default_rng(size)
    parents = np.concatenate([[ROOT], np.zeros(size // 3, dtype=np.int64), 1 + np.arange(size - 1 - size // 3) % (size // 3)])  # fmt: skip
    tree = Tree(parents.astype(np.int64) if depth > 2 else np.minimum(parents, 0).astype(np.int64), depth)
    rows = [{int(word): int(generator.integers(1, 5)) for word in generator.choice(30, 20, False)} for _ in range(15)]
    shard = Shard.of(0, documents_of(rows))
    log_node, end_log, log_outside, alpha, before = draw_inputs(shard, tree, size, 10.0, 0.3)
    first_levels = generator.dirichlet(np.ones(depth), size=shard.pairs).astype(np.float32)
    found = set()
    for _ in range(3 if INTERPRETED else 2000):
        release = shuffled_memory(generator)
        parent, levels, prior_log = (np.array(array) for array in (tree.parent, tree.level, end_log))
        filled = made_for(shard, tree)
        pairs = DocumentPairs(*(np.array(array) for array in document_pairs(shard)))
        topics = TreeTopics(parent, levels, np.exp(log_node), np.exp(log_outside))
        prior = DocumentPrior(prior_log, np.array(alpha))
        sweep_paths(pairs, topics, prior, np.array(before), StoppingRule(1, 0.0), *filled)
        bits = bits_of(*filled)
        level, *filled = made_for(shard, tree)
        pair_level, topics = np.empty_like(first_levels), TreeTopics(parent, levels, np.array(log_node), log_outside)
        counts = LevelCounts(level, pair_level)
        sweep_levels(pairs, topics, DocumentPrior(prior_log, alpha), np.array(first_levels), 1, counts, *filled)
        found.add(b"".join([*bits, *bits_of(level, *filled), pair_level.tobytes()]))
        release()
    assert len(found) == 1
