import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.families.ncrp import node_moves
from collapsium.workers.families.ncrp.node_moves import Moves
from collapsium.workers.families.ncrp.tree import FREE, NOWHERE, ROOT, Tree
from tests.strategies import trees
from tests.workers.families.ncrp.test_prior import masses


def require_consistent(moves, before):
    """Require that the moves give a valid tree, whose new and changed nodes derive from columns of the tree before."""
    tree = moves.tree
    nodes = np.flatnonzero(tree.parents != FREE)
    assert tree.parents.size == before.parents.size  # so the tree can never exceed max_nodes
    assert tree.parents[0] == ROOT
    assert (tree.parents[nodes[1:]] >= 0).all()
    assert (tree.parents[tree.parents[nodes[1:]]] != FREE).all()
    assert set(tree.columns) == set(nodes)  # levels are defined if every node reaches the root within the depth
    assert set(moves.sources) <= set(nodes.tolist())
    for sources in moves.sources.values():
        assert all(before.levels[source] >= 0 for source, _ in sources)
    for node in nodes:
        assert before.levels[node] >= 0 or int(node) in moves.sources
    table = moves.move_table()
    assert set(table.move_target) == set(moves.sources)
    assert set(table.move_source) <= {NOWHERE, *before.columns.tolist()}


def sibling_pairs(tree, data):
    """Draw some disjoint pairs of siblings."""
    pairs = []
    for node in tree.columns:
        children = data.draw(st.permutations(tree.children(node).tolist()))
        pairs += [pair for pair in zip(children[::2], children[1::2], strict=False) if data.draw(st.booleans())]
    return pairs


