"""Declarations of the arrays of networks of vectors: plans, the nodes of a shard, tables and tokens."""

from __future__ import annotations

import math
import secrets

import numpy as np

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
from collapsium.workers.families.plain_tokens import TOKEN_TOPICS
from collapsium.workers.families.topic_arrays import (
    LABEL_TABLE,
    MIN_POSITIVE,
    PRIORS,
    SAMPLED_BLOCKS,
    SAMPLED_ROWS,
    UNIT,
    has_document_tokens,
    table_of,
)
from collapsium.workers.kernels.networks.consistency import (
    NO_MIXING,
    NODE_OF_ANOTHER,
    OTHER_TOKENS,
    PARENT_OF_ANOTHER,
    SEGMENT_OF_ANOTHER,
    SOUND,
    UNSEATED,
    WRONG_PARENT,
    WRONG_SEGMENT_NODE,
    find_misplaced,
    find_unlisted,
    find_unseated,
)

MAX_DISCOUNT = math.nextafter(1.0, 0.0)  # Largest discount, which is less than 1
MAX_PAIR_TOPICS = 16  # Most topics of a pair's responsibilities (`kernels.networks.responsibilities.MAX_TOPICS`)


def _plan(global_state: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the plan, or of the number of shared nodes."""
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
    shared = sum(nodes.size for nodes in plan.shared_nodes())
    rows = len(global_state["shared_customers"])
    context.sizes["above"], context.sizes["above_edge"] = shared, plan.shared_graph().edge_parent.size
    return None if rows == shared else f"expected {shared} rows of 'shared_customers', found {rows}"


MAX_CUSTOMERS = (1 << 31) - 1  # Most customers of a vector and topic: kernels count them in 32 bits


def _shared_counts(global_state: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the counts of shared nodes: tables have customers, and customers tables."""
    customers, tables = np.asarray(global_state["shared_customers"]), np.asarray(global_state["shared_tables"])
    if customers.max(initial=0) > MAX_CUSTOMERS or tables.max(initial=0) > MAX_CUSTOMERS:
        return f"expected counts up to {MAX_CUSTOMERS} in 'shared_customers' and 'shared_tables'"
    total = np.asarray(global_state["topic"])
    # A simulated model's vectors are proportions, written as large counts.
    if total.dtype.kind == "f":
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
    "alpha": numbers("f8", "topic", MIN_POSITIVE),
    **PRIORS,
    "strength": numbers("f8", "kind", MIN_POSITIVE),
    "discount": numbers("f8", "kind", 0, MAX_DISCOUNT),
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
    """Return the fault of links to kinds that do not exist."""
    links = np.asarray(global_state["links"])
    kinds = context.sizes["kind"]
    if links.size and not ((links[:, :2] >= 0) & (links[:, :2] < kinds)).all():
        return "expected kinds of the network in 'links'"
    scope = np.asarray(global_state["kinds"])[:, 0]
    return None if ((scope >= 0) & (scope <= SEGMENT)).all() else "expected scopes from 0 to 3 in 'kinds'"


def _counts(rows: Arrays, context: CheckContext) -> str | None:
    """Return the fault of counts during a fit, which are integers; those of a simulated model are not."""
    integers = context.global_state["topic"].dtype.kind == "i"
    return None if integers else "expected whole counts in 'topic' of the global state"


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
    "pair_size": numbers("u1", "pair", 0, MAX_PAIR_TOPICS),
    "pair_topic": indices("u2", "share", "topic"),
    "pair_share": numbers("u2", "share", 0, UNIT),
}


NODE_FAULTS = {
    WRONG_PARENT: "expected parents by the links of the network in 'edge_parent'",
    PARENT_OF_ANOTHER: "expected parents of the same document in 'edge_parent'",
    NO_MIXING: "expected positive parameters of vectors with several parents in 'edge_mixing'",
    WRONG_SEGMENT_NODE: "expected nodes that words are drawn from, in their order, in 'segment_node'",
    SEGMENT_OF_ANOTHER: "expected nodes of the document in 'segment_node'",
    NODE_OF_ANOTHER: "expected nodes of the document in 'document_node'",
}


