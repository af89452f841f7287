"""The compiled sampler of networks against posteriors that can be enumerated, and Geweke's joint-distribution test."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from collapsium.pipeline.models.registry import make_family, make_options
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import Summary
from collapsium.workers.families.networks import sampled as sampler
from collapsium.workers.families.networks.graph import Graph
from collapsium.workers.families.networks.sampled import NetworkSampler, draw_discounts, draw_strengths, padded
from collapsium.workers.families.networks.states import NodeTotals, SampledSums
from collapsium.workers.kernels.networks import paths
from tests.conftest import INTERPRETED, mark_rest_long
from tests.naive.network import Network, log_probability
from tests.networks import DIAMOND
from tests.strategies import shard_of
from tests.workers.families.gibbs.test_gibbs_exact import WORDS, log_words, p_value
from tests.workers.families.networks.test_network_exact import Case, states_of

ALPHA, BETA = 0.7, 1.5


class Chain:
    """The sampler on one shard, with one sweep per step and the driver's draws of learned strengths and discounts.

    The words may be replaced between steps.
    """

    def __init__(self, family, shard, seed, words=WORDS, **options):
        self.stream, self.iteration = Stream(seed), 0
        self.options = make_options(family, {"topics": 2, "alpha": ALPHA, "beta": BETA, "learn": (), **options})
        summary = Summary(shard.documents, words, shard.tokens)
        self.global_state = make_family(family, self.options).initialise(summary, self.stream)
        self.graph = Graph.of(shard, self.global_state.plan)
        z = np.random.default_rng(seed).integers(0, self.options.topics, shard.tokens).astype(np.uint16)
        word_topic = np.zeros((shard.words.size, self.options.topics), np.int32)
        self.sampling = NetworkSampler.of(shard, self.graph, self.global_state, self.options, z, word_topic)
        self.sampling.run(self.stream, initialise=True)
        self.replace_words(shard, z)

    def replace_words(self, shard, z):
        """Replace the words, and the topics in their order."""
        row = np.zeros((shard.words.size, padded(self.options.topics)), dtype=np.int32)
        np.add.at(row, (np.repeat(shard.position, shard.counts), z), 1)
        counts = {"token_topic": z, "word_topic": row, "topic": row.sum(axis=0).astype(np.float64)}
        self.sampling.shard, self.sampling.counts = shard, self.sampling.counts._replace(**counts)

    def step(self):
        self.iteration += 1
        at = self.stream.at(purpose="sweep", iteration=self.iteration)
        statistics = self.sampling.run(at)
        if not self.options.learn:
            return
        graph, unshared = self.graph, slice(self.graph.shared, None)
        customers, tables = statistics.customers[unshared], statistics.tables[unshared]
        nodes = NodeTotals(graph.node_kind[unshared], graph.is_root[unshared], customers, tables)
        sums = SampledSums.of(nodes, statistics, self.global_state, at)
        strength = draw_strengths(self.global_state, sums, self.options.strength_mean, at)
        self.global_state = replace(self.global_state, strength=strength)
        if "discount" in self.options.learn:
            self.global_state = replace(self.global_state, discount=draw_discounts(self.global_state, sums, at))
        self.sampling.global_state = self.global_state

    def z(self):
        return self.sampling.counts.token_topic

    def tables(self):
        """Return s of all edges."""
        topics = self.options.topics
        found = np.zeros((self.graph.edge_parent.size, topics), dtype=np.int64)
        start, entries, topic, count = self.sampling.tables
        number = np.repeat(np.arange(entries.size), entries)
        at = np.repeat(start - np.cumsum(entries) + entries, entries) + np.arange(number.size)
        found[number, topic[at]] = count[at]
        found[: int(self.graph.node_edges[self.graph.shared])] = self.sampling.counts.shared_tables[:, :topics]
        return found


def tokens_of(shard, graph):
    """Return each token's node and word."""
    pair = np.repeat(np.arange(shard.pairs), shard.counts)
    segment = np.repeat(np.arange(graph.segment_node.size), np.diff(shard.segments.pairs))
    return graph.segment_node[segment][pair], shard.words[shard.position[pair]]