@given(trees(max_nodes=14), st.integers(0, 1000), st.data())
def test_merged__conserves_tokens_and_documents(tree, seed, data):
    pairs, (ends, passes) = sibling_pairs(tree, data), masses(tree, seed)
    moves = Moves(tree).merged(pairs)
    require_consistent(moves, tree)
    assert moves.counts == {"grown": 0, "pruned": 0, "merged": len(pairs)}
    assert moves.tree.columns.size == tree.columns.size - len(pairs)
    into = {second: first for first, second in pairs}
    for node in tree.columns[1:]:
        first, above = into.get(int(node), int(node)), int(tree.parents[node])
        assert moves.tree.parents[first] == into.get(above, above)
    rows = np.random.default_rng(seed).random((3, tree.parents.size)) * (tree.levels >= 0)
    after = moves.move_table().apply(rows)
    kept = moves.tree.levels >= 0
    np.testing.assert_allclose(after[:, kept].sum(axis=1), rows.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(moves.summed(rows[0])[kept], after[0, kept], rtol=1e-12)
    # Passes of a merged node are the sum of the two nodes' passes, because ends are moved likewise.
    np.testing.assert_allclose(moves.tree.gathered(moves.summed(ends)), moves.summed(passes), rtol=1e-9, atol=1e-9)


@given(trees(max_nodes=14), st.integers(0, 1000), st.sampled_from([0.0, 1e-6, 5.0, 1e9]))
def test_pruned__removes_nodes_with_few_passes_and_all_nodes_below_them(tree, seed, least):
    _, passes = masses(tree, seed)
    moves = Moves(tree).pruned(passes, least)
    require_consistent(moves, tree)
    kept = [node for node in tree.columns if all(passes[ancestor] >= least for ancestor in tree.path(node)[1:])]
    assert sorted(moves.tree.columns) == sorted(kept)
    np.testing.assert_array_equal(moves.tree.parents[kept], tree.parents[kept])
    assert moves.counts["pruned"] == tree.columns.size - len(kept)
    assert moves.sources == {}


@given(trees(max_nodes=14, spare=8), st.lists(st.integers(0, 30), max_size=5))
def test_grown__adds_as_many_complete_paths_as_fit(tree, picks):
    ends = [int(tree.columns[pick % tree.columns.size]) for pick in picks]
    moves = Moves(tree).grown(ends)
    require_consistent(moves, tree)
    new = [column for column, sources in moves.sources.items() if not sources]
    assert moves.counts["grown"] == len(new) == moves.tree.columns.size - tree.columns.size
    np.testing.assert_array_equal(moves.tree.parents[tree.columns], tree.parents[tree.columns])
    room, expected = int((tree.parents == FREE).sum()), []
    for end in ends:
        missing = tree.depth - 1 - tree.levels[end]
        if 0 < missing <= room:
            room -= missing
            expected.append(end)
    tops = [moves.tree.parents[node] for node in new if moves.tree.parents[node] not in new]
    assert sorted(tops) == sorted(expected)
    leaves = [node for node in new if not moves.tree.children(node).size]
    assert (moves.tree.levels[leaves] == tree.depth - 1).all()
    assert all(moves.tree.children(node).size <= 1 for node in new)
    rows = moves.move_table().apply(np.ones((2, tree.parents.size)))
    assert (rows[:, new] == 0.0).all()
    assert (rows[:, tree.columns] == 1.0).all()


@given(trees(max_nodes=14), st.integers(0, 1000), st.data())
def test_successive_moves__give_a_valid_tree(tree, seed, data):
    """Moves are combined as in `update`: merged twice, pruned, and grown."""
    ends, passes = masses(tree, seed)
    moves = Moves(tree)
    for _ in range(2):
        moves = moves.merged(sibling_pairs(moves.tree, data))
    moves = moves.pruned(moves.summed(passes), data.draw(st.sampled_from([0.0, 1e-6, 5.0])))
    picks = data.draw(st.lists(st.sampled_from(moves.tree.columns.tolist()), max_size=4))
    moves = moves.grown([pick for pick in picks if moves.tree.levels[pick] < tree.depth - 1])
    require_consistent(moves, tree)
    rows = np.random.default_rng(seed).random((2, tree.parents.size)) * (tree.levels >= 0)
    after = moves.move_table().apply(rows)
    np.testing.assert_allclose(moves.summed(rows[0])[moves.tree.columns], after[0, moves.tree.columns], rtol=1e-12)
    assert (after[:, moves.tree.columns].sum(axis=1) <= rows.sum(axis=1) * (1 + 1e-12)).all()


@given(st.integers(0, 12), st.integers(2, 5), st.integers(0, 12), st.integers(0, 1000), st.booleans())
def test_regrouped__puts_leaves_under_groups_and_conserves_tokens(leaves, depth, spare, seed, alike):
    generator = np.random.default_rng(seed)
    columns = 1 + leaves + max(depth - 2, 0) + spare
    tree = node_moves.first_tree(columns, leaves)
    first = Moves(tree).merged([(1, 2)] if leaves > 1 else [])
    points = generator.integers(0, 3 if alike else 1000, size=(columns, 2)).astype(float)
    distance = np.abs(points[:, np.newaxis] - points).sum(axis=2)
    alpha = generator.gamma(2.0, size=depth) + 0.1
    moves = node_moves.regrouped(first, distance / max(distance.max(), 1.0), alpha, depth)
    require_consistent(moves, tree)
    assert moves.tree.depth == depth
    kept = first.tree.children(0)
    assert sorted(np.flatnonzero(moves.tree.levels == depth - 1)) == sorted(kept)
    assert all(moves.tree.children(node).size for node in moves.tree.columns[:-1] if moves.tree.levels[node] < depth - 1) or not leaves  # fmt: skip
    rows = generator.random((3, columns)) * (tree.levels >= 0)
    after = moves.move_table().apply(rows)[:, moves.tree.columns]
    np.testing.assert_allclose(after.sum(axis=1), rows.sum(axis=1), rtol=1e-12)
    share = alpha[1:] / alpha[1:].sum()
    for level in range(1, depth):
        level_tokens = moves.move_table().apply(rows)[:, moves.tree.levels == level].sum(axis=1)
        np.testing.assert_allclose(level_tokens, share[level - 1] * rows[:, 1:].sum(axis=1), rtol=1e-9, atol=1e-12)


def test_regrouped__finds_well_separated_groups():
    tree = node_moves.first_tree(40, 9)
    group = np.repeat([-1, 0, 1, 2, -1], [1, 3, 3, 3, 30])
    distance = np.where(group == group[:, np.newaxis], 0.2, 0.9) + 0.001 * np.arange(40)
    moves = node_moves.regrouped(Moves(tree), (distance + distance.T) / 2, np.ones(3), 3)
    parents = moves.tree.parents
    assert len(set(parents[1:10])) == 3
    assert all(len(set(parents[1 + 3 * n : 4 + 3 * n])) == 1 for n in range(3))


# What is compared and put together ----------------------------------------------------------------------------------


@given(trees(max_nodes=14), st.integers(0, 1000), st.integers(1, 4))
def test_nearest_siblings__are_disjoint_pairs_of_siblings(tree, seed, count):
    affinity = np.random.default_rng(seed).random((tree.parents.size,) * 2)
    affinity = affinity + affinity.T
    first, second = node_moves.nearest_siblings(tree, affinity, count)
    assert (first < second).all()
    assert len(set(zip(first.tolist(), second.tolist(), strict=True))) == first.size
    np.testing.assert_array_equal(tree.parents[first], tree.parents[second])
    for node in tree.columns[1:]:
        siblings = [sibling for sibling in tree.children(tree.parents[node]) if sibling != node]
        siblings = sorted(siblings, key=lambda sibling: -affinity[node, sibling])[:count]
        pairs = set(zip(first.tolist(), second.tolist(), strict=True))
        assert all((min(node, sibling), max(node, sibling)) in pairs for sibling in siblings)


@given(trees(max_nodes=14), st.integers(0, 1000))
def test_disjoint__selects_each_column_once_by_decreasing_gain(tree, seed):
    generator = np.random.default_rng(seed)
    first, second = node_moves.nearest_siblings(tree, generator.random((tree.parents.size,) * 2), 3)
    value, passes = generator.normal(size=first.size), generator.random(tree.parents.size)
    chosen = node_moves.disjoint(first, second, value, passes)
    assert all(passes[first] >= passes[partner] for first, partner in chosen)
    columns = [column for pair in chosen for column in pair]
    assert len(set(columns)) == len(columns)
    worth = {frozenset(pair): gain for *pair, gain in zip(first.tolist(), second.tolist(), value, strict=True)}
    assert all(worth[frozenset(pair)] > 0.0 for pair in chosen)
    for pair, gain in worth.items():  # a pair that was not selected has no gain, or overlaps a pair with a larger one
        if frozenset(pair) not in map(frozenset, chosen) and gain > 0.0:
            assert any(pair & set(partner) and worth[frozenset(partner)] > gain for partner in chosen)


def test_alike_paths__are_pairs_of_leaves_with_the_same_documents():
    tree = Tree(np.array([ROOT, 0, 0, 1, 1, 1, 2]), 3)
    q = np.zeros((4, 7))  # by document
    q[:, 3], q[:, 4], q[:, 6] = [0.5, 0.5, 0, 0], [0.4, 0.5, 0, 0.05], [0.5, 0.5, 0, 0]
    q[:, 5] = [0, 0, 1.0, 0]
    assert node_moves.alike_paths(tree, q.T @ q, 0.95) == [(3, 4)]
    assert node_moves.alike_paths(tree, q.T @ q, 0.999) == []
    assert node_moves.alike_paths(Tree(np.array([ROOT]), 3), np.zeros((1, 1)), 0.5) == []


def test_affinities__match_distributions():
    counts = np.array([[4.0, 1.0, 0.0], [0.0, 3.0, 0.0]])
    p = counts / np.maximum(counts.sum(axis=0), 1.0)
    roots = np.sqrt(counts).T @ np.sqrt(counts)
    np.testing.assert_allclose(node_moves.affinities(roots, counts.sum(axis=0)), np.sqrt(p).T @ np.sqrt(p), rtol=1e-12)


def test_evidence_gains__are_ratios_of_the_collapsed_likelihood():
    from scipy.special import gammaln

    generator, words, eta, gamma = np.random.default_rng(3), 8, 0.4, 0.7
    counts = generator.integers(0, 9, size=(words, 3)).astype(float)
    passes = np.array([0.0, 5.0, 3.0])

    def evidence(groups):
        value = 0.0
        for group in groups:
            n = counts[:, group].sum(axis=1)
            value += (gammaln(eta + n) - gammaln(eta)).sum() + gammaln(words * eta) - gammaln(words * eta + n.sum())
            value += np.log(gamma) + gammaln(passes[group].sum())  # log p under the CRP, up to a common constant
        return value

    pairs = np.array([1]), np.array([2])
    word_gains = gammaln(eta + counts[:, 1] + counts[:, 2]) + gammaln(eta)
    word_gains -= gammaln(eta + counts[:, 1]) + gammaln(eta + counts[:, 2])
    found = node_moves.evidence_gains(
        np.array([word_gains.sum()]), *pairs, counts.sum(axis=0), passes, np.full(3, eta), words, gamma
    )
    np.testing.assert_allclose(found, evidence([[1, 2]]) - evidence([[1], [2]]), rtol=1e-9)
