"""What the arrays of families of networks of vectors must hold: plans, the nodes of a shard, tables and tokens."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.segments import Segments
from collapsium.workers.arrays.array_fields import (
    ROUNDING,
    Arrays,
    FamilyArrays,
    Field,
    Known,
    Part,
    ascending,
    counts,
    flags,
    indices,
    numbers,
    offsets,
    optional,
)
from collapsium.workers.families.networks.common import node_pairs, variational
from collapsium.workers.families.networks.graph import DOCUMENT, LABEL, SEGMENT, Graph, Plan, graph_above
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
from collapsium.workers.kernels.networks.records import GraphArrays, OwnTopics, TableEntries

if TYPE_CHECKING:
    from collapsium.storage.corpus.label_index import LabelTable
    from collapsium.storage.corpus.shard import Shard

LARGEST_DISCOUNT = math.nextafter(1.0, 0.0)
"""A discount is less than 1."""

MOST_TOPICS_OF_A_PAIR = 16
"""Topics that a pair has responsibilities of, at most; see `networkexpected`."""


def _table(globals: Arrays) -> LabelTable | None:
    return table_of(globals) if "label_table" in globals else None


def _plan(globals: Arrays, known: Known) -> str | None:
    """Return what is wrong with the plan, or with the number of vectors above documents."""
    plan = Plan.of(globals)
    scope, every, field = plan.kinds.T
    try:
        table = _table(globals)
    except ValueError as error:
        return str(error)
    fields = len(table.fields) if table else 0
    if (field[scope == LABEL] >= fields).any() or (field[scope == LABEL] < 0).any():
        return "expected fields of the table of labels in 'network_kinds'"
    if (every[scope == SEGMENT] < 1).any() or plan.kinds[plan.words, 0] < DOCUMENT:
        return "expected words of documents or segments, and segments that are counted from 1, in 'network_kinds'"
    child, parent, lag, _ = plan.links.T
    own = child == parent
    if (parent > child).any() or (lag[own] >= 0).any() or (lag > 0).any() or (scope[parent[own]] != SEGMENT).any():
        return "expected parents that stand before their children in 'network_links'"
    if (scope[parent] > scope[child]).any() or ((scope[parent] == LABEL) & (scope[child] == LABEL)).any():
        return "expected parents over no less than their children are over in 'network_links'"
    above = sum(one.size for one in plan.above(table))
    found = len(globals["vector_topic"])
    known.sizes["above"] = above
    return None if found == above else f"expected {above} rows of 'vector_topic', found {found}"


MOST_CUSTOMERS = (1 << 31) - 1
"""Customers of a topic that a vector has at most: kernels count them in 32 bits."""


def _shared_counts(globals: Arrays, known: Known) -> str | None:
    """Return what is wrong with the whole counts of vectors above documents: which tables have no customers."""
    if variational(globals):
        return None
    customers, tables = np.asarray(globals["vector_topic"]), np.asarray(globals["vector_tables"])
    if customers.max(initial=0) > MOST_CUSTOMERS or tables.max(initial=0) > MOST_CUSTOMERS:
        return f"expected counts up to {MOST_CUSTOMERS} in 'vector_topic' and 'vector_tables'"
    total = np.asarray(globals["topic"])
    if total.dtype.kind == "f":  # a drawn model's vectors are proportions, written as large counts
        return None
    graph = graph_above(globals)
    if len(tables) != graph.edge_parent.size:
        return f"expected {graph.edge_parent.size} rows of 'vector_tables', found {len(tables)}"
    opened, below = np.zeros_like(customers), np.zeros_like(customers)
    np.add.at(opened, np.repeat(np.arange(len(customers)), np.diff(graph.node_edges)), tables)
    np.add.at(below, graph.edge_parent, tables)
    root = (np.diff(graph.node_edges) == 0)[:, np.newaxis]
    sound = (opened <= customers) & (below <= customers) & (customers <= total)
    sound &= root | (opened > 0) | (customers == 0)
    return None if sound.all() else "expected tables of customers, and customers of tokens, in 'vector_tables'"


NETWORK: dict[str, Field] = {
    "alpha": numbers("f8", "topic", POSITIVE),
    **PRIORS,
    **flags("learn_alpha learn_discount move_tables"),
    "strength": numbers("f8", "kind", POSITIVE),
    "discount": numbers("f8", "kind", 0, LARGEST_DISCOUNT),
    "network_kinds": numbers("i8", "kind 3", -1),
    "network_links": numbers("i8", "link 4", -(1 << 31), 1 << 31),
    "network_mixing": numbers("f8", "link", 0),
    "network_words": indices("i8", "", "kind"),
    **optional(LABEL_TABLE),
    "topic": counts("i8 f8", "topic"),
    "vector_topic": counts("i8 f8", "vector topic"),
    "vector_tables": counts("i8 f8", "vector_edge topic"),
    **optional(flags("variational learn_beta")),
    **optional({"vector_mean": counts("f8", "vector topic"), "vector_response": numbers("f8", "vector topic")}),
    **optional({"vector_absent": numbers("f8", "vector topic", high=ROUNDING)}),
}


def _links(globals: Arrays, known: Known) -> str | None:
    """Return what is wrong with the kinds that links name."""
    links = np.asarray(globals["network_links"])
    kinds = known.sizes["kind"]
    if links.size and not ((links[:, :2] >= 0) & (links[:, :2] < kinds)).all():
        return "expected kinds of the network in 'network_links'"
    scope = np.asarray(globals["network_kinds"])[:, 0]
    return None if ((scope >= 0) & (scope <= SEGMENT)).all() else "expected scopes from 0 to 3 in 'network_kinds'"


def _means(globals: Arrays, known: Known) -> str | None:
    """Return which array of expected tables is missing, or there with drawn tables; a drawn model may keep them."""
    names, expected = ("learn_beta", "vector_absent", "vector_mean", "vector_response"), variational(globals)
    missing = [name for name in names if expected and name not in globals]
    if missing:
        return f"the array '{missing[0]}' is missing"
    if not expected and globals["vector_topic"].dtype.kind == "f":
        return "expected whole counts in 'vector_topic' where 'variational' is off"
    return None


def _counts(rows: Arrays, known: Known) -> str | None:
    """Return which counts of a fit that goes on are of the wrong kind: whole, or expected. A drawn model has others."""
    kind = "f" if variational(known.globals) else "i"
    names = ("topic", "vector_topic", "vector_tables")
    wrong = [name for name in names if known.globals[name].dtype.kind != kind]
    return f"expected {'whole' if kind == 'i' else 'expected'} counts in '{wrong[0]}' of the globals" if wrong else None


GRAPH: dict[str, Field] = {
    "document_nodes": counts("i8", "document+1"),
    "document_node_kind": indices("i4", "node", "kind"),
    "document_node_edges": offsets("node", "edge"),
    "document_edge_parent": indices("i8", "edge", "node"),
    "document_edge_mixing": counts("f8", "edge"),
    "document_segments": offsets("document", "segment"),
    "document_segment_node": indices("i8", "segment", "node"),
    "document_document_node": indices("i8", "document", "node", -1),
    "document_levels": numbers("i8", "1", 1, 1 << 31),
    "document_tokens": counts("i8", "document"),
    "document_own_lists": counts("i8", "own+1"),
    "document_own_topics": indices("u2", "owned", "topic"),
}
TABLES, OWN = ("start", "entries", "topic", "count"), ("lists", "topics", "counts")
SAMPLED = {
    **GRAPH,
    "document_own_counts": numbers("i4", "owned", 1),
    "document_table_start": counts("i8", "edge"),
    "document_table_entries": counts("i4", "edge"),
    "document_table_topic": indices("u2", "table", "topic"),
    "document_table_count": numbers("i4", "table", 0),
    "token_topic": indices("u2", "token", "topic"),
}
EXPECTED = {
    **GRAPH,
    "document_own_counts": counts("f4", "owned"),
    "document_own_absent": numbers("f4", "owned", high=0),
    "pair_sizes": numbers("u1", "pair", 0, MOST_TOPICS_OF_A_PAIR),
    "pair_topics": indices("u2", "share", "topic"),
    "pair_shares": numbers("u2", "share", 0, ONE),
}


def _graph(arrays: Arrays, known: Known) -> str | None:
    """Return what is wrong with the nodes of a shard: each follows the plan, and its parents stand before it."""
    graph, plan = Graph.kept(arrays), Plan.of(known.globals)
    above, nodes, kinds = len(known.globals["vector_topic"]), graph.node_kind.size, len(plan.kinds)
    if graph.nodes[0] != above or graph.nodes[-1] != nodes or (np.diff(graph.nodes) < 0).any():
        return f"expected offsets from {above} to {nodes} that never fall in 'document_nodes'"
    if graph.node_edges[above] != len(known.globals["vector_tables"]):
        return f"expected {len(known.globals['vector_tables'])} edges above documents in 'document_node_edges'"
    child = np.repeat(np.arange(nodes), np.diff(graph.node_edges))
    owner = np.concatenate([np.full(above, -1), np.repeat(np.arange(graph.nodes.size - 1), np.diff(graph.nodes))])
    parent = graph.edge_parent
    known_pairs = np.zeros((kinds, kinds), dtype=bool)
    known_pairs[plan.links[:, 0], plan.links[:, 1]] = True
    if not known_pairs[graph.node_kind[child], graph.node_kind[parent]].all() or (parent >= child).any():
        return "expected parents by the links of the network in 'document_edge_parent'"
    if ((owner[parent] != owner[child]) & (parent >= above)).any():
        return "expected parents of the same document in 'document_edge_parent'"
    several = np.repeat(np.diff(graph.node_edges) > 1, np.diff(graph.node_edges))
    if (graph.edge_mixing[several] <= 0).any():
        return "expected positive parameters of vectors with several parents in 'document_edge_mixing'"
    segment = np.repeat(np.arange(graph.segments.size - 1), np.diff(graph.segments))
    if (np.diff(graph.segment_node) < 0).any() or (graph.node_kind[graph.segment_node] != plan.words).any():
        return "expected nodes that words are drawn from, in their order, in 'document_segment_node'"
    if (owner[graph.segment_node] != segment).any():
        return "expected nodes of the document in 'document_segment_node'"
    whole = graph.document_node
    if (owner[whole[whole >= 0]] != np.flatnonzero(whole >= 0)).any():
        return "expected nodes of the document in 'document_document_node'"
    levels = _longest(graph, plan, owner)
    return None if graph.levels[0] == levels else f"expected {levels} in 'document_levels', found {graph.levels[0]}"


def _longest(graph: Graph, plan: Plan, owner: npt.NDArray[np.int64]) -> int:
    """Return the nodes on the longest path, at most: those of kinds whose vectors depend on one another, else one."""
    longest = 0
    for kind in range(len(plan.kinds)):
        chained = bool((plan.links[:, :2] == kind).all(axis=1).any())
        here = owner[(graph.node_kind == kind) & (owner >= 0)] if chained else owner[:0]
        longest += int(np.bincount(here, minlength=1).max()) if chained else 1
    return max(longest, 1)


def _own(arrays: Arrays, known: Known) -> str | None:
    """Return what is wrong with the lists of nodes' own topics: each node of documents has one."""
    lists, below = np.asarray(arrays["document_own_lists"]), known.sizes["node"] - len(known.globals["vector_topic"])
    entries = len(arrays["document_own_topics"])
    if lists.size == below + 1 and lists[0] == 0 and lists[-1] == entries and (np.diff(lists) >= 0).all():
        return None
    return f"expected offsets of {below} nodes from 0 to {entries} that never fall in 'document_own_lists'"


