"""The network of probability vectors of a shard's documents, by a plan of kinds of vectors and their parents.

A plan has kinds of vectors, such as one for the corpus, one for each label of a field, one for each document, one for
a number of segments of a document, and links from kinds to the kinds of their parents. Kinds are ordered such that a
vector depends on kinds before its own, or on earlier vectors of its own kind. Vectors of the corpus and of labels are
shared by documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.labels import LabelTable, Segments, numbered
from collapsium.workers.arrays.annotations import indices, non_negative, numbers, offsets
from collapsium.workers.arrays.state import CheckContext, State
from collapsium.workers.families.document_entries import LabelBytes, table_faults
from collapsium.workers.kernels.jit import DocumentPairs
from collapsium.workers.kernels.networks.consistency import (
    NO_MIXING,
    NODE_OF_ANOTHER,
    PARENT_OF_ANOTHER,
    SEGMENT_OF_ANOTHER,
    SOUND,
    WRONG_PARENT,
    WRONG_SEGMENT_NODE,
    find_misplaced,
)
from collapsium.workers.kernels.networks.records import DocumentNodes, GraphArrays, SegmentedDocuments

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Ints: TypeAlias = npt.NDArray[np.int64]
Lists: TypeAlias = tuple[Ints, Ints]  # Index of each document's first label, and the labels' numbers
CORPUS, LABEL, DOCUMENT, SEGMENT = range(4)  # Scopes of a kind: there is a vector for each of these

NODE_FAULTS = {
    WRONG_PARENT: "expected parents by the links of the network in 'edge_parent'",
    PARENT_OF_ANOTHER: "expected parents of the same document in 'edge_parent'",
    NO_MIXING: "expected positive parameters of vectors with several parents in 'edge_mixing'",
    WRONG_SEGMENT_NODE: "expected nodes that words are drawn from, in their order, in 'segment_node'",
    SEGMENT_OF_ANOTHER: "expected nodes of the document in 'segment_node'",
    NODE_OF_ANOTHER: "expected nodes of the document in 'document_node'",
}


@dataclass(frozen=True)
class Plan(State):
    """Kinds of vectors and their parents."""

    # Scope, segments that share a vector, and the field of labels by its index in the table; -1 for none
    kinds: Annotated[Ints, numbers("kind 3", low=-1)]
    # Kind, the parents' kind, the parent's position relative to the child (0 or less), and whether the link is only for
    # vectors that miss another one; the links of a kind in the order of the parents
    links: Annotated[Ints, numbers("link 4", -(1 << 31), 1 << 31)]
    # Dirichlet parameter of each, where a vector has several parents
    link_mixing: Annotated[npt.NDArray[np.float64], numbers("link", low=0)]
    word_kind: Annotated[int, indices("", below="kind")]  # Kind from whose vectors words are drawn
    label_table: LabelBytes | None = None  # Labels of the training corpus, where labels have vectors

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of kinds, and of links, which lead from a kind to an earlier kind."""
        yield from super().faults(context)
        scope, every, field = self.kinds.T
        if self.links.size and not ((self.links[:, :2] >= 0) & (self.links[:, :2] < len(self.kinds))).all():
            yield "expected kinds of the network in 'links'"
        if not ((scope >= 0) & (scope <= SEGMENT)).all():
            yield "expected scopes from 0 to 3 in 'kinds'"
        if self.label_table is not None:
            yield from table_faults(self.label_table, context)
        table = self.labels()
        fields = len(table.fields) if table else 0
        if (field[scope == LABEL] >= fields).any() or (field[scope == LABEL] < 0).any():
            yield "expected fields of the table of labels in 'kinds'"
        if (every[scope == SEGMENT] < 1).any() or self.kinds[self.word_kind, 0] < DOCUMENT:
            yield "expected words of documents or segments, and segments that are counted from 1, in 'kinds'"
        child, parent, lag, _ = self.links.T
        is_lag = child == parent
        if (
            (parent > child).any()
            or (lag[is_lag] >= 0).any()
            or (lag > 0).any()
            or (scope[parent[is_lag]] != SEGMENT).any()
        ):
            yield "expected parents that stand before their children in 'links'"
        if (scope[parent] > scope[child]).any() or ((scope[parent] == LABEL) & (scope[child] == LABEL)).any():
            yield "expected parents over no less than their children are over in 'links'"

    def row_faults(self, rows: int) -> Iterator[str]:
        """Yield the fault of the number of rows of shared nodes."""
        shared = sum(nodes.size for nodes in self.shared_nodes())
        if rows != shared:
            yield f"expected {shared} rows of 'shared_customers', found {rows}"

    def labels(self) -> LabelTable | None:
        """Return the labels of the training corpus, where labels have vectors."""
        return None if self.label_table is None else LabelTable.unpacked(self.label_table)

    def shared_nodes(self) -> list[Ints]:
        """Return the shared nodes of each kind: one for the corpus, one for each label of a field."""
        table, nodes, first = self.labels(), [], 0
        for scope, _, field in self.kinds:
            count = 1 if scope == CORPUS else len(labels_of_field(table, int(field))) if scope == LABEL else 0
            nodes.append(np.arange(first, first + count, dtype=np.int64))
            first += count
        return nodes

    def shared_graph(self) -> Graph:
        """Return the network of only the shared nodes."""
        none = np.zeros(1, dtype=np.int64)
        return graph_of(self, none, (none, none[:0]))


