"""The kernels of networks against the naive version, on random shards and networks."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln, psi
from scipy.stats import chisquare

from collapsium.storage.corpus.labels import Labels, LabelTable
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import Summary
from collapsium.workers.families.networks.dirichlet_network import Vectors, plan_of
from collapsium.workers.families.networks.family import NetworkOptions
from collapsium.workers.families.networks.graph import Graph
from collapsium.workers.families.networks.sampled import (
    NetworkSampler,
    SampledNetwork,
    padded,
    repair_tables,
    sweep_shared,
    tables_for,
    with_changes,
)
from collapsium.workers.kernels.jit import DocumentPairs
from collapsium.workers.kernels.networks.means import pair_probabilities
from collapsium.workers.kernels.networks.records import GraphArrays, NodeStatistics, SamplingHyperparameters, TableDraws
from collapsium.workers.kernels.networks.sweep import sweep_shared_nodes
from tests.naive import network as naive
from tests.naive import network_sums
from tests.naive.network import Layout, Network, State
from tests.networks import DIAMOND, LABELS
from tests.strategies import segmented, shard_of

pytestmark = pytest.mark.usefixtures("wrapping")

WORDS = 3
NAMES = (("kind", "a"), ("kind", "b"), ("other", "c"))
TABLE = LabelTable(NAMES, (1, 1, 1), (), 3, 1)
DOCUMENT = {"document": {"over": "document"}}
PLANS = {
    "segmented": {**DOCUMENT, "segment": {"over": "segment", "parents": ["document"]}},
    "sequential": {**DOCUMENT, "segment": {"over": "segment", "parents": ["segment[-1]"], "otherwise": ["document"]}},
    "every other segment": {
        **DOCUMENT,
        "segment": {"over": "segment", "parents": ["segment[-2]"], "otherwise": ["document"]},
    },
    "a chain of parts": {
        **DOCUMENT,
        "part": {"over": "segment", "every": 2, "parents": ["part[-1]"], "otherwise": ["document"]},
        "segment": {"over": "segment", "parents": ["part"]},
    },
    "diamond": DIAMOND,
    "labels": LABELS,
    "documents below the corpus": {"corpus": {"over": "corpus"}, "document": {"over": "document", "parents": ["corpus"]}},
    "segments share vectors": {**DOCUMENT, "part": {"over": "segment", "every": 2, "parents": ["document"]}},
    "two roots": {
        "corpus": {"over": "corpus"},
        **DOCUMENT,
        "segment": {"over": "segment", "parents": ["corpus", "document"], "mixing": 0.4},
    },
    "nobody draws from segments": {**DOCUMENT, "segment": {"over": "segment", "parents": ["document"]}},
    "no parents": DOCUMENT,
}  # fmt: skip
WORDS_FROM = {"nobody draws from segments": "document"}


class PlannedOptions(NetworkOptions):
    """Options of a network with any plan."""

    fixed_plan: Any  # a `Plan`

    def plan(self, labels):
        return self.fixed_plan


class NetworkExample:
    """A shard, its network for the kernels and for the naive version, and an empty state of each.

    The vectors above documents may have customers of other shards.
    """

    def __init__(self, plan, documents, topics, discounted, seed, elsewhere=6):
        noise = np.random.default_rng(seed)
        shard = shard_of(documents)
        has = noise.random((shard.documents, len(NAMES))) < 0.5
        offsets = np.concatenate([[0], np.cumsum(has.sum(axis=1))]).astype(np.int64)
        labels = Labels(NAMES, offsets, np.nonzero(has)[1].astype(np.int32))
        self.shard = type(shard)(0, shard.offsets, shard.words, shard.position, shard.counts, labels, shard.segments)
        given_ = {name: Vectors(**options) for name, options in PLANS[plan].items()}
        plan_ = plan_of(given_, WORDS_FROM.get(plan, list(given_)[-1]), TABLE)
        self.options = PlannedOptions(topics=topics, alpha=0.6, beta=1.8, learn=("alpha", "discount"), fixed_plan=plan_)
        summary = Summary(shard.documents, WORDS, shard.tokens, labels=TABLE)
        self.family, kinds = SampledNetwork(self.options), len(plan_.kinds)
        self.global_state = replace(
            self.family.initialise(summary, Stream(0)),
            alpha=noise.gamma(1.0, 0.7, topics) + 0.05,
            strength=noise.gamma(1.0, 3.0, kinds) + 0.05,
            discount=noise.uniform(0.05, 0.9, kinds) * discounted,
        )
        self.graph, self.topics, self.noise, self.seed = Graph.of(self.shard, plan_), topics, noise, seed
        self.shared = self.graph.shared
        self.state = self.nothing()
        for place in range(elsewhere if self.shared else 0):
            node, k = int(noise.integers(self.shared)), int(noise.integers(topics))
            naive.enter(self.state, place, node, k, lambda _: float(noise.random()))
        self.put_shared()
        self.z = noise.integers(0, topics, self.shard.tokens).astype(np.uint16)
        segments = self.shard.segments
        self.laid = Layout(
            self.graph.document_nodes,
            segments.documents,
            self.graph.segment_node,
            segments.pairs,
            shard.position,
            shard.counts,
        )

    def network(self, held=0):
        graph = self.graph
        parents = [
            graph.edge_parent[a:b].tolist() for a, b in zip(graph.node_edges, graph.node_edges[1:], strict=False)
        ]
        given_ = self.global_state.strength, self.global_state.discount, self.global_state.alpha
        drawn = Network(parents, *given_, graph.node_kind, graph.edge_mixing, held)
        drawn.levels, longest = graph.levels, drawn.levels
        assert drawn.levels >= longest
        return drawn

    def nothing(self):
        shape = self.graph.node_kind.size, self.topics
        return State(self.network(), np.zeros(shape, int), np.zeros((self.graph.edge_parent.size, self.topics), int))

    def put_shared(self):
        """Set the kernels' counts of shared nodes to the naive state's."""
        customers, tables = self.state.m[: self.shared], self.state.s[: self.graph.node_edges[self.shared]]
        self.global_state = replace(self.global_state, shared_customers=customers.copy(), shared_tables=tables.copy())

    def hold(self):
        """Fix the shared nodes from now on."""
        self.state = State(self.network(self.shared), self.state.n, self.state.s, self.state.m)

    def sampling(self):
        row = np.zeros((self.shard.words.size, self.topics), dtype=np.int32)
        np.add.at(row, (np.repeat(self.shard.position, self.shard.counts), self.z), 1)
        self.row = row + self.noise.poisson(1.0, row.shape).astype(np.int32)
        self.totals = self.row.sum(axis=0) + 2
        self.global_state = replace(self.global_state, topic=self.totals)
        return NetworkSampler.of(self.shard, self.graph, self.global_state, self.options, self.z, self.row)

    def sweep(self, stream, moving, held):
        """Sweep with the naive version."""
        keys = [stream.at(purpose=f"{stream.purpose}{name}").key() for name in ("", " tables")]
        given_ = self.state, self.laid, self.z, self.row, self.totals, 1.8 / WORDS, 1.8, *keys[: 1 + moving]
        values = padded(self.topics)
        naive.sweep(*given_, values=values, held=held, after_move=require_valid)

    def require_same(self, sampling, statistics):
        np.testing.assert_array_equal(sampling.counts.token_topic, self.z)
        np.testing.assert_array_equal(dense(sampling, self.topics), self.state.s)
        shared = sampling.counts.shared_customers, sampling.counts.shared_tables
        for moved, expected in zip(shared, (self.state.m, self.state.s), strict=True):
            np.testing.assert_array_equal(moved[:, : self.topics], expected[: len(moved)])
            assert not moved[:, self.topics :].any()
        np.testing.assert_array_equal(sampling.counts.word_topic[:, : self.topics], self.row)
        np.testing.assert_array_equal(sampling.counts.topic[: self.topics], self.totals)
        below = slice(self.shared, None)
        tables = np.array([self.state.tables(i).sum() for i in range(self.state.network.nodes)])
        np.testing.assert_array_equal(statistics.customers[below], self.state.m.sum(axis=1)[below])
        np.testing.assert_array_equal(statistics.tables[below], tables[below])


def require_valid(state):
    assert state.is_valid()


def dense(sampling, topics):
    """Return s of all edges."""
    found = np.zeros((sampling.graph.edge_parent.size, topics), dtype=int)
    start, entries, topic, count = sampling.tables
    for e in range(len(found)):
        found[e, topic[start[e] : start[e] + entries[e]]] = count[start[e] : start[e] + entries[e]]
    edges = int(sampling.graph.node_edges[sampling.graph.shared])
    found[:edges] = sampling.counts.shared_tables[:, :topics]
    return found


@st.composite
def networks_of(draw, plans=tuple(PLANS)):
    given_ = draw(st.sampled_from(plans)), draw(segmented()), draw(st.sampled_from([1, 2, 3, 18]))
    return NetworkExample(*given_, draw(st.booleans()), draw(st.integers(0, 2**31)))


MANY = settings(max_examples=60)


@pytest.mark.kernels
@MANY
@given(networks_of(), st.booleans(), st.booleans())
def test_sweep_network__equals_the_naive_version(drawn, moving, held):
    """Tokens are added and moved twice; after each move of the naive version, its state must be valid."""
    drawn.options = drawn.options.model_copy(update={"tables": moving})
    if held:
        drawn.hold()
    sampling, stream = drawn.sampling(), Stream(drawn.seed, "x")
    naive.enter_all(drawn.state, drawn.laid, drawn.z, stream.key(), require_valid)
    drawn.require_same(sampling, sampling.run(stream, initialise=True, fold_in=held))
    for iteration in (1, 2):
        iteration_stream = stream.at(iteration=iteration)
        drawn.sweep(iteration_stream, moving, held)
        statistics = sampling.run(iteration_stream, fold_in=held)
        drawn.require_same(sampling, statistics)
        nodes = range(drawn.shared, drawn.state.network.nodes)
        log_terms = np.zeros(drawn.global_state.strength.size)
        for i in nodes:
            log_terms[drawn.graph.node_kind[i]] += network_sums.log_terms(drawn.state, [i])
        np.testing.assert_allclose(statistics.kind_sums[:, 0], log_terms, rtol=1e-9, atol=1e-9)


@pytest.mark.kernels
@given(networks_of(), st.booleans())
def test_means_lists_and_dots__equal_the_naive_version(drawn, held):
    if held:
        drawn.hold()
    sampling, stream = drawn.sampling(), Stream(drawn.seed)
    sampling.run(stream, initialise=True, fold_in=held)
    sampling.run(stream.at(iteration=1), fold_in=held)
    graph, local, shard = drawn.graph, sampling.local(), drawn.shard
    n = drawn.state.n.copy()
    np.add.at(n, (drawn.laid.tokens()[1], sampling.counts.token_topic), 1)
    m = None
    if held:
        m = State(drawn.network(), n, dense(sampling, drawn.topics)).m
        m[: drawn.shared] = drawn.state.m[: drawn.shared]
    state = State(drawn.state.network, n, dense(sampling, drawn.topics), m)
    require_valid(state)
    tables = sampling.counts.shared_tables[:, : drawn.topics]
    global_state = replace(drawn.global_state, shared_customers=state.m[: drawn.shared], shared_tables=tables)
    mean = naive.expected(state)[drawn.shared :]
    vectors = drawn.family.node_vectors(local, global_state)
    np.testing.assert_allclose(vectors, mean, rtol=2e-6, atol=1e-9)
    starts, topic, count = local.counts.node_tokens.record
    listed = [list(zip(topic[a:b], count[a:b], strict=True)) for a, b in zip(starts, starts[1:], strict=False)]
    nodes = range(drawn.shared, graph.node_kind.size)
    assert listed == network_sums.count_node_topics(drawn.laid.tokens()[1], sampling.counts.token_topic, nodes)
    phi, probability = drawn.noise.random((shard.words.size, drawn.topics)), np.empty(shard.pairs)
    segments = DocumentPairs(shard.segments.pairs, shard.position, shard.counts)
    pair_probabilities(segments, graph.segment_node - drawn.shared, mean.astype(np.float32), phi, probability)
    expected = network_sums.pair_probabilities(drawn.laid._replace(node=graph.segment_node - drawn.shared), mean, phi)
    np.testing.assert_allclose(probability, expected, rtol=1e-5)


def log_words(words, z, topics):
    """Return log p(w | z), with phi integrated out."""
    row = np.zeros((topics, WORDS))
    np.add.at(row, (z, words), 1)
    found = (gammaln(1.8 / WORDS + row) - gammaln(1.8 / WORDS)).sum()
    return found + (gammaln(1.8) - gammaln(1.8 + row.sum(axis=1))).sum()


@MANY
@given(networks_of())
def test_objective__is_the_log_probability_of_what_is_sampled(drawn):
    """The sums that the driver gets from one shard give log p(w, z, tables) exactly, while hyperparameters are
    learned."""
    drawn.state = drawn.nothing()
    drawn.put_shared()
    model, global_state, stream = drawn.family, drawn.global_state, Stream(drawn.seed)
    block = model.initial_rows(WORDS, global_state)
    rows = block.of_words(drawn.shard.words, complete=False)
    local, delta = model.start(drawn.shard, rows, global_state, stream)
    words = np.repeat(drawn.shard.words[drawn.shard.position], drawn.shard.counts)
    for iteration in range(3):
        block, sums = model.fold(block, delta.with_dim("word"), global_state)
        sums = delta.without_dim("word") + sums
        if iteration:
            drawn.global_state = global_state
            n = np.zeros((drawn.graph.node_kind.size, drawn.topics), dtype=int)
            np.add.at(n, (drawn.laid.tokens()[1], local.token_topic), 1)
            after = with_changes(global_state, sums)
            sampling = NetworkSampler.of(
                drawn.shard, drawn.graph, after, drawn.options, local.token_topic, block.word_topic[drawn.shard.words]
            )
            sampling.tables = local.counts.tables.record
            state = State(drawn.network(), n, dense(sampling, drawn.topics))
            require_valid(state)
            np.testing.assert_array_equal(state.m[: drawn.shared], after.shared_customers)
            expected = naive.log_probability(state) + log_words(words, local.token_topic, drawn.topics)
            assert model.objective(global_state, sums)["objective"] == pytest.approx(expected, rel=1e-9, abs=1e-9)
        global_state = model.update(global_state, sums, stream.at(iteration=iteration))
        rows = block.of_words(drawn.shard.words, complete=False)
        local, delta = model.sweep(
            drawn.shard, local, rows, global_state, stream.at(purpose="sweep", iteration=iteration)
        )


@pytest.mark.kernels
@given(networks_of(("labels", "two roots")))
def test_sweep_shared_nodes__equals_the_naive_version(drawn):
    graph, stream = drawn.global_state.plan.shared_graph(), Stream(drawn.seed)
    nodes, network = graph.shared, drawn.network()
    parents = [[parent for e, (_, parent) in enumerate(network.edges) if e in network.of[i]] for i in range(nodes)]
    given_ = drawn.global_state.strength, drawn.global_state.discount, drawn.global_state.alpha
    of_above = Network(parents, *given_, graph.node_kind, graph.edge_mixing)
    state = State(of_above, drawn.state.n[:nodes], drawn.global_state.shared_tables)
    found = sweep_shared(drawn.global_state, stream, move=True, count_joins=True)
    key = stream.at(purpose="above tables").key()
    naive.move_tables(state, range(nodes), naive.numbers_of(key), padded(drawn.topics), require_valid)
    np.testing.assert_array_equal(found.customers, state.m)
    np.testing.assert_array_equal(found.tables, state.s)
    log_terms = np.zeros(drawn.global_state.strength.size)
    for i in range(nodes):
        log_terms[graph.node_kind[i]] += network_sums.log_terms(state, [i])
    np.testing.assert_allclose(found.sums.stirling, log_terms, rtol=1e-9, atol=1e-9)
    rising = np.zeros(drawn.topics)
    for i in (i for i in range(nodes) if not of_above.of[i]):
        rising += drawn.global_state.alpha * (
            psi(drawn.global_state.alpha + state.m[i]) - psi(drawn.global_state.alpha)
        )
    np.testing.assert_allclose(found.sums.alpha_numerator, rising, rtol=1e-9, atol=1e-12)


def joins(m, t, a):
    """Return the distribution of the number of joins with weight 1 - a, as coefficients of the polynomial S^m_t."""
    ways = {(1, 1): np.array([1.0])}
    for size in range(2, m + 1):
        for tables in range(1, size + 1):
            found = np.zeros(size)
            if (size - 1, tables - 1) in ways:
                opened = ways[size - 1, tables - 1]
                found[: opened.size] += opened
            if (size - 1, tables) in ways:
                joined = ways[size - 1, tables]
                found[: joined.size] += (size - 1 - tables) * joined
                found[1 : 1 + joined.size] += tables * (1 - a) * joined
            ways[size, tables] = found
    return ways[m, t] / ways[m, t].sum()


@pytest.mark.kernels
@pytest.mark.parametrize(("m", "t", "a"), [(5, 2, 0.3), (9, 3, 0.7), (6, 1, 0.2), (4, 4, 0.5)])
def test_joins__are_drawn_from_their_distribution(m, t, a):
    """There is a root and one vector below it, each of whose values has m customers at t tables."""
    values, tally = 16, Counter()
    customers, tables = np.array([[t] * values, [m] * values], dtype=np.int32), np.full((1, values), t, dtype=np.int32)
    graph = GraphArrays(np.zeros(2, np.int32), np.array([0, 0, 1]), np.array([0]), np.ones(1))
    hyperparameters = SamplingHyperparameters(np.ones(1), np.array([a]), np.ones(values), tables_for([a], m))
    draws = 600
    for seed in range(draws):
        before, statistics = (
            customers.copy(),
            NodeStatistics(np.zeros(2, int), np.zeros(2, int), np.zeros((1, 2)), np.zeros(values)),
        )
        table_draws = TableDraws(0, Stream(seed).key(), 1, Stream(seed, "joins").key())
        sweep_shared_nodes(graph, hyperparameters, table_draws, customers, tables, statistics)
        np.testing.assert_array_equal(customers, before)
        tally[int(statistics.kind_sums[0, 1])] += 1
    chance = joins(m, t, a)
    whole = np.ones(1)
    for _ in range(values):  # the sum over all values has the convolution of their distributions
        whole = np.convolve(whole, chance)
    expected = np.zeros(1 + max(max(tally), whole.size - 1))
    expected[: whole.size] = draws * whole
    assert set(tally) <= set(np.flatnonzero(expected).tolist())
    seen = np.array([tally[path] for path in range(expected.size)])
    often = expected > 5
    if often.sum() == 1:
        assert seen[often] == draws
        return
    seen, expected = (np.append(counts[often], counts[~often].sum()) for counts in (seen, expected))
    kept = expected > 1e-9
    assert chisquare(seen[kept], expected[kept] * seen[kept].sum() / expected[kept].sum()).pvalue > 0.01


@given(networks_of(("labels",)), st.sampled_from([0.0, 0.5, 3.0]))
def test_repaired_tables__are_valid_and_conserve_tokens(drawn, spoilt):
    """Repair changes tables that shards have moved inconsistently, but neither customers of documents' tables nor
    tokens."""
    graph = drawn.global_state.plan.shared_graph()
    customers, tables = np.array(drawn.global_state.shared_customers), np.array(drawn.global_state.shared_tables)
    noise = np.random.default_rng(drawn.seed)
    moved = noise.poisson(spoilt, tables.shape) - noise.poisson(spoilt, tables.shape)
    tables += moved  # may be negative
    np.add.at(customers, graph.edge_parent, moved)
    before = customers.copy()
    m, s = repair_tables(graph, customers, tables)
    np.testing.assert_array_equal(customers, before)
    tokens = customers.copy()
    np.subtract.at(tokens, graph.edge_parent, tables)
    kept = m.copy()
    np.subtract.at(kept, graph.edge_parent, s)
    np.testing.assert_array_equal(kept, tokens)
    network = Network(
        [graph.edge_parent[a:b].tolist() for a, b in zip(graph.node_edges, graph.node_edges[1:], strict=False)],
        drawn.global_state.strength, drawn.global_state.discount, drawn.global_state.alpha, graph.node_kind, graph.edge_mixing,
    )  # fmt: skip
    require_valid(State(network, tokens, s))
    if not moved.any():
        np.testing.assert_array_equal(m, drawn.global_state.shared_customers)
        np.testing.assert_array_equal(s, drawn.global_state.shared_tables)