def _tables(arrays: Arrays, known: Known) -> str | None:
    """Return what is wrong with the tables of edges: each has customers, as far as the local state counts them."""
    tables = TableEntries(*(np.asarray(arrays[f"document_table_{name}"]) for name in TABLES))
    found = tables.topic.size
    if (tables.start + tables.entries > found).any() or tables.entries.sum(dtype=np.int64) != found:
        return f"expected {found} entries in 'document_table_entries', at places that 'document_table_start' has"
    graph, topics = Graph.kept(arrays), known.sizes["topic"]
    own = OwnTopics(*(np.asarray(arrays[f"document_own_{name}"]) for name in OWN))
    before, lengths = np.append(0, np.cumsum(own.tokens, dtype=np.int64)), np.asarray(arrays["document_tokens"])
    tokens = np.diff(before[own.offsets[graph.nodes - graph.above]])
    if lengths.max(initial=0) > MOST_CUSTOMERS or (tokens != lengths).any():
        return "expected the tokens of each document in 'document_own_counts'"
    customers, unseated = np.zeros((graph.above, topics), dtype=np.int64), np.zeros(1, dtype=np.int64)
    edges = GraphArrays(graph.node_kind, graph.node_edges, graph.edge_parent, graph.edge_mixing)
    find_unseated(edges, graph.nodes, tables, own, topics, customers, unseated)
    if unseated[0] or tables.entries[: graph.node_edges[graph.above]].any():
        return "expected tables that have customers, and customers that have tables, in 'document_table_count'"
    shard = known.shard
    if shard is None or shard.of_vectors or "token_topic" not in arrays:
        return None
    unlisted = np.zeros(1, dtype=np.int64)
    find_unlisted(node_pairs(shard, graph), shard.counts, np.asarray(arrays["token_topic"]), own, topics, unlisted)
    if unlisted[0] >= 0:
        return "expected the topics of each node's tokens in 'document_own_topics'"
    counted = customers <= np.asarray(known.globals["vector_topic"])
    return None if counted.all() else "expected tables that 'vector_topic' of the globals counts"


