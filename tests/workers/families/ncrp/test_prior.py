from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import betaln, digamma, logsumexp

from collapsium.storage.corpus.shard import Shard
from collapsium.workers.families.ncrp import tree as nested
from collapsium.workers.families.ncrp.node_moves import Moves
from collapsium.workers.families.ncrp.tree import FREE, Sticks, Tree
from collapsium.workers.kernels.jit import DocumentPairs
from collapsium.workers.kernels.trees.paths import (
    DocumentPrior,
    LargestEnds,
    LevelCounts,
    StoppingRule,
    TreeStatistics,
    TreeTopics,
    sweep_levels,
    sweep_paths,
)
from tests.conftest import simulated_rows
from tests.strategies import documents_of, trees

# each further sibling outside the tree has exp(-1 / gamma) times the share of the preceding one
GAMMAS = st.sampled_from([0.05, 0.3, 0.7, 1.0])
PATHS = 26  # siblings per level at which sums over paths outside the tree are truncated; the rest has a share of 1e-11


def masses(tree, seed, sharp=1.0):
    """Draw the number of documents that end at each node and that pass it; some nodes have none."""
    generator = np.random.default_rng(seed)
    ends = generator.gamma(sharp, 10.0, size=tree.parents.size) * (generator.random(tree.parents.size) < 0.8)
    ends = np.where(tree.levels >= 0, ends, 0.0)
    return ends, tree.gathered(ends)


def bound_of(tree, found, ends, gamma, prior):
    """Return E[log p(c | V)], the entropy of what is outside the tree, and -KL(q(v) | Beta(1, prior)), summed, for any
    q(v)."""
    nodes = tree.columns
    value = ends[nodes] @ nested.end_logs(tree, found, prior)[nodes]
    a, b = found.a[nodes[1:]], found.b[nodes[1:]]
    gap = (a - 1.0) * digamma(a) + (b - gamma) * digamma(b) - (a + b - 1.0 - gamma) * digamma(a + b)
    return value - (betaln(1.0, gamma) - betaln(a, b) + gap).sum()


# Sticks -------------------------------------------------------------------------------------------------------------


@given(trees(max_nodes=6, depths=(2, 4)), st.integers(0, 1000), GAMMAS)
def test_end_logs__sum_over_all_paths_that_begin_with_each_end(tree, seed, gamma):
    """Nodes outside the tree come after its own siblings, with sticks from Beta(1, gamma), whatever is above them."""
    ends, passes = masses(tree, seed)
    found = nested.sticks(tree, passes, ends, gamma)
    logs = nested.end_logs(tree, found, gamma)
    whole = digamma(1.0 + gamma)
    u, r = digamma(1.0) - whole, digamma(gamma) - whole
    for end in tree.columns:
        above = 0.0
        for node in tree.path(end)[1:]:
            siblings = tree.children(tree.parents[node])
            earlier = siblings[found.rank[siblings] < found.rank[node]]
            above += found.log_stick[node] + found.log_rest[earlier].sum()
        left = tree.depth - 1 - tree.levels[end]
        behind = found.log_rest[tree.children(end)].sum()
        path_logs = [
            left * u + sum(place) * r + (behind if left else 0.0) for place in product(range(PATHS), repeat=left)
        ]
        assert logs[end] == pytest.approx(above + logsumexp(path_logs), rel=0, abs=1e-9)  # of logarithms
    assert (logs[tree.levels < 0] == -np.inf).all()


@given(trees(), st.integers(0, 1000), st.sampled_from([1e-3, 0.3, 1.0, 20.0]))
def test_sticks__maximise_the_bound(tree, seed, gamma):
    assume(tree.columns.size > 1)
    ends, passes = masses(tree, seed)
    best = nested.sticks(tree, passes, ends, gamma)
    value = bound_of(tree, best, ends, gamma, gamma)
    assert nested.sticks_bound(tree, best, ends, gamma) == pytest.approx(value, rel=1e-9, abs=1e-8)
    generator = np.random.default_rng(seed)
    for scale in (1e-3, 0.1, 1.0):
        a, b = (shape * np.exp(scale * generator.normal(size=shape.size)) for shape in (best.a, best.b))
        assert bound_of(tree, Sticks(a, b, best.rank), ends, gamma, gamma) <= value + 1e-9 * abs(value)


@given(trees(max_nodes=8), st.integers(0, 1000), st.sampled_from([1e-3, 0.3, 1.0, 20.0]))
def test_sticks__order_siblings_by_size_and_no_other_order_is_better(tree, seed, gamma):
    ends, passes = masses(tree, seed)
    best = nested.sticks(tree, passes, ends, gamma)
    for node in tree.columns:
        children = tree.children(node)
        assert sorted(best.rank[children]) == list(range(children.size))
        assert (np.diff(passes[children[np.argsort(best.rank[children])]]) <= 0.0).all()
        if not 1 < children.size < 5:
            continue
        value = nested.sticks_bound(tree, best, ends, gamma)
        for order in permutations(children):
            reordered = Sticks(best.a.copy(), best.b.copy(), best.rank.copy())
            later = ends[node]
            for place, child in reversed(list(enumerate(order))):
                reordered.rank[child], reordered.b[child] = place, gamma + later
                later += passes[child]
            assert bound_of(tree, reordered, ends, gamma, gamma) <= value + 1e-9 * abs(value) + 1e-9


