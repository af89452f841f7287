"""Kernels that check nodes and counts read from disk, against naive versions, on valid and on changed counts."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.networks.states import EdgeTables, SampledNodeTokens
from collapsium.workers.kernels.networks.consistency import (
    OTHER_TOKENS,
    SOUND,
    UNSEATED,
    find_misplaced,
    find_unlisted,
    find_unseated,
)
from tests.naive import network_sums
from tests.workers.kernels.networks.test_paths import networks_of

pytestmark = [pytest.mark.kernels, pytest.mark.usefixtures("wrapping")]


def sampled(drawn):
    """Return the local state after a sweep."""
    sampling, stream = drawn.sampling(), Stream(drawn.seed)
    sampling.run(stream, initialise=True)
    sampling.run(stream.at(iteration=1))
    return {name: np.array(values) for name, values in sampling.local().to_arrays().items()}


def counts_of(local):
    """Return tables and topics of nodes' own tokens, as arguments of the kernels."""
    return EdgeTables.from_arrays(local).record, SampledNodeTokens.from_arrays(local).record


def seated(drawn, local):
    """Return the kernel's finding, and the customers of shared nodes."""
    graph, (tables, node_tokens) = drawn.graph, counts_of(local)
    shared, fault = np.zeros((drawn.shared, drawn.topics), dtype=np.int64), np.zeros(1, dtype=np.int64)
    find_unseated(
        graph.record,
        graph.document_nodes,
        tokens_of(drawn, node_tokens),
        tables,
        node_tokens,
        drawn.topics,
        shared,
        fault,
    )
    assert fault[0] in (SOUND, UNSEATED)
    return fault[0] == UNSEATED, shared


def tokens_of(drawn, node_tokens):
    """Return the tokens of each document, by the topics of its nodes."""
    running = np.append(0, np.cumsum(node_tokens.tokens, dtype=np.int64))
    return np.diff(running[node_tokens.offsets[drawn.graph.document_nodes - drawn.shared]])


def seated_naive(drawn, local):
    """Return the same by the naive version."""
    graph, (tables, node_tokens) = drawn.graph, counts_of(local)
    dense = np.zeros((graph.edge_parent.size, drawn.topics), dtype=np.int64)
    for edge, (first, some) in enumerate(zip(tables.start, tables.entries, strict=True)):
        np.add.at(dense[edge], tables.topic[first : first + some], tables.number[first : first + some])
    tokens = np.zeros((graph.node_kind.size, drawn.topics), dtype=np.int64)
    owner = np.repeat(np.arange(drawn.shared, graph.node_kind.size), np.diff(node_tokens.offsets))
    np.add.at(tokens, (owner, node_tokens.topic), node_tokens.tokens)
    child = np.repeat(np.arange(graph.node_kind.size), np.diff(graph.node_edges))
    edges = list(zip(child.tolist(), graph.edge_parent.tolist(), strict=True))
    shared = np.zeros((drawn.shared, drawn.topics), dtype=np.int64)
    for (_, parent), some in zip(edges, dense, strict=True):
        if parent < drawn.shared:
            shared[parent] += some
    return network_sums.unseated(edges, tokens, dense, range(drawn.shared, graph.node_kind.size)), shared


@given(networks_of(), st.randoms(use_true_random=False))
def test_find_unseated__equals_the_naive_version(drawn, draw):
    local = sampled(drawn)
    assert not seated(drawn, local)[0]
    for name in ("table_number", "own_tokens"):
        changed = {**local, name: np.array(local[name])}
        if changed[name].size:
            changed[name][draw.randrange(changed[name].size)] = draw.choice([0, 1, 2, 50])
        found, expected = seated(drawn, changed), seated_naive(drawn, changed)
        assert found[0] == expected[0]
        np.testing.assert_array_equal(found[1], expected[1])


@given(networks_of(), st.randoms(use_true_random=False))
def test_find_unseated__finds_documents_with_other_numbers_of_tokens(drawn, draw):
    tables, node_tokens = counts_of(sampled(drawn))
    tokens, fault = tokens_of(drawn, node_tokens), np.zeros(1, dtype=np.int64)
    tokens[draw.randrange(tokens.size)] += draw.choice([-1, 1])
    shared = np.zeros((drawn.shared, drawn.topics), dtype=np.int64)
    find_unseated(
        drawn.graph.record, drawn.graph.document_nodes, tokens, tables, node_tokens, drawn.topics, shared, fault
    )
    assert fault[0] == OTHER_TOKENS


@given(networks_of(), st.randoms(use_true_random=False))
def test_find_unlisted__finds_the_first_node_that_the_naive_version_lists_otherwise(drawn, draw):
    local = sampled(drawn)
    pairs, tokens = drawn.graph.node_pairs(drawn.shard).offsets, local["token_topic"]
    nodes = range(drawn.shared, drawn.graph.node_kind.size)
    for change in (False, True):
        if change and tokens.size:
            tokens[draw.randrange(tokens.size)] = draw.randrange(drawn.topics)
        node_tokens, unlisted = counts_of(local)[1], np.zeros(1, dtype=np.int64)
        keys = np.random.default_rng(drawn.seed).integers(0, 1 << 64, drawn.topics, dtype=np.uint64)
        find_unlisted(pairs, drawn.shard.counts, tokens, node_tokens, keys, unlisted)
        lists = [
            list(zip(node_tokens.topic[a:b], node_tokens.tokens[a:b], strict=True))
            for a, b in zip(node_tokens.offsets, node_tokens.offsets[1:], strict=False)
        ]
        expected = network_sums.count_node_topics(drawn.laid.tokens()[1], tokens, nodes)
        wrong = [node for node, (found, listed) in enumerate(zip(lists, expected, strict=True)) if found != listed]
        assert unlisted[0] == (wrong[0] if wrong else -1)


PLACES = ("node_kind", "edge_parent", "edge_mixing", "segment_node", "document_node")


@given(networks_of(), st.sampled_from(PLACES), st.randoms(use_true_random=False))
def test_find_misplaced__finds_a_fault_that_the_naive_version_finds(drawn, name, draw):
    plan, sound = drawn.global_state.plan, drawn.graph
    linked = np.zeros((len(plan.kinds), len(plan.kinds)), dtype=np.int64)
    linked[plan.links[:, 0], plan.links[:, 1]] = 1
    values = np.array(getattr(sound, name))
    if values.size:
        least, end = {
            "node_kind": (0, len(linked)),
            "document_node": (-1, sound.node_kind.size),
            "edge_mixing": (0, 2),
        }.get(name, (0, sound.node_kind.size))
        values[draw.randrange(values.size)] = draw.randrange(least, end)
    for graph in (sound, replace(sound, **{name: values})):
        max_nodes, fault = np.zeros(len(linked), dtype=np.int64), np.zeros(1, dtype=np.int64)
        find_misplaced(graph.record, graph.nodes_of_documents, linked, plan.word_kind, max_nodes, fault)
        faults, expected = network_sums.misplaced(graph, linked, plan.word_kind)
        if graph is sound:
            assert not faults
        if faults:
            assert fault[0] in faults
        else:
            assert fault[0] == SOUND
            assert max_nodes.tolist() == expected