def _graph(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the nodes of a shard, which follow the plan and come after their parents."""
    graph, plan = Graph.from_arrays(arrays), Plan.from_arrays(context.global_state)
    shared, nodes, kinds = len(context.global_state["shared_customers"]), graph.node_kind.size, len(plan.kinds)
    bounds, sizes = (graph.document_nodes[0], graph.document_nodes[-1]), np.diff(graph.document_nodes)
    if bounds != (shared, nodes) or (sizes < 0).any():
        return f"expected offsets from {shared} to {nodes} that never fall in 'document_nodes'"
    edges = context.sizes["above_edge"]
    if graph.node_edges[shared] != edges:
        return f"expected {edges} edges of shared nodes in 'node_edges'"
    linked = np.zeros((kinds, kinds), dtype=np.int64)
    linked[plan.links[:, 0], plan.links[:, 1]] = 1
    most, fault = np.zeros(kinds, dtype=np.int64), np.zeros(1, dtype=np.int64)
    find_misplaced(graph.record, graph.nodes_of_documents, linked, plan.word_kind, most, fault)
    if fault[0] != SOUND:
        return NODE_FAULTS[int(fault[0])]
    chained = np.diag(linked) > 0
    # An upper limit of the nodes on a path: all of a kind whose vectors depend on one another, else one.
    levels = max(int(np.where(chained, most, 1).sum()), 1)
    return None if graph.levels == levels else f"expected {levels} in 'levels', found {graph.levels}"


def _own(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the offsets of nodes' own topics, which each node of documents has."""
    lists, below = (
        np.asarray(arrays["own_offsets"]),
        context.sizes["node"] - len(context.global_state["shared_customers"]),
    )
    entries = len(arrays["own_topic"])
    if lists.size == below + 1 and lists[0] == 0 and lists[-1] == entries and (np.diff(lists) >= 0).all():
        return None
    return f"expected offsets of {below} nodes from 0 to {entries} that never fall in 'own_offsets'"


def _tables(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the tables of edges: each has customers, as far as the local state counts them."""
    tables, own = EdgeTables.from_arrays(arrays).record, OwnTokens.from_arrays(arrays).record
    entries = tables.topic.size
    if (tables.start + tables.entries > entries).any() or tables.entries.sum(dtype=np.int64) != entries:
        return f"expected {entries} entries in 'table_entries', at places that 'table_start' has"
    graph, topics, lengths = Graph.from_arrays(arrays), context.sizes["topic"], np.asarray(arrays["document_tokens"])
    customers, fault = np.zeros((graph.shared, topics), dtype=np.int64), np.zeros(1, dtype=np.int64)
    find_unseated(graph.record, np.asarray(graph.document_nodes), lengths, tables, own, topics, customers, fault)
    if fault[0] == OTHER_TOKENS or lengths.max(initial=0) > MAX_CUSTOMERS:
        return "expected the tokens of each document in 'own_tokens'"
    if fault[0] == UNSEATED or tables.entries[: graph.node_edges[graph.shared]].any():
        return "expected tables that have customers, and customers that have tables, in 'table_number'"
    shard = context.shard
    if shard is None or shard.of_vectors or "token_topic" not in arrays:
        return None
    unlisted, pairs = np.zeros(1, dtype=np.int64), graph.node_pairs(shard)
    # The keys are random and not recorded, so that nobody can make other topics of the same sum.
    keys = np.random.Generator(np.random.PCG64(secrets.randbits(128))).integers(0, 1 << 64, topics, dtype=np.uint64)
    find_unlisted(pairs.offsets, pairs.counts, np.asarray(arrays["token_topic"]), own, keys, unlisted)
    if unlisted[0] >= 0:
        return "expected the topics of each node's tokens in 'own_topic'"
    counted = customers <= np.asarray(context.global_state["shared_customers"])
    return None if counted.all() else "expected tables that 'shared_customers' of the global state counts"


def _responsibilities(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of the number of responsibilities."""
    if "pair_size" not in arrays:
        return None
    expected, entries = int(np.asarray(arrays["pair_size"]).sum(dtype=np.int64)), len(arrays["pair_topic"])
    return None if expected == entries else f"expected {expected} numbers in 'pair_topic', found {entries}"


def _segments(arrays: Arrays, context: CheckContext) -> str | None:
    """Return the fault of documents' segments, which are those of the shard."""
    if context.shard is None or context.shard.of_vectors:
        return None
    same = np.array_equal(segments_of(context.shard).documents, arrays["document_segments"])
    return None if same else "expected the segments of each document in 'document_segments'"


LOCAL_RULES = (_graph, _own, ascending("own_offsets", "own_topic"), _segments, has_document_tokens("document_tokens"))
SAMPLED_LOCAL = ArrayGroup(SAMPLED, (*LOCAL_RULES, _tables))
EXPECTED_LOCAL = ArrayGroup(EXPECTED, (*LOCAL_RULES, _responsibilities))
EXPECTED_ROWS = ArrayGroup({"word_topic": counts("f8", "word topic")})

SAMPLED_ARRAYS = FamilyArrays(
    ArrayGroup(SAMPLED_GLOBAL_STATE, (_links, _plan, _shared_counts)),
    lambda global_state: SAMPLED_ROWS,  # noqa: ARG005
    lambda global_state: ArrayGroup(SAMPLED_BLOCKS.fields, (_counts,)),  # noqa: ARG005
    lambda global_state: SAMPLED_LOCAL,  # noqa: ARG005
    TOKEN_TOPICS,
)
EXPECTED_ARRAYS = FamilyArrays(
    ArrayGroup(EXPECTED_GLOBAL_STATE, (_links, _plan)),
    lambda global_state: EXPECTED_ROWS,  # noqa: ARG005
    lambda global_state: EXPECTED_ROWS,  # noqa: ARG005
    lambda global_state: EXPECTED_LOCAL,  # noqa: ARG005
)
