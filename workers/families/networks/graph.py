"""The network of probability vectors of a shard's documents, made of a plan of kinds of vectors and their parents.

A plan has kinds of vectors: one for the corpus, one for each label of a field, one for each document, one for each so
many segments of a document; and links, which say what each depends on. Kinds stand in such an order that a vector
depends on kinds before its own, or on earlier vectors of its own kind.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.label_index import LabelTable, numbered
from collapsium.storage.corpus.segments import Segments
from collapsium.workers.arrays.delta import Arrays
from collapsium.workers.kernels.networks.records import GraphArrays

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Ints = npt.NDArray[np.int64]

CORPUS, LABEL, DOCUMENT, SEGMENT = range(4)  # what a kind has a vector for each of
KEPT = "document_"


@dataclass(frozen=True)
class Plan:
    """Kinds of vectors and what they depend on.

    Attributes
    ----------
    kinds : numpy.ndarray of int64, shape (kinds, 3)
        Scope, segments that share a vector, and the field of labels by its place among the table's.
    links : numpy.ndarray of int64, shape (links, 4)
        Kind, the parents' kind, how many places the parent stands before it (0 or less), and whether the link is only
        for vectors that miss another one; those of a kind in the order of the parents.
    mixing : numpy.ndarray of float64, shape (links,)
        Dirichlet parameter of each, where a vector has several parents.
    words : int
        The kind from whose vectors words are drawn.
    """

    kinds: Ints
    links: Ints
    mixing: npt.NDArray[np.float64]
    words: int

    def packed(self) -> dict[str, npt.NDArray[Any]]:
        """Return the plan as globals keep it."""
        return {f"network_{one.name}": np.asarray(getattr(self, one.name)) for one in fields(self)}

    @staticmethod
    def of(globals: Arrays) -> Plan:
        """Take the plan from the globals."""
        kinds, links, mixing = (np.asarray(globals[f"network_{name}"]) for name in ("kinds", "links", "mixing"))
        return Plan(kinds, links, mixing, int(globals["network_words"]))

    def above(self, table: LabelTable | None) -> list[Ints]:
        """Return, for each kind, the numbers of its vectors above documents: one for the corpus, or one a label."""
        found, first = [], 0
        for scope, _, field in self.kinds:
            many = 1 if scope == CORPUS else len(labels_of_field(table, int(field))) if scope == LABEL else 0
            found.append(np.arange(first, first + many, dtype=np.int64))
            first += many
        return found


def labels_of_field(table: LabelTable | None, field: int) -> Ints:
    """Return the numbers of a field's labels in a table."""
    if table is None:
        return np.zeros(0, dtype=np.int64)
    wanted = table.fields[field]
    return np.array([place for place, (name, _) in enumerate(table.names) if name == wanted], dtype=np.int64)


@dataclass(frozen=True)
class Graph:
    """The nodes of a shard, and their edges to their parents.

    Attributes
    ----------
    node_kind : numpy.ndarray of int32, shape (nodes,)
        Parents before children; those above documents first.
    node_edges : numpy.ndarray of int64, shape (nodes + 1,)
        Where each node's edges begin.
    edge_parent, edge_mixing : numpy.ndarray of int64 and float64, shape (edges,)
        Parents, and Dirichlet parameters.
    nodes, segments : numpy.ndarray of int64, shape (documents + 1,)
        Where each document's nodes and segments begin.
    segment_node : numpy.ndarray of int64, shape (segments,)
        The node whose vector a segment's words are drawn from.
    document_node : numpy.ndarray of int64, shape (documents,)
        The node of the whole document; -1 where there is none.
    levels : numpy.ndarray of int64, shape (1,)
        Nodes on the longest path, at most.
    """

    node_kind: npt.NDArray[np.int32]
    node_edges: Ints
    edge_parent: Ints
    edge_mixing: npt.NDArray[np.float64]
    nodes: Ints
    segments: Ints
    segment_node: Ints
    document_node: Ints
    levels: Ints

    @property
    def above(self) -> int:
        """Number of nodes above documents."""
        return int(self.nodes[0])

    def arrays(self) -> GraphArrays:
        """Return the nodes and edges as kernels take them."""
        return GraphArrays(self.node_kind, self.node_edges, self.edge_parent, self.edge_mixing)

    def local(self) -> dict[str, npt.NDArray[Any]]:
        """Return what a local state keeps of it."""
        return {f"{KEPT}{one.name}": getattr(self, one.name) for one in fields(self)}

    @staticmethod
    def kept(local: Arrays) -> Graph:
        """Take it from a local state."""
        return Graph(**{one.name: np.asarray(local[f"{KEPT}{one.name}"]) for one in fields(Graph)})

    @staticmethod
    def of(shard: Shard, globals: Arrays) -> Graph:
        """Make it for a shard.

        Parameters
        ----------
        shard : Shard
            With segments; without, each document is one.
        globals : Arrays
            With the plan and, where labels have vectors, the table of labels.

        Returns
        -------
        Graph
            The network.
        """
        segments = shard.segments or Segments.of(shard.offsets, {})
        return graph_of(Plan.of(globals), segments.documents, _labels(shard, globals), _table(globals))


Lists = tuple[Ints, Ints]


