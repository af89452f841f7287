"""Declare what the arrays of networks of vectors must hold: plans, the nodes of a shard, tables and tokens."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.array_fields import (
    ROUNDING_TOLERANCE,
    ArrayField,
    ArrayGroup,
    CheckContext,
    FamilyArrays,
    ascending,
    counts,
    indices,
    numbers,
    offsets,
    optional,
)
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.networks.graph import DOCUMENT, LABEL, SEGMENT, Graph, Plan, segments_of
from collapsium.workers.families.networks.states import EdgeTables, OwnTokens
from collapsium.workers.families.topic_arrays import (
    LABEL_TABLE,
    ONE,
    POSITIVE,
    PRIORS,
    SAMPLED_BLOCKS,
    SAMPLED_ROWS,
    documents_have,
    table_of,
)
from collapsium.workers.kernels.networks.consistency import find_unlisted, find_unseated

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

LARGEST_DISCOUNT = math.nextafter(1.0, 0.0)
"""A discount is less than 1."""

MOST_TOPICS_OF_A_PAIR = 16
"""Topics that a pair has responsibilities of, at most (`responsibilities.MAX_TOPICS`)."""


def _plan(global_state: Arrays, context: CheckContext) -> str | None:
    """Return what is wrong with the plan, or with the number of shared nodes."""
    plan = Plan.from_arrays(global_state)
    scope, every, field = plan.kinds.T
    try:
        table = None if plan.label_table is None else table_of(global_state)
    except ValueError as error:
        return str(error)
    fields = len(table.fields) if table else 0
    if (field[scope == LABEL] >= fields).any() or (field[scope == LABEL] < 0).any():
        return "expected fields of the table of labels in 'kinds'"
    if (every[scope == SEGMENT] < 1).any() or plan.kinds[plan.word_kind, 0] < DOCUMENT:
        return "expected words of documents or segments, and segments that are counted from 1, in 'kinds'"
    child, parent, lag, _ = plan.links.T
    own = child == parent
    if (parent > child).any() or (lag[own] >= 0).any() or (lag > 0).any() or (scope[parent[own]] != SEGMENT).any():
        return "expected parents that stand before their children in 'links'"
    if (scope[parent] > scope[child]).any() or ((scope[parent] == LABEL) & (scope[child] == LABEL)).any():
        return "expected parents over no less than their children are over in 'links'"
    above = sum(one.size for one in plan.shared_nodes())
    found = len(global_state["shared_customers"])
    context.sizes["above"] = above
    return None if found == above else f"expected {above} rows of 'shared_customers', found {found}"


MOST_CUSTOMERS = (1 << 31) - 1
"""Customers of a topic that a vector has at most: kernels count them in 32 bits."""


def _shared_counts(global_state: Arrays, context: CheckContext) -> str | None:
    """Return what is wrong with the whole counts of shared nodes: which tables have no customers."""
    customers, tables = np.asarray(global_state["shared_customers"]), np.asarray(global_state["shared_tables"])
    if customers.max(initial=0) > MOST_CUSTOMERS or tables.max(initial=0) > MOST_CUSTOMERS:
        return f"expected counts up to {MOST_CUSTOMERS} in 'shared_customers' and 'shared_tables'"
    total = np.asarray(global_state["topic"])
    if total.dtype.kind == "f":  # a drawn model's vectors are proportions, written as large counts
        return None
    graph = Plan.from_arrays(global_state).shared_graph()
    if len(tables) != graph.edge_parent.size:
        return f"expected {graph.edge_parent.size} rows of 'shared_tables', found {len(tables)}"
    opened, below = np.zeros_like(customers), np.zeros_like(customers)
    np.add.at(opened, np.repeat(np.arange(len(customers)), np.diff(graph.node_edges)), tables)
    np.add.at(below, graph.edge_parent, tables)
    root = graph.is_root[:, np.newaxis]
    sound = (opened <= customers) & (below <= customers) & (customers <= total)
    sound &= root | (opened > 0) | (customers == 0)
    return None if sound.all() else "expected tables of customers, and customers of tokens, in 'shared_tables'"


NETWORK: dict[str, ArrayField] = {
    "alpha": numbers("f8", "topic", POSITIVE),
    **PRIORS,
    "strength": numbers("f8", "kind", POSITIVE),
    "discount": numbers("f8", "kind", 0, LARGEST_DISCOUNT),
    "kinds": numbers("i8", "kind 3", -1),
    "links": numbers("i8", "link 4", -(1 << 31), 1 << 31),
    "link_mixing": numbers("f8", "link", 0),
    "word_kind": indices("i8", "", "kind"),
    **optional(LABEL_TABLE),
}
SAMPLED_GLOBAL_STATE = {
    **NETWORK,
    "topic": counts("i8 f8", "topic"),
    "shared_customers": counts("i8", "vector topic"),
    "shared_tables": counts("i8", "vector_edge topic"),
}
EXPECTED_GLOBAL_STATE = {
    **NETWORK,
    "topic": counts("f8", "topic"),
    "shared_customers": counts("f8", "vector topic"),
    "shared_log_absent": numbers("f8", "vector topic", high=ROUNDING_TOLERANCE),
    "shared_mean": counts("f8", "vector topic"),
    "shared_response": numbers("f8", "vector topic"),
}


def _links(global_state: Arrays, context: CheckContext) -> str | None:
    """Return what is wrong with the kinds that links name."""
    links = np.asarray(global_state["links"])
    kinds = context.sizes["kind"]
    if links.size and not ((links[:, :2] >= 0) & (links[:, :2] < kinds)).all():
        return "expected kinds of the network in 'links'"
    scope = np.asarray(global_state["kinds"])[:, 0]
    return None if ((scope >= 0) & (scope <= SEGMENT)).all() else "expected scopes from 0 to 3 in 'kinds'"


def _counts(rows: Arrays, context: CheckContext) -> str | None:
    """Return which counts of a fit that goes on are not whole; those of a drawn model are not."""
    whole = context.global_state["topic"].dtype.kind == "i"
    return None if whole else "expected whole counts in 'topic' of the global state"


GRAPH: dict[str, ArrayField] = {
    "document_nodes": counts("i8", "document+1"),
    "node_kind": indices("i4", "node", "kind"),
    "node_edges": offsets("node", "edge"),
    "edge_parent": indices("i8", "edge", "node"),
    "edge_mixing": counts("f8", "edge"),
    "document_segments": offsets("document", "segment"),
    "segment_node": indices("i8", "segment", "node"),
    "document_node": indices("i8", "document", "node", -1),
    "levels": numbers("i8", "", 1, 1 << 31),
    "document_tokens": counts("i8", "document"),
    "own_offsets": counts("i8", "own+1"),
    "own_topic": indices("u2", "owned", "topic"),
}
SAMPLED = {
    **GRAPH,
    "own_tokens": numbers("i4", "owned", 1),
    "table_start": counts("i8", "edge"),
    "table_entries": counts("i4", "edge"),
    "table_topic": indices("u2", "table", "topic"),
    "table_number": numbers("i4", "table", 0),
    "token_topic": indices("u2", "token", "topic"),
}
EXPECTED = {
    **GRAPH,
    "own_tokens": counts("f4", "owned"),
    "own_log_absent": numbers("f4", "owned", high=0),
    "pair_size": numbers("u1", "pair", 0, MOST_TOPICS_OF_A_PAIR),
    "pair_topic": indices("u2", "share", "topic"),
    "pair_share": numbers("u2", "share", 0, ONE),
}


def _graph(arrays: Arrays, context: CheckContext) -> str | None:
    """Return what is wrong with the nodes of a shard: each follows the plan, and its parents stand before it."""
    graph, plan = Graph.from_arrays(arrays), Plan.from_arrays(context.global_state)
    above, nodes, kinds = len(context.global_state["shared_customers"]), graph.node_kind.size, len(plan.kinds)
    bounds, sizes = (graph.document_nodes[0], graph.document_nodes[-1]), np.diff(graph.document_nodes)
    if bounds != (above, nodes) or (sizes < 0).any():
        return f"expected offsets from {above} to {nodes} that never fall in 'document_nodes'"
    edges = plan.shared_graph().edge_parent.size
    if graph.node_edges[above] != edges:
        return f"expected {edges} edges of shared nodes in 'node_edges'"
    child = np.repeat(np.arange(nodes), np.diff(graph.node_edges))
    owner = np.concatenate([np.full(above, -1), np.repeat(np.arange(sizes.size), sizes)])
    parent = graph.edge_parent
    known_pairs = np.zeros((kinds, kinds), dtype=bool)
    known_pairs[plan.links[:, 0], plan.links[:, 1]] = True
    if not known_pairs[graph.node_kind[child], graph.node_kind[parent]].all() or (parent >= child).any():
        return "expected parents by the links of the network in 'edge_parent'"
    if ((owner[parent] != owner[child]) & (parent >= above)).any():
        return "expected parents of the same document in 'edge_parent'"
    several = np.repeat(np.diff(graph.node_edges) > 1, np.diff(graph.node_edges))
    if (graph.edge_mixing[several] <= 0).any():
        return "expected positive parameters of vectors with several parents in 'edge_mixing'"
    segment = np.repeat(np.arange(graph.document_segments.size - 1), np.diff(graph.document_segments))
    if (np.diff(graph.segment_node) < 0).any() or (graph.node_kind[graph.segment_node] != plan.word_kind).any():
        return "expected nodes that words are drawn from, in their order, in 'segment_node'"
    if (owner[graph.segment_node] != segment).any():
        return "expected nodes of the document in 'segment_node'"
    whole = graph.document_node
    if (owner[whole[whole >= 0]] != np.flatnonzero(whole >= 0)).any():
        return "expected nodes of the document in 'document_node'"
    levels = _longest(graph, plan, owner)
    return None if graph.levels == levels else f"expected {levels} in 'levels', found {graph.levels}"


def _longest(graph: Graph, plan: Plan, owner: npt.NDArray[np.int64]) -> int:
    """Return the nodes on the longest path, at most: those of kinds whose vectors depend on one another, else one."""
    longest = 0
    for kind in range(len(plan.kinds)):
        chained = bool((plan.links[:, :2] == kind).all(axis=1).any())
        here = owner[(graph.node_kind == kind) & (owner >= 0)] if chained else owner[:0]
        longest += int(np.bincount(here, minlength=1).max()) if chained else 1
    return max(longest, 1)


def _own(arrays: Arrays, context: CheckContext) -> str | None:
    """Return what is wrong with the lists of nodes' own topics: each node of documents has one."""
    lists, below = (
        np.asarray(arrays["own_offsets"]),
        context.sizes["node"] - len(context.global_state["shared_customers"]),
    )
    entries = len(arrays["own_topic"])
    if lists.size == below + 1 and lists[0] == 0 and lists[-1] == entries and (np.diff(lists) >= 0).all():
        return None
    return f"expected offsets of {below} nodes from 0 to {entries} that never fall in 'own_offsets'"