def enumerated(chain, shard):
    """Return log p(z, s | words) of all states, up to a constant."""
    graph, global_state = chain.graph, chain.global_state
    node, words = tokens_of(shard, graph)
    parents = [graph.edge_parent[a:b].tolist() for a, b in zip(graph.node_edges, graph.node_edges[1:], strict=False)]
    parameters = global_state.strength, global_state.discount, global_state.alpha, graph.node_kind, graph.edge_mixing
    found = {}
    for (z, _), state in states_of(Case(parents, node.tolist()), Network(parents, *parameters)).items():
        key = z, state.s.astype(np.int64).tobytes()
        found[key] = log_probability(state) + log_words(words, np.array(z), 2, BETA)
    return found


SECTIONS = {name: value for name, value in DIAMOND.items() if name != "corpus"}
TINY = {
    "tree": ("segmented-lda", {}, [[{0: 1, 1: 1}, {}, {1: 1}], [{2: 1}]]),
    "chain": ("sequential-lda", {}, [[{0: 2}, {}, {1: 1}]]),
    "diamond": ("dirichlet-network", {"network": {**SECTIONS, "document": {"over": "document"}}}, [[{0: 1, 1: 1}, {1: 1}]]),
    "below a corpus": ("dirichlet-network", {"network": DIAMOND}, [[{0: 1}], [{0: 1}, {1: 1}]]),
}  # fmt: skip


@pytest.mark.parametrize(("discount", "moving"), [(0.0, True), (0.4, False)])
@pytest.mark.parametrize("name", mark_rest_long(TINY, retained=(0, 2)))
def test_sweeps__sample_from_the_posterior(name, discount, moving):
    """The frequencies of topics and tables match, with token moves alone and with moves of tables."""
    family, options, documents = TINY[name]
    shard = shard_of(documents)
    chain = Chain(family, shard, 4, strength=1.3, discount=discount, tables=moving, **options)
    expected, samples = enumerated(chain, shard), []
    for number in range(20 + 9 * 800):
        chain.step()
        if number >= 20 and number % 9 == 0:  # thinned samples are nearly independent
            samples.append((tuple(chain.z().tolist()), chain.tables().tobytes()))
    assert p_value(samples, expected) > 0.01
    # the test must reject other parameters
    assert p_value(samples, {state: 0.5 * value for state, value in expected.items()}) < 1e-4


def test_room_for_tables__doubles_for_documents_of_many_segments(monkeypatch):
    """Each call of the kernel works through all nodes, so the number of calls may not grow with the number of
    segments."""
    calls = []

    def count_calls(*arguments):
        calls.append(arguments[-1].tables.topic.size)
        sampler_kernel(*arguments)

    sampler_kernel = sampler.sweep_network
    monkeypatch.setattr(sampler, "sweep_network", count_calls)
    chain = Chain("sequential-lda", shard_of([[{n % WORDS: 1} for n in range(4000)]]), 2)
    calls.clear()
    chain.step()
    assert 1 < len(calls) < 10
    assert all(after >= 2 * before for before, after in itertools.pairwise(calls))


EVERY_OTHER = {
    "document": {"over": "document"},
    "segment": {"over": "segment", "parents": ["segment[-2]"], "otherwise": ["document"]},
}
PARTS = {
    "document": {"over": "document"},
    "part": {"over": "segment", "every": 5, "parents": ["part[-1]"], "otherwise": ["document"]},
    "segment": {"over": "segment", "parents": ["part"]},
}  # fmt: skip


@pytest.mark.kernels
@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.skipif(not INTERPRETED, reason="steps of compiled kernels cannot be counted")
@pytest.mark.parametrize("network", [EVERY_OTHER, PARTS])
def test_lists_of_ancestors__do_not_grow_with_the_number_of_segments(network, monkeypatch):
    """In a chain of segments, each segment lists only a few ancestors, not all earlier segments."""
    listed = []

    def count_calls(state):
        listed.append(state.line.waiting[0])
        return list_next(state)

    list_next = paths.list_next
    monkeypatch.setattr(paths, "list_next", count_calls)
    segments = 400
    chain = Chain("dirichlet-network", shard_of([[{n % WORDS: 1} for n in range(segments)]]), 2, network=network)
    listed.clear()
    chain.step()
    assert segments < len(listed) < 20 * segments


DOCUMENTS = [[3, 0, 2], [2], [1, 2]]  # tokens of segments
MEAN = 2.0