def _table(globals: Arrays) -> LabelTable | None:
    return LabelTable.unpacked(globals["label_table"]) if "label_table" in globals else None


def _labels(shard: Shard, globals: Arrays) -> Lists:
    """Return where each document's labels begin, and their numbers in the table."""
    table = _table(globals)
    if table is None:
        return np.zeros(shard.documents + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    found = numbered(shard.labels, table, shard.documents)
    return found.offsets, found.label.astype(np.int64)


def graph_of(plan: Plan, segments: Ints, labels: Lists, table: LabelTable | None = None) -> Graph:
    """Make a network.

    Parameters
    ----------
    plan : Plan
        Kinds and links.
    segments : numpy.ndarray of int64, shape (documents + 1,)
        Where each document's segments begin.
    labels : tuple of numpy.ndarray
        Where each document's labels begin, and their numbers.
    table : LabelTable, optional
        Where labels have vectors.

    Returns
    -------
    Graph
        The network.
    """
    documents = segments.size - 1
    each = np.diff(segments)
    above = plan.above(table)
    first_below = sum(one.size for one in above)
    sizes = np.zeros((documents, len(plan.kinds)), dtype=np.int64)
    for kind, (scope, every, _) in enumerate(plan.kinds):
        if scope >= DOCUMENT:
            sizes[:, kind] = 1 if scope == DOCUMENT else -(-each // every)
    nodes = first_below + np.concatenate([[0], np.cumsum(sizes.sum(axis=1))]).astype(np.int64)
    begins = nodes[:-1, np.newaxis] + np.cumsum(sizes, axis=1) - sizes
    layout = _Layout(plan, above, sizes, begins, labels, table)
    node_kind = np.zeros(int(nodes[-1]), dtype=np.int32)
    for kind in range(len(plan.kinds)):
        node_kind[layout.members(kind)[0]] = kind
    child, parent, mixing = layout.edges()
    node_edges = np.searchsorted(child, np.arange(nodes[-1] + 1)).astype(np.int64)
    document = np.repeat(np.arange(documents), each)
    place = np.arange(document.size) - np.repeat(segments[:-1], each)
    scope, every, _ = plan.kinds[plan.words]
    segment_node = begins[document, plan.words] + (place // every if scope == SEGMENT else 0)
    whole = np.flatnonzero(plan.kinds[:, 0] == DOCUMENT)
    document_node = begins[:, whole[-1]] if whole.size else np.full(documents, -1, dtype=np.int64)
    chained = [kind for kind in range(len(plan.kinds)) if np.any((plan.links[:, :2] == kind).all(axis=1))]
    longest = sum(int(sizes[:, kind].max(initial=1)) if kind in chained else 1 for kind in range(len(plan.kinds)))
    return Graph(
        node_kind, node_edges, parent, mixing, nodes, np.ascontiguousarray(segments), segment_node.astype(np.int64),
        document_node, np.array([max(longest, 1)]),
    )  # fmt: skip


def graph_above(globals: Arrays) -> Graph:
    """Return the network of the vectors above documents alone."""
    none = np.zeros(1, dtype=np.int64)
    return graph_of(Plan.of(globals), none, (none, none[:0]), _table(globals))


@dataclass(frozen=True)
class _Layout:
    """Where the nodes of each kind are, and the edges between them."""

    plan: Plan
    above: list[Ints]
    sizes: Ints
    begins: Ints
    labels: Lists
    table: LabelTable | None

    def members(self, kind: int) -> tuple[Ints, Ints, Ints]:
        """Return a kind's nodes with their documents and places; above documents these are 0 and the place."""
        if self.plan.kinds[kind, 0] < DOCUMENT:
            nodes = self.above[kind]
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
            own = np.flatnonzero(self.plan.links[:, 0] == kind)
            missing = np.zeros(nodes[0].size, dtype=bool)
            for last in (0, 1):
                for link in own[self.plan.links[own, 3] == last]:
                    at, parent = self._link(int(link), nodes)
                    if last:
                        at, parent = at[missing[at]], parent[missing[at]]
                    else:
                        there = np.zeros(nodes[0].size, dtype=bool)
                        there[at] = True
                        missing |= ~there
                    mixing = np.full(at.size, self.plan.mixing[link])
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
            return every, np.full(place.size, self.above[parent][0])
        if scope == LABEL:
            offsets, label = self.labels
            own = np.full(max(label.max(initial=-1) + 1, 1), -1, dtype=np.int64)
            numbers = labels_of_field(self.table, int(field))
            own = np.full(max(own.size, int(numbers.max(initial=-1)) + 1), -1, dtype=np.int64)
            own[numbers] = self.above[parent]
            many = np.diff(offsets)[document]
            at = np.repeat(every, many)
            inside = np.arange(at.size) - np.repeat(np.cumsum(many) - many, many)
            found = own[label[offsets[document[at]] + inside]] if at.size else at
            return at[found >= 0], found[found >= 0]
        if scope == DOCUMENT:
            return every, self.begins[document, parent]
        of = place * self.plan.kinds[kind, 1] // wide + lag
        at = every[(of >= 0) & (of < self.sizes[document, parent])]
        return at, self.begins[document[at], parent] + of[at]