def _tables(arrays: Arrays, context: CheckContext) -> str | None:
    """Return what is wrong with the tables of edges: each has customers, as far as the local state counts them."""
    tables, own = EdgeTables.from_arrays(arrays).record, OwnTokens.from_arrays(arrays).record
    found = tables.topic.size
    if (tables.start + tables.entries > found).any() or tables.entries.sum(dtype=np.int64) != found:
        return f"expected {found} entries in 'table_entries', at places that 'table_start' has"
    graph, topics = Graph.from_arrays(arrays), context.sizes["topic"]
    before, lengths = np.append(0, np.cumsum(own.tokens, dtype=np.int64)), np.asarray(arrays["document_tokens"])
    tokens = np.diff(before[own.offsets[graph.document_nodes - graph.shared]])
    if lengths.max(initial=0) > MOST_CUSTOMERS or (tokens != lengths).any():
        return "expected the tokens of each document in 'own_tokens'"
    customers, unseated = np.zeros((graph.shared, topics), dtype=np.int64), np.zeros(1, dtype=np.int64)
    find_unseated(graph.record, np.asarray(graph.document_nodes), tables, own, topics, customers, unseated)
    if unseated[0] or tables.entries[: graph.node_edges[graph.shared]].any():
        return "expected tables that have customers, and customers that have tables, in 'table_number'"
    shard = context.shard
    if shard is None or shard.of_vectors or "token_topic" not in arrays:
        return None
    unlisted, pairs = np.zeros(1, dtype=np.int64), graph.node_pairs(shard)
    find_unlisted(pairs.offsets, pairs.counts, np.asarray(arrays["token_topic"]), own, topics, unlisted)
    if unlisted[0] >= 0:
        return "expected the topics of each node's tokens in 'own_topic'"
    counted = customers <= np.asarray(context.global_state["shared_customers"])
    return None if counted.all() else "expected tables that 'shared_customers' of the global state counts"