@given(trees(), st.integers(0, 1000), st.floats(1e-2, 1e2), st.sampled_from([0.1, 1.0]))
def test_learned_gamma__has_the_largest_bound(tree, seed, gamma, sharp):
    ends, passes = masses(tree, seed, sharp)
    found = nested.sticks(tree, passes, ends, gamma)
    learned = nested.learned_gamma(tree, found, ends, gamma)

    def value(gamma):
        return bound_of(tree, found, ends, gamma, gamma)

    for gamma_tried in (gamma, *np.geomspace(1e-3, 1e3, 13), 0.99 * learned, 1.01 * learned):
        if np.exp(nested.LOG_GAMMA_RANGE[0]) <= gamma_tried <= np.exp(nested.LOG_GAMMA_RANGE[1]):
            assert value(learned) >= value(gamma_tried) - 1e-7 * abs(value(gamma_tried)) - 1e-7
    assert value(learned) >= value(gamma) - 1e-12 * abs(value(gamma))


# Nesting ------------------------------------------------------------------------------------------------------------


def document_bounds(shard, tree, end_log, counts, factorised, point, before):
    """Return the tokens by level and the bound of each document, and log S of all, with topics that the counts
    determine."""
    depth, words, size = tree.depth, len(counts), tree.columns.size
    eta, alpha = np.linspace(0.3, 1.2, depth), np.linspace(3.0, 1.0, depth)
    word_prior, held = eta[tree.level], np.ascontiguousarray(counts[:, tree.columns])
    if point:
        log_node = np.log(held + word_prior) - np.log(held.sum(axis=0) + words * word_prior)
        outside = np.full(depth, -np.log(words))
    else:
        log_node = digamma(held + word_prior) - digamma(held.sum(axis=0) + words * word_prior)
        outside = digamma(eta) - digamma(words * eta)
    levels, found = np.empty((shard.documents, depth)), np.empty(shard.documents)
    for d in range(shard.documents):
        pairs = slice(shard.offsets[d], shard.offsets[d + 1])
        position, times = shard.position[pairs], shard.counts[pairs]
        rows, document_level, bound = np.empty((words, size)), np.empty((1, depth)), np.zeros(1)
        statistics = TreeStatistics(rows, np.zeros(size), np.zeros(depth), bound)
        largest = LargestEnds(np.empty((1, 16), "i4"), np.empty((1, 16), "f4"), 1e-3)
        prior = DocumentPrior(np.ascontiguousarray(end_log[tree.columns]), alpha)
        document = DocumentPairs(np.array([0, times.size]), position, times)
        if factorised:
            z = np.tile((before[d] / max(before[d].sum(), 1e-9)).astype("f4"), (times.size, 1))
            pair_level = np.empty_like(z)
            topics, found_levels = (
                TreeTopics(tree.parent, tree.level, log_node, outside),
                LevelCounts(document_level, pair_level),
            )
            sweep_levels(document, topics, prior, z, 3, found_levels, statistics, largest)
            bound += (rows * log_node).sum()
        else:
            topics = TreeTopics(tree.parent, tree.level, np.exp(log_node), np.exp(outside))
            sweep_paths(
                document, topics, prior, before[d : d + 1], StoppingRule(3, 0.0), document_level, statistics, largest
            )
        levels[d], found[d] = document_level[0], bound[0]
    return levels, found


@given(trees(), st.integers(0, 1000), GAMMAS, st.booleans(), st.booleans(), st.data())
def test_adding_nodes_at_the_prior__changes_nothing(tree, seed, gamma, factorised, point, data):
    """A tree is a special case of a tree with more nodes."""
    shard, generator = Shard.of(0, documents_of(simulated_rows(seed, 5, 12, tokens=15))), np.random.default_rng(seed)
    words, (ends, passes) = shard.words.size, masses(tree, seed)
    wide = np.append(tree.parents, [FREE] * 2 * tree.depth)
    tree, ends, passes = Tree(wide, tree.depth), np.pad(ends, (0, 2 * tree.depth)), np.pad(passes, (0, 2 * tree.depth))
    inner = [int(node) for node in tree.columns if tree.levels[node] < tree.depth - 1]
    moves = Moves(tree).grown(data.draw(st.lists(st.sampled_from(inner), min_size=1, max_size=3)))
    new = [column for column, sources in moves.sources.items() if not sources]
    assert new
    found = nested.sticks(tree, passes, ends, gamma)
    ranks = found.rank.copy()
    for node in new:
        siblings = moves.tree.children(moves.tree.parents[node])
        ranks[node] = sum(int(sibling) not in new or sibling < node for sibling in siblings[siblings != node])
    larger = Sticks(found.a, found.b, ranks)
    assert (larger.a[new] == 1.0).all()
    assert (larger.b[new] == gamma).all()
    counts = np.where(wide != FREE, generator.gamma(0.3, 10.0, size=(words, wide.size)), 0.0)
    before = shard.lengths[:, np.newaxis] * generator.dirichlet(np.ones(tree.depth), size=shard.documents)
    sides = []
    for nodes, sticks in ((tree, found), (moves.tree, larger)):
        end_log = nested.end_logs(nodes, sticks, gamma)
        sides.append(document_bounds(shard, nodes, end_log, counts, factorised, point, before))
    np.testing.assert_allclose(sides[1][0], sides[0][0], rtol=1e-6 if factorised else 1e-9, atol=1e-9)
    np.testing.assert_allclose(sides[1][1], sides[0][1], rtol=1e-9, atol=1e-9)
    zero = np.zeros(wide.size)  # -KL(q(v) | p(v)) of the new nodes is zero
    assert bound_of(moves.tree, larger, zero, gamma, gamma) == pytest.approx(bound_of(tree, found, zero, gamma, gamma))


# Moves --------------------------------------------------------------------------------------------------------------
