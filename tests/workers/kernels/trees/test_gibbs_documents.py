import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from collapsium.storage.corpus.shard import Shard
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.kernels.trees import gibbs_documents as gibbs_tree
from collapsium.workers.kernels.trees.gibbs_documents import MAX_TALLIED
from collapsium.workers.kernels.trees.gibbs_subtrees import move_subtrees
from collapsium.workers.kernels.trees.paths import (
    FREE,
    Assignments,
    CandidatePaths,
    FreeSlots,
    SampledTree,
    SweepOptions,
    TreePriors,
)
from tests.naive import gibbs_tree as naive
from tests.strategies import bags, documents_of

pytestmark = [pytest.mark.kernels, pytest.mark.usefixtures("wrapping")]


class Sample:
    """A shard in a tree that also has documents of other shards; some of the shard's documents may be outside the
    tree."""

    def __init__(self, rows, seed, depth, slots, other_documents, outside):
        self.shard, noise = Shard.of(0, documents_of(rows)), np.random.default_rng(seed)
        self.depth, self.alpha, self.eta = depth, noise.uniform(0.1, 3.0, depth), noise.uniform(0.05, 1.5, depth)
        self.gamma, self.key = float(noise.uniform(0.2, 3.0)), Stream(seed, "sweep").key()
        self.order = [int(slot) for slot in 1 + noise.permutation(slots - 1)]
        self.parents, self.path = {0: -1}, np.full((self.shard.documents, depth), -1, dtype=np.int32)
        self.elsewhere, self.other_documents = (
            np.zeros((self.shard.words.size, slots), dtype=np.int32),
            np.zeros(slots, int),
        )
        for number in range(self.shard.documents + other_documents):
            route = self._route(noise)
            if number < other_documents:
                self.other_documents[route] += 1
                self.elsewhere[:, route] += noise.poisson(0.7, (self.shard.words.size, depth)).astype(np.int32)
            elif noise.random() >= outside:
                self.path[number - other_documents] = route
        used = {0, *np.flatnonzero(self.other_documents), *self.path.ravel()} - {-1}
        self.parents = {node: up for node, up in self.parents.items() if node in used}
        self.z = noise.integers(0, depth, self.shard.tokens).astype(np.uint8)
        self.free = [slot for slot in self.order if slot not in self.parents]

    def _route(self, noise):
        route = [0]
        while len(route) < self.depth:
            below = [node for node, up in self.parents.items() if up == route[-1]]
            new = not below or noise.random() < 0.4
            route.append(self.order.pop() if new else int(noise.choice(below)))
            self.parents[route[-1]] = route[-2]
        return route

    @property
    def pair_arrays(self):
        return self.shard.offsets, self.shard.position, self.shard.counts

    def counted(self, path, z):
        """Return n_iw, and the number of documents of each node."""
        row, documents = self.elsewhere.copy(), self.other_documents.copy()
        owner = np.repeat(np.repeat(np.arange(self.shard.documents), np.diff(self.shard.offsets)), self.shard.counts)
        inside = path[owner, 0] >= 0
        node = path[owner, z][inside]
        np.add.at(row, (np.repeat(self.shard.position, self.shard.counts)[inside], node), 1)
        np.add.at(documents, path[path[:, 0] >= 0].ravel(), 1)
        return row, documents

    def swept(self, births, slots=None, apart=False, turn=0, hang=None):
        """Sweep with the kernel, with all free slots at once or some at a time; return paths, z, parents and the
        remaining slots."""
        path, z, slots_ = self.path.copy(), self.z.copy(), self.other_documents.size
        row, documents = self.counted(path, z)
        parent, level = np.full(slots_, FREE), np.full(slots_, -1)
        for node, up in self.parents.items():
            parent[node], at = up, node
            while at != -1:
                level[node], at = level[node] + 1, self.parents[at]
        totals, free = row.sum(axis=0, dtype=np.int64), np.zeros(slots_, int)
        waiting, cursor, count = list(self.free), np.zeros(2, int), np.zeros(1, int)
        priors = TreePriors(self.alpha, self.eta, self.eta * len(row), self.gamma)
        reusable = np.zeros(slots_, int) if hang is None else hang[1]
        tree = SampledTree(parent, level, documents, totals, row, FreeSlots(births, reusable, free, count))
        pairs, assignments = document_pairs(self.shard), Assignments(path, z)
        while hang is None:
            while waiting and (slots is None or count[0] < slots):
                slot = waiting.pop() if slots else waiting.pop(0)  # slots may be added at either end of the list
                free[: count[0] + 1] = [slot, *free[: count[0]]] if slots else [*free[: count[0]], slot]
                reusable[slot], count[0] = 1, count[0] + 1
            options = SweepOptions(apart, turn)
            gibbs_tree.sweep_documents(pairs, self.key, priors, options, tree, assignments, cursor)
            if cursor[0] == self.shard.documents:
                break
        if hang is not None:
            free[: len(self.free)], count[0] = self.free, len(self.free)
            move_subtrees(pairs, self.key, priors, hang[0], tree, assignments)
        expected_row, expected_documents = self.counted(path, z)
        np.testing.assert_array_equal(row, expected_row)
        np.testing.assert_array_equal(documents, expected_documents)
        np.testing.assert_array_equal(totals, expected_row.sum(axis=0))
        nodes = np.flatnonzero(parent != FREE)
        assert set(nodes) == {0, *np.flatnonzero(documents)}
        np.testing.assert_array_equal(level[path[path[:, 0] >= 0]], np.arange(self.depth) + 0 * path[path[:, 0] >= 0])
        return path, z, {int(node): int(parent[node]) for node in nodes}, [int(node) for node in free[: count[0]]]