def drawn_words(documents, noise):
    """Draw words of each segment's tokens given their topics; return the shard, and the topics in its order."""
    phi = noise.dirichlet(np.full(WORDS, BETA / WORDS), 3).cumsum(axis=1)[:, :-1]
    rows, topics = [], []
    for document in documents:
        rows.append([])
        for z in document:
            words = (noise.random((len(z), 1)) > phi[z]).sum(axis=1)
            rows[-1].append({w: n for w, n in enumerate(np.bincount(words, minlength=WORDS).tolist()) if n})
            topics += np.asarray(z)[np.argsort(words, kind="stable")].tolist()
    return shard_of(rows), np.array(topics, dtype=np.uint16)


def split_up(z):
    """Return the topics by document and segment."""
    found, at = [], 0
    for document in DOCUMENTS:
        found.append([])
        for size in document:
            found[-1].append(z[at : at + size])
            at += size
    return found


def from_the_prior(graph, strength, discount, noise):
    """Draw topics and tables from the prior: each customer sits down, and each new table becomes a customer of a
    parent."""
    tables = [[] for _ in graph.node_kind]  # (value, customers)
    counts = np.zeros((graph.node_kind.size, 3))
    edges = np.zeros((graph.edge_parent.size, 3), dtype=int)

    def chosen(weight):
        running = weight.cumsum()
        return int(running.searchsorted(noise.random() * running[-1], side="right"))

    def come(j):
        first, last = graph.node_edges[j], graph.node_edges[j + 1]
        if first == last:
            k = chosen(ALPHA + counts[j])
            counts[j, k] += 1
            return k
        b, a = strength[graph.node_kind[j]], discount[graph.node_kind[j]]
        weight = np.array([size - a for _, size in tables[j]] + [b + a * len(tables[j])])
        at = chosen(weight)
        if at == len(tables[j]):
            asked = graph.edge_mixing[first:last] + edges[first:last].sum(axis=1)
            e = first + chosen(asked)
            k = come(graph.edge_parent[e])
            edges[e, k] += 1
            tables[j].append([k, 0])
        tables[j][at][1] += 1
        return tables[j][at][0]

    sizes = [size for document in DOCUMENTS for size in document]
    z = [come(j) for j, size in zip(graph.segment_node, sizes, strict=True) for _ in range(size)]
    return np.array(z), edges


def statistics(shard, z, s, graph, strength, discount):
    """Return the statistics in which both samples are compared."""
    row = np.zeros((WORDS, 3))
    node, words = tokens_of(shard, graph)
    np.add.at(row, (words, z), 1)
    n = np.zeros((graph.node_kind.size, 3))
    np.add.at(n, (node, z), 1)
    nodes_of_kind = np.bincount(
        graph.node_kind[np.repeat(np.arange(n.shape[0]), np.diff(graph.node_edges))], s.sum(axis=1), strength.size
    )
    child = np.unique(graph.node_kind[np.flatnonzero(np.diff(graph.node_edges))])
    found = [(row**2).sum(), (n**2).sum(), (row.sum(axis=0) ** 2).sum(), (s**2).sum()]
    first = s[graph.node_edges[:-1][np.diff(graph.node_edges) > 1]]
    found += [first.sum()] if first.size else []
    for kind in child:
        b, a = strength[kind], discount[kind]
        found += [nodes_of_kind[kind], np.log(b), b, np.log(b) * nodes_of_kind[kind]]
        found += [a, a**2, a * nodes_of_kind[kind], a * b] if discount.any() else []
    return found