def _responsibilities(arrays: Arrays, known: Known) -> str | None:
    """Return what is wrong with the number of responsibilities."""
    if "pair_sizes" not in arrays:
        return None
    expected, found = int(np.asarray(arrays["pair_sizes"]).sum(dtype=np.int64)), len(arrays["pair_topics"])
    return None if expected == found else f"expected {expected} numbers in 'pair_topics', found {found}"


def _segments(arrays: Arrays, known: Known) -> str | None:
    """Return what is wrong with the segments of the documents of a shard: they are its own."""
    if known.shard is None or known.shard.of_vectors:
        return None
    own = known.shard.segments or Segments.of(known.shard.offsets, {})
    same = np.array_equal(own.documents, arrays["document_segments"])
    return None if same else "expected the segments of each document in 'document_segments'"


def _local(globals: Arrays) -> Part:
    fields = EXPECTED if variational(globals) else SAMPLED
    more: tuple[Any, ...] = (_responsibilities,) if fields is EXPECTED else (_tables,)
    listed = ascending("document_own_lists", "document_own_topics")
    return Part(fields, (_graph, _own, listed, _segments, documents_have("document_tokens"), *more))


def _tokens(local: Arrays, shard: Shard) -> npt.NDArray[np.integer]:
    """Return the topic of each token; none where responsibilities are all there is."""
    if "token_topic" in local:
        return np.asarray(local["token_topic"]).astype(np.int64)
    return np.full(shard.tokens, -1)


EXPECTED_ROWS = {"word_topic": counts("f8", "word topic")}


def _rows(globals: Arrays) -> Part:
    return Part(EXPECTED_ROWS) if variational(globals) else SAMPLED_ROWS


def _blocks(globals: Arrays) -> Part:
    fields = EXPECTED_ROWS if variational(globals) else SAMPLED_BLOCKS.fields
    return Part(fields, (_counts,))


NETWORK_ARRAYS = FamilyArrays(Part(NETWORK, (_links, _plan, _means, _shared_counts)), _rows, _blocks, _local, _tokens)