def labels_of_field(table: LabelTable | None, field: int) -> Ints:
    """Return the numbers of a field's labels in a table."""
    if table is None:
        return np.zeros(0, dtype=np.int64)
    chosen = table.fields[field]
    return np.array([place for place, (name, _) in enumerate(table.names) if name == chosen], dtype=np.int64)


@dataclass(frozen=True)
class Graph(State):
    """The nodes of a shard, and their edges to their parents."""

    # Kind of each node; parents before children, shared nodes first
    node_kind: Annotated[npt.NDArray[np.int32], indices("node", below="kind")]
    node_edges: Annotated[Ints, offsets("node", into="edge")]  # Index of each node's first edge
    # Parents, and Dirichlet parameters of the mixing proportions
    edge_parent: Annotated[Ints, indices("edge", below="node")]
    edge_mixing: Annotated[npt.NDArray[np.float64], non_negative("edge")]
    # Index of each document's first node and segment
    document_nodes: Annotated[Ints, non_negative("document+1")]
    document_segments: Annotated[Ints, offsets("document", into="segment")]
    # Node from whose vector a segment's words are drawn
    segment_node: Annotated[Ints, indices("segment", below="node")]
    # Node of the document as a whole; -1 where there is none
    document_node: Annotated[Ints, indices("document", below="node", low=-1)]
    levels: Annotated[int, numbers("", 1, 1 << 31)]  # Nodes on the longest path

    def faults(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of nodes, which follow the plan and come after their parents, and of other segments."""
        yield from super().faults(context)
        global_state, nodes = context.global_state, self.node_kind.size
        plan, shared = global_state.plan, len(global_state.shared_customers)
        bounds, sizes = (self.document_nodes[0], self.document_nodes[-1]), np.diff(self.document_nodes)
        if bounds != (shared, nodes) or (sizes < 0).any():
            yield f"expected offsets from {shared} to {nodes} that never fall in 'document_nodes'"
        edges = plan.shared_graph().edge_parent.size
        if self.node_edges[shared] != edges:
            yield f"expected {edges} edges of shared nodes in 'node_edges'"
        linked = np.zeros((len(plan.kinds), len(plan.kinds)), dtype=np.int64)
        linked[plan.links[:, 0], plan.links[:, 1]] = 1
        max_nodes, fault = np.zeros(len(plan.kinds), dtype=np.int64), np.zeros(1, dtype=np.int64)
        find_misplaced(self.record, self.nodes_of_documents, linked, plan.word_kind, max_nodes, fault)
        if fault[0] != SOUND:
            yield NODE_FAULTS[int(fault[0])]
        # An upper limit of the nodes on a path: all of a kind whose vectors depend on one another, else one.
        levels = max(int(np.where(np.diag(linked) > 0, max_nodes, 1).sum()), 1)
        if self.levels != levels:
            yield f"expected {levels} in 'levels', found {self.levels}"
        shard = context.shard
        if shard is None or shard.of_vectors:
            return
        if not np.array_equal(segments_of(shard).documents, self.document_segments):
            yield "expected the segments of each document in 'document_segments'"

    @property
    def shared(self) -> int:
        """Number of shared nodes."""
        return int(self.document_nodes[0])

    @property
    def own_nodes(self) -> int:
        """Number of nodes of documents."""
        return int(self.document_nodes[-1]) - self.shared

    @property
    def is_root(self) -> npt.NDArray[np.bool_]:
        """True for each node without parents, shape (nodes,)."""
        is_root: npt.NDArray[np.bool_] = np.diff(self.node_edges) == 0
        return is_root

    @property
    def record(self) -> GraphArrays:
        """Nodes and edges as kernels take them."""
        arrays = self.node_kind, self.node_edges, self.edge_parent, self.edge_mixing
        return GraphArrays(*map(np.asarray, arrays))

    @property
    def nodes_of_documents(self) -> DocumentNodes:
        """Nodes of documents and segments as kernels take them."""
        arrays = self.document_nodes, self.document_segments, self.segment_node, self.document_node
        return DocumentNodes(*map(np.ascontiguousarray, arrays))

    def segmented_documents(self, shard: Shard) -> SegmentedDocuments:
        """Return the documents of a shard, by segments."""
        segments = segments_of(shard)
        nodes, segment_node = np.asarray(self.document_nodes), np.asarray(self.segment_node)
        return SegmentedDocuments(nodes, segments.documents, segments.pairs, segment_node, shard.position, shard.counts)

    def node_pairs(self, shard: Shard) -> DocumentPairs:
        """Return the pairs of each node of a shard's documents."""
        # Segments stand in the order of their nodes.
        first = np.searchsorted(self.segment_node, np.arange(self.shared, self.shared + self.own_nodes + 1))
        return DocumentPairs(np.asarray(segments_of(shard).pairs)[first], shard.position, shard.counts)

    @staticmethod
    def of(shard: Shard, plan: Plan) -> Graph:
        """Return the network of a shard's documents; each is one segment where they have none."""
        table, labels = plan.labels(), (np.zeros(shard.documents + 1, dtype=np.int64), np.zeros(0, dtype=np.int64))
        if table is not None:
            known = numbered(shard.labels, table, shard.documents)
            labels = known.offsets, known.label.astype(np.int64)
        return graph_of(plan, segments_of(shard).documents, labels)


def segments_of(shard: Shard) -> Segments:
    """Return the segments of a shard; each document is one where they have none."""
    return shard.segments or Segments.of_documents(shard.offsets)


def graph_of(plan: Plan, segments: Ints, labels: Lists) -> Graph:
    """Return the network of documents."""
    documents = segments.size - 1
    lengths = np.diff(segments)
    shared = plan.shared_nodes()
    first_document_node = sum(nodes.size for nodes in shared)
    sizes = np.zeros((documents, len(plan.kinds)), dtype=np.int64)
    for kind, (scope, every, _) in enumerate(plan.kinds):
        if scope >= DOCUMENT:
            sizes[:, kind] = 1 if scope == DOCUMENT else -(-lengths // every)
    nodes = first_document_node + np.concatenate([[0], np.cumsum(sizes.sum(axis=1))]).astype(np.int64)
    begins = nodes[:-1, np.newaxis] + np.cumsum(sizes, axis=1) - sizes
    layout = _Layout(plan, shared, sizes, begins, labels)
    node_kind = np.zeros(int(nodes[-1]), dtype=np.int32)
    for kind in range(len(plan.kinds)):
        node_kind[layout.members(kind)[0]] = kind
    child, parent, mixing = layout.edges()
    node_edges = np.searchsorted(child, np.arange(nodes[-1] + 1)).astype(np.int64)
    document = np.repeat(np.arange(documents), lengths)
    place = np.arange(document.size) - np.repeat(segments[:-1], lengths)
    scope, every, _ = plan.kinds[plan.word_kind]
    segment_node = begins[document, plan.word_kind] + (place // every if scope == SEGMENT else 0)
    of_documents = np.flatnonzero(plan.kinds[:, 0] == DOCUMENT)
    document_node = begins[:, of_documents[-1]] if of_documents.size else np.full(documents, -1, dtype=np.int64)
    chained = [kind for kind in range(len(plan.kinds)) if np.any((plan.links[:, :2] == kind).all(axis=1))]
    longest = sum(int(sizes[:, kind].max(initial=1)) if kind in chained else 1 for kind in range(len(plan.kinds)))
    return Graph(
        node_kind, node_edges, parent, mixing, nodes, np.ascontiguousarray(segments), segment_node.astype(np.int64),
        document_node, max(longest, 1),
    )  # fmt: skip


@dataclass(frozen=True)
class _Layout:
    """Nodes of each kind, and the edges between them."""

    plan: Plan
    shared: list[Ints]
    sizes: Ints
    begins: Ints
    labels: Lists

    def members(self, kind: int) -> tuple[Ints, Ints, Ints]:
        """Return a kind's nodes with their documents and places; for shared nodes these are 0 and the place."""
        if self.plan.kinds[kind, 0] < DOCUMENT:
            nodes = self.shared[kind]
            return nodes, np.zeros_like(nodes), np.arange(nodes.size)
        size = self.sizes[:, kind]
        document = np.repeat(np.arange(size.size), size)
        place = np.arange(document.size) - np.repeat(np.cumsum(size) - size, size)
        return self.begins[document, kind] + place, document, place

    def edges(self) -> tuple[Ints, Ints, npt.NDArray[np.float64]]:
        """Return children, parents and mixing parameters, by child and then in the order of the links."""
        parts = []
        for kind in range(len(self.plan.kinds)):
            nodes = self.members(kind)
            links = np.flatnonzero(self.plan.links[:, 0] == kind)
            missing = np.zeros(nodes[0].size, dtype=bool)
            for last in (0, 1):
                for link in links[self.plan.links[links, 3] == last]:
                    at, parent = self._link(int(link), nodes)
                    if last:
                        at, parent = at[missing[at]], parent[missing[at]]
                    else:
                        is_present = np.zeros(nodes[0].size, dtype=bool)
                        is_present[at] = True
                        missing |= ~is_present
                    mixing = np.full(at.size, self.plan.link_mixing[link])
                    parts.append((nodes[0][at], np.full(at.size, link), parent, mixing))
        if not parts:
            none = np.zeros(0, dtype=np.int64)
            return none, none, none.astype(np.float64)
        child, link, parent, mixing = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.lexsort((parent, link, child))
        return child[order], parent[order].astype(np.int64), mixing[order].astype(np.float64)

    def _link(self, link: int, nodes: tuple[Ints, Ints, Ints]) -> Lists:
        """Return which of a kind's nodes have a parent by a link, by their places among them, and the parents."""
        kind, parent, lag, _ = self.plan.links[link]
        _, document, place = nodes
        every = np.arange(place.size)
        scope, wide, field = self.plan.kinds[parent]
        if scope == CORPUS:
            return every, np.full(place.size, self.shared[parent][0])
        if scope == LABEL:
            offsets, label = self.labels
            numbers = labels_of_field(self.plan.labels(), int(field))
            node_of = np.full(max(label.max(initial=0), int(numbers.max(initial=0))) + 1, -1, dtype=np.int64)
            node_of[numbers] = self.shared[parent]
            label_counts = np.diff(offsets)[document]
            at = np.repeat(every, label_counts)
            inside = np.arange(at.size) - np.repeat(np.cumsum(label_counts) - label_counts, label_counts)
            parents = node_of[label[offsets[document[at]] + inside]] if at.size else at
            return at[parents >= 0], parents[parents >= 0]
        if scope == DOCUMENT:
            return every, self.begins[document, parent]
        of = place * self.plan.kinds[kind, 1] // wide + lag
        at = every[(of >= 0) & (of < self.sizes[document, parent])]
        return at, self.begins[document[at], parent] + of[at]
