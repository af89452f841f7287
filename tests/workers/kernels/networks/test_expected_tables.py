"""Kernels of networks with expected tables against naive versions, and the accuracy of expected tables."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collapsium.pipeline.models.registry import make_family, make_options
from collapsium.storage.corpus.labels import Segments
from collapsium.storage.corpus.shard import Shard
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import Summary
from collapsium.workers.families.networks import variational as expected
from collapsium.workers.families.networks.graph import Graph
from collapsium.workers.families.networks.states import ExpectedRows
from collapsium.workers.kernels.cvb.active import UNIT
from collapsium.workers.kernels.networks.updates import MAX_TOPICS
from tests.naive import network_expected as naive
from tests.naive.network_expected import Document, Held, Words

pytestmark = pytest.mark.kernels

NETWORKS = {
    "segments": {"document": {"over": "document"}, "segment": {"over": "segment", "parents": ["document"]}},
    "chain": {
        "document": {"over": "document"},
        "segment": {"over": "segment", "parents": ["segment[-1]"], "otherwise": ["document"]},
    },
    "diamond": {
        "corpus": {"over": "corpus"},
        "one": {"over": "corpus", "parents": ["corpus"]},
        "document": {"over": "document", "parents": ["corpus"]},
        "segment": {"over": "segment", "parents": ["document", "one"], "mixing": 0.7},
    },
}
WORDS = 7


def shard_of(seed):
    """Return three documents with a few segments, some of them empty."""
    generator = np.random.default_rng(seed)
    rows, documents = [], [0]
    for _ in range(3):
        nodes = int(generator.integers(0, 4))
        rows += [np.sort(generator.permutation(WORDS)[: generator.integers(0, 5)]) for _ in range(nodes)]
        documents.append(len(rows))
    pairs = np.cumsum([0, *(row.size for row in rows)]).astype(np.int64)
    position = np.concatenate([np.zeros(0), *rows]).astype(np.int32)
    counts = generator.integers(1, 4, position.size).astype(np.int32)
    segments = Segments(np.array(documents, dtype=np.int64), pairs)
    return Shard(0, pairs[documents], np.arange(WORDS, dtype=np.int32), position, counts, None, segments)


def problem(seed, network, discount):
    """Draw a shard, its initial state, and what is given: words, and vectors above documents."""
    shard, generator, topics = shard_of(seed), np.random.default_rng(seed), 4
    options = {"topics": topics, "network": NETWORKS[network], "discount": discount, "inference": "variational"}
    options.update(learn=["strength", "alpha"], beta=3.0)
    config = make_options("dirichlet-network", options)
    model = make_family("dirichlet-network", config)
    global_state = model.initialise(Summary(3, WORDS, shard.tokens), Stream(1))
    shape = global_state.shared_mean.shape
    strength = generator.uniform(0.5, 8.0, global_state.strength.size)
    customers = generator.gamma(0.5, 8.0, shape)
    log_absent = -customers * generator.uniform(1.0, 2.0, shape)
    global_state = replace(global_state, strength=strength, shared_customers=customers, shared_log_absent=log_absent)
    global_state, _ = expected.expect_shared(global_state)
    local, delta = model.start(shard, model.initial_rows(WORDS, global_state), global_state, Stream(seed))
    word_topic = delta["word_topic"] + generator.gamma(0.3, 3.0, (WORDS, topics))
    return model, shard, local, ExpectedRows(word_topic), replace(global_state, topic=word_topic.sum(axis=0))


def documents_of(shard, local, global_state):
    """Return naive documents with the tokens that the local state gives them, and the pairs of each by node."""
    graph, found = local.graph, []
    starts, topic, count, absent = local.node_tokens.record
    pairs, lists = graph.node_pairs(shard).offsets, shares_of(local.responsibilities)
    for low, high in itertools.pairwise(graph.document_nodes):
        parents = []
        for node in range(low, high):
            edges = slice(graph.node_edges[node], graph.node_edges[node + 1])
            ids = [p - low if p >= low else p - graph.shared for p in graph.edge_parent[edges]]
            parents.append(list(zip(ids, graph.edge_mixing[edges], strict=True)))
        document = Document(
            parents, graph.node_kind[low:high], global_state.strength, global_state.discount, global_state.alpha,
            global_state.shared_mean, global_state.shared_response,
        )  # fmt: skip
        node_pairs = []
        for j, node in enumerate(range(low - graph.shared, high - graph.shared)):
            entries = slice(starts[node], starts[node + 1])
            document.node_tokens[j, topic[entries]] = count[entries]
            document.log_absent[j, topic[entries]] = absent[entries]
            node_pairs.append(
                [[shard.position[p], shard.counts[p], lists[p]] for p in range(pairs[node], pairs[node + 1])]
            )
        found.append((document, node_pairs))
    return found


def shares_of(responsibilities):
    """Return {topic: responsibility} of each pair."""
    sizes, topic, share = responsibilities.record
    ends = np.cumsum(sizes, dtype=np.int64)
    return [
        {int(k): s / 32768 for k, s in zip(topic[at], share[at], strict=True)}
        for at in (slice(end - size, end) for end, size in zip(ends, sizes.astype(int), strict=True))
    ]


@pytest.mark.parametrize("discount", [0.0, 0.3])
@pytest.mark.parametrize("network", NETWORKS)
def test_sweep__equals_the_naive_version(network, discount):
    @settings(max_examples=5)
    @given(st.integers(0, 10**6))
    def same(seed):
        model, shard, local, rows, global_state = problem(seed, network, discount)
        after, delta = model.sweep(shard, local, rows, global_state, Stream(seed))
        beta, topics = global_state.beta, global_state.alpha.size
        words = Words(rows.word_topic + beta / WORDS, global_state.topic + beta, beta / WORDS)
        above, absent, chance, lists = 0.0, 0.0, 0.0, []
        rising, sums = np.zeros(topics), np.zeros(2)
        for document, pairs in documents_of(shard, local, global_state):
            document.fold_in()
            chance += sum(document.visit(j, node_pairs, words) for j, node_pairs in enumerate(pairs) if node_pairs)
            document.gather()
            above, absent = above + document.m[document.nodes :], absent + document.z[document.nodes :]
            lists += [pair[2] for node_pairs in pairs for pair in node_pairs]
            for j in range(document.nodes):
                given_ = document.m[j], document.z[j], document.alpha
                if not document.parents[j]:
                    rising += [naive.seated(*node, 0.0) for node in zip(*given_, strict=True)]
                elif document.m[j].sum() > 0:
                    sums += document.tables[j], 1.0
        found = [dense(shares, topics) for shares in shares_of(after.responsibilities)]
        np.testing.assert_allclose(found, [dense(shares, topics) for shares in lists], atol=5e-3)
        np.testing.assert_allclose(delta["log_likelihood"], chance, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(delta["shared_customers"], above, rtol=0.02, atol=0.02)
        np.testing.assert_allclose(delta["shared_log_absent"], absent, rtol=0.05, atol=0.05)
        np.testing.assert_allclose(delta["alpha_numerator"], rising, rtol=0.02, atol=0.02)
        if not discount:
            np.testing.assert_allclose(delta["opened"].sum(), sums[0], rtol=0.01, atol=1e-6)
        before, now = (counted(shard, shares_of(state.responsibilities), topics) for state in (local, after))
        np.testing.assert_array_equal(delta["word_topic"], now - before)

    same()


def dense(shares, topics):
    return [shares.get(k, 0.0) for k in range(topics)]


def counted(shard, lists, topics):
    found = np.zeros((WORDS, topics))
    for pair, shares in enumerate(lists):
        for k, q in shares.items():
            found[shard.position[pair], k] += shard.counts[pair] * q
    return found


@pytest.mark.parametrize("discount", [0.0, 0.3])
@pytest.mark.parametrize("network", NETWORKS)
def test_vectors__match_the_naive_version_and_sum_to_one(network, discount):
    model, shard, local, _, global_state = problem(3, network, discount)
    mean = model.node_vectors(local, global_state)
    twins = []
    for document, _ in documents_of(shard, local, global_state):
        document.fold_in()
        twins += document.mean[: document.nodes].tolist()
    np.testing.assert_allclose(mean, twins, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(mean.sum(axis=1), 1.0, rtol=1e-5)


def test_unseen_documents__match_the_naive_version():
    model, shard, _, rows, global_state = problem(5, "diamond", 0.0)
    folded_in = model.fold_in(shard, rows, global_state, Stream(5))
    assert folded_in.responsibilities is None
    phi = model.word_probability(rows, global_state)
    prior = np.tile(global_state.alpha / global_state.alpha.sum(), (shard.documents, 1)).astype(np.float32)
    responsibilities = expected.proportional_responsibilities(shard, prior, phi.astype(np.float32))
    local = expected.local_state(shard, Graph.of(shard, global_state.plan), responsibilities, 4)
    twins = []
    for document, pairs in documents_of(shard, local, global_state):
        for _ in range(expected.FOLD_IN_SWEEPS):
            document.fold_in()
            for j, node_pairs in enumerate(pairs):
                if node_pairs:
                    document.visit(j, node_pairs, Held(phi))
        document.fold_in()
        twins += document.mean[: document.nodes].tolist()
    np.testing.assert_allclose(model.node_vectors(folded_in, global_state), twins, atol=5e-3)


def test_active_topics__are_the_most_important_and_sum_to_one():
    topics, generator = 40, np.random.default_rng(1)
    shard = shard_of(1)
    theta = generator.dirichlet(np.full(topics, 0.5), shard.documents).astype(np.float32)
    phi = generator.dirichlet(np.full(topics, 0.5), WORDS).astype(np.float32)
    responsibilities = expected.proportional_responsibilities(shard, theta, phi)
    owner = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
    for pair, found in enumerate(shares_of(responsibilities)):
        twin = naive.choose((theta[owner[pair]] * phi[shard.position[pair]]).tolist())
        assert len(found) <= MAX_TOPICS
        assert sum(found.values()) == 1.0
        np.testing.assert_allclose(dense(found, topics), dense(twin, topics), atol=1e-3)


ODD = st.sampled_from([0.0, 1.0, -1.0, -3.0, 1e-30, 3e38, -3e38, np.inf, -np.inf, np.nan])


@given(st.lists(ODD, min_size=1, max_size=20))
def test_responsibilities_with_weights_that_are_not_finite__are_at_most_one(weights):
    """Tables are indexed by responsibilities, and an untrusted model may have infinite weights."""
    shard = shard_of(1)
    theta = np.full((shard.documents, len(weights)), 2.0, dtype=np.float32)
    phi = np.tile(np.array(weights, dtype=np.float32), (WORDS, 1))
    with np.errstate(all="ignore"):
        sizes, topic, share = expected.proportional_responsibilities(shard, theta, phi).record
    assert (topic < len(weights)).all()
    owner = np.repeat(np.arange(sizes.size), sizes)
    assert (np.bincount(owner, share) == UNIT).all()


def exact_tables(chances, base, discount):
    """Return E[t] of customers that are each present with a probability, by enumeration of all (m, t)."""
    weight = {(0, 0): 1.0}
    for q in chances:
        after = {}
        for (m, t), w in weight.items():
            opened = 1.0 if m == 0 else base / (base + m - discount * t)
            for key, probability in (
                ((m, t), 1 - q), ((m + 1, t + 1), q * opened), ((m + 1, t), q * (1 - opened)),
            ):  # fmt: skip
                after[key] = after.get(key, 0.0) + w * probability
        weight = after
    return sum(t * w for (_, t), w in weight.items())


@given(
    st.lists(st.floats(0.01, 0.999), min_size=1, max_size=25),
    st.floats(1e-3, 30.0),
    st.sampled_from([0.0, 0.2, 0.6]),
)
def test_expected_tables__are_near_the_exact_ones(chances, base, discount):
    log_absent = sum(math.log(1 - q) for q in chances)
    found = naive.seated(sum(chances), log_absent, base, discount)
    assert found <= sum(chances) + 1e-9
    assert found >= 1 - math.exp(log_absent) - 1e-9 or found == sum(chances)
    assert math.isclose(found, exact_tables(chances, base, discount), rel_tol=0.15)