def _responsibilities(arrays: Arrays, context: CheckContext) -> str | None:
    """Return what is wrong with the number of responsibilities."""
    if "pair_size" not in arrays:
        return None
    expected, found = int(np.asarray(arrays["pair_size"]).sum(dtype=np.int64)), len(arrays["pair_topic"])
    return None if expected == found else f"expected {expected} numbers in 'pair_topic', found {found}"


def _segments(arrays: Arrays, context: CheckContext) -> str | None:
    """Return what is wrong with the segments of the documents of a shard: they are its own."""
    if context.shard is None or context.shard.of_vectors:
        return None
    same = np.array_equal(segments_of(context.shard).documents, arrays["document_segments"])
    return None if same else "expected the segments of each document in 'document_segments'"


def _tokens(local: Arrays, shard: Shard) -> npt.NDArray[np.integer]:
    """Return the topic of each token."""
    return np.asarray(local["token_topic"]).astype(np.int64)


LOCAL_RULES = (_graph, _own, ascending("own_offsets", "own_topic"), _segments, documents_have("document_tokens"))
SAMPLED_LOCAL = ArrayGroup(SAMPLED, (*LOCAL_RULES, _tables))
EXPECTED_LOCAL = ArrayGroup(EXPECTED, (*LOCAL_RULES, _responsibilities))
EXPECTED_ROWS = ArrayGroup({"word_topic": counts("f8", "word topic")})

SAMPLED_ARRAYS = FamilyArrays(
    ArrayGroup(SAMPLED_GLOBAL_STATE, (_links, _plan, _shared_counts)),
    lambda global_state: SAMPLED_ROWS,  # noqa: ARG005
    lambda global_state: ArrayGroup(SAMPLED_BLOCKS.fields, (_counts,)),  # noqa: ARG005
    lambda global_state: SAMPLED_LOCAL,  # noqa: ARG005
    _tokens,
)
EXPECTED_ARRAYS = FamilyArrays(
    ArrayGroup(EXPECTED_GLOBAL_STATE, (_links, _plan)),
    lambda global_state: EXPECTED_ROWS,  # noqa: ARG005
    lambda global_state: EXPECTED_ROWS,  # noqa: ARG005
    lambda global_state: EXPECTED_LOCAL,  # noqa: ARG005
)