GEWEKE = {
    "segmented": ("segmented-lda", {}),
    "sequential": ("sequential-lda", {}),
    "diamond": ("dirichlet-network", {"network": DIAMOND}),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "learn"),
    [("segmented", ("strength",)), *((name, ("strength", "discount")) for name in GEWEKE)],
    ids=lambda words: words if isinstance(words, str) else "-".join(words),
)
def test_geweke__alternating_conditional_draws_leave_the_joint_distribution_unchanged(name, learn):
    """Draws of all variables from the prior have the distribution of a chain that alternates draws given words and
    words given topics.

    The chain draws hyperparameters, topics and tables given words; b is exponential, and a uniform.
    """
    family, options = GEWEKE[name]
    noise = np.random.default_rng(7)
    shard, _ = drawn_words(split_up(np.zeros(13, dtype=int)), noise)
    chain = Chain(family, shard, 8, topics=3, learn=learn, strength=MEAN, strength_mean=MEAN, **options)
    graph, kinds, straight, turns = chain.graph, chain.global_state.strength.size, [], []
    for _ in range(2500):
        strength = noise.exponential(MEAN, kinds)
        discount = noise.random(kinds) * ("discount" in learn)
        z, s = from_the_prior(graph, strength, discount, noise)
        shard, z = drawn_words(split_up(z), noise)
        straight.append(statistics(shard, z, s, graph, strength, discount))
    for _ in range(3200):
        chain.step()
        shard, z = drawn_words(split_up(chain.z()), noise)
        chain.replace_words(shard, z)
        turns.append(
            statistics(shard, z, chain.tables(), graph, chain.global_state.strength, chain.global_state.discount)
        )
    straight, turns = np.array(straight), np.array(turns)[200:]
    batches = turns.reshape(50, -1, turns.shape[1]).mean(axis=1)  # batches are nearly independent
    error = np.sqrt(straight.var(axis=0) / len(straight) + batches.var(axis=0, ddof=1) / 50)
    score = (straight.mean(axis=0) - turns.mean(axis=0)) / error
    assert (np.abs(score) < 3.5).all(), score
    # an error of a third of a standard deviation would be significant
    assert (error < 0.1 * straight.std(axis=0)).all()


@pytest.mark.parametrize("b", [0.5, 20.0])
def test_a_single_segment__is_lda_with_a_prior_of_two_levels(b):
    """Topics given words, with proportions of documents and their segments integrated numerically, have these
    frequencies."""
    shard = shard_of([[{0: 2, 1: 1}], [{1: 2, 2: 1}]])
    chain = Chain("segmented-lda", shard, 6, strength=b)
    node, words = tokens_of(shard, chain.graph)
    mu, weight = np.polynomial.legendre.leggauss(400)
    x = 0.5 * (1 - np.cos(np.pi * (mu + 1) / 2))  # avoids the singularities of the beta density at 0 and 1
    weight = weight * np.sin(np.pi * (mu + 1) / 2) * stats.beta(ALPHA, ALPHA).pdf(x)

    def log_document(n):
        rising = [np.exp(gammaln(b * p + k) - gammaln(b * p)) for p, k in ((x, n[0]), (1 - x, n[1]))]
        return np.log((weight * rising[0] * rising[1]).sum())

    expected, samples = {}, []
    for bits in range(2**6):
        z = np.array([bits >> place & 1 for place in range(6)])
        n = [np.bincount(z[node == j], minlength=2) for j in np.unique(node)]
        expected[tuple(z.tolist())] = sum(map(log_document, n)) + log_words(words, z, 2, BETA)
    for number in range(20 + 3 * 2000):
        chain.step()
        if number >= 20 and number % 3 == 0:
            samples.append(tuple(chain.z().tolist()))
    assert p_value(samples, expected) > 0.01


@pytest.mark.parametrize(("b", "a"), [(0.1, 0.0), (3.0, 0.0), (1e5, 0.0), (2.0, 0.3)])
def test_tokens_of_segments__share_topics_as_often_as_b_implies(b, a):
    """Without information from words, two tokens have the same topic with probability E[sum nu^2] within a segment.

    E[sum nu^2] = E[sum mu^2] + (1 - E[sum mu^2]) (1 - a) / (b + 1). Between two segments, it is E[sum mu^2], as in LDA
    on documents.
    """
    shard = shard_of([[{0: 2}, {0: 1}]] * 30)
    chain = Chain("segmented-lda", shard, 6, words=1, strength=b, discount=a)
    within, between = [], []
    for number in range(820):
        chain.step()
        if number >= 20:
            z = chain.z().reshape(30, 3)
            within.append((z[:, 0] == z[:, 1]).mean())
            between.append((z[:, 0] == z[:, 2]).mean())
    alike = (ALPHA + 1) / (2 * ALPHA + 1)
    for found, expected in ((within, alike + (1 - alike) * (1 - a) / (b + 1)), (between, alike)):
        batches = np.array(found).reshape(20, -1).mean(axis=1)
        error = batches.std(ddof=1) / np.sqrt(20)
        assert abs(np.mean(found) - expected) < 3.5 * error
        assert error < 0.02