@st.composite
def samples(draw):
    rows, _ = draw(bags(max_documents=4))
    numbers = draw(st.integers(0, 2**31)), draw(st.sampled_from([2, 3, 4]))
    return Sample(rows, *numbers, 60, draw(st.sampled_from([0, 0, 1, 3])), draw(st.sampled_from([0.0, 0.4, 1.0])))


@given(samples(), st.booleans(), st.booleans(), st.integers(0, 7))
def test_sweep__equals_the_naive_version(sample, births, apart, turn):
    found = sample.swept(births, apart=apart, turn=turn)
    expected = naive.sweep(
        *sample.pair_arrays, sample.key, sample.alpha, sample.eta, sample.gamma, births, apart, turn, sample.free, sample.parents,
        sample.elsewhere, sample.other_documents, sample.path, sample.z,
    )  # fmt: skip
    np.testing.assert_array_equal(found[0], expected[0])
    inside = np.repeat(expected[0][:, 0] >= 0, sample.shard.lengths)
    np.testing.assert_array_equal(found[1][inside], expected[1][inside])
    assert found[2] == expected[2]
    assert found[3] == expected[3]


@given(samples())
def test_sweep__stops_with_too_few_free_slots_and_continues_with_more(sample):
    """Adding just enough free slots at a time has the same result as adding all at once."""
    found, whole = sample.swept(True, sample.depth - 1), sample.swept(True)
    np.testing.assert_array_equal(found[0], whole[0])
    np.testing.assert_array_equal(found[1], whole[1])
    assert found[2] == whole[2]


def test_sweep_of_frequent_words__equals_the_naive_version():
    """Products are split before they exceed floating point, and rising factorials are computed by log Gamma."""
    sample = Sample([{0: 70, 1: 3}, {0: 40}, {1: 900}], 5, 3, 60, 2, 0.0)
    sample.elsewhere *= 1000
    sample.eta *= 1e-6
    found = sample.swept(True)
    expected = naive.sweep(
        *sample.pair_arrays, sample.key, sample.alpha, sample.eta, sample.gamma, True, False, 0, sample.free, sample.parents,
        sample.elsewhere, sample.other_documents, sample.path, sample.z,
    )  # fmt: skip
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


@given(samples(), st.booleans(), st.booleans(), st.integers(0, 2**31))
def test_move_subtrees__equals_the_naive_version(sample, births, shared, seed):
    """Nodes are moved by the joint probability of the whole state, including nodes that no other shard has."""
    sample.path[:] = np.where(sample.path[:, :1] < 0, sample.path[sample.path[:, 0].argmax()], sample.path)
    assume(sample.path.size and sample.path[0, 0] >= 0)
    nodes = {0, *np.flatnonzero(sample.other_documents), *sample.path.ravel()}
    assert nodes == set(sample.parents)
    reusable = np.random.default_rng(seed).integers(0, 2, sample.other_documents.size)
    found = sample.swept(births, hang=(shared, reusable))
    expected = naive.move_subtrees(
        *sample.pair_arrays, sample.key, sample.alpha, sample.eta, sample.gamma, births, shared, sample.free,
        set(np.flatnonzero(reusable)), sample.parents, sample.elsewhere, sample.other_documents, sample.path, sample.z,
    )  # fmt: skip
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])
    assert found[2] == expected[2]
    assert found[3] == expected[3]


def test_count_histogram__equals_the_naive_version():
    """This includes counts so large that they are listed one by one."""
    noise = np.random.default_rng(1)
    row, level = noise.poisson(1.0, (7, 9)).astype(np.int32), noise.integers(-1, 3, 9)
    row[2, 3:6] = MAX_TALLIED - 1, MAX_TALLIED, 10 * MAX_TALLIED
    level[3:6] = 1, 2, 0
    tally, large, larger = (
        np.zeros((3, MAX_TALLIED), dtype=np.int64),
        np.zeros(1, dtype=np.int64),
        np.zeros((5, 2), dtype=np.int64),
    )
    gibbs_tree.count_histogram(row, level, tally, large, larger)
    found = {(int(at), int(count)): int(tally[at, count]) for at, count in np.argwhere(tally)}
    found.update({(int(at), int(count)): 1 for at, count in larger[: large[0]]})
    assert large[0] == 2
    assert found == naive.count_histogram(row, level, 3)


@given(bags(), st.integers(0, 2**31), st.integers(2, 4))
def test_fold__equals_the_naive_version(bag, seed, depth):
    shard, noise = Shard.of(0, documents_of(bag[0])), np.random.default_rng(seed)
    phi, count = noise.dirichlet(np.full(shard.words.size, 0.5), 6).T + 1e-3, int(noise.integers(1, 5))
    paths, log_prior = noise.integers(0, 6, (count, depth)), np.log(noise.dirichlet(np.ones(count)))
    alpha = noise.uniform(0.1, 3.0, depth)
    chosen, mean = np.zeros(shard.documents, dtype=np.int64), np.zeros((shard.documents, depth))
    phi = np.ascontiguousarray(phi)
    gibbs_tree.fold_documents(document_pairs(shard), alpha, CandidatePaths(paths, log_prior, phi), chosen, mean)
    expected = naive.fold_documents(*document_pairs(shard)[:3], alpha, phi, log_prior, paths)
    np.testing.assert_array_equal(chosen, expected[0])
    np.testing.assert_allclose(mean, expected[1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mean.sum(axis=1), shard.lengths, atol=1e-9)
