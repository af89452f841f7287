"""A tree of topics on the report's page: as a drawing, like `collapsium topics --picture`, and as a nested list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from collapsium.pipeline.analysis.topics import Topic
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.text_layout import text_width
from collapsium.pipeline.reporting.tree_folding import FoldedNodes, fold
from collapsium.pipeline.reporting.tree_layout import (
    FONT,
    INSET,
    LINE,
    SMALL,
    Card,
    cards_of,
    edge_points,
    layout,
    parents_of,
)

# Entries of the drawing, and rows of the list that are open at first, unless the user chooses which branches to fold.
MAX_ENTRIES, MAX_OPEN_ROWS = 40, 30
WORDS = 5
PIXELS_PER_POINT = 1.3


@dataclass(frozen=True)
class Node:
    """A node of the drawing, in points: its card, its lines of text, and the path from its parent (empty for a root).

    Folded nodes have the id of the node above them.
    """

    id: int
    x: float
    y: float
    card: Card
    strength: float
    texts: list[tuple[float, str]]
    thread: str
    width: float
    folded: bool = False


@dataclass(frozen=True)
class TreeView:
    """A drawing of a tree: its nodes, its size in points, and the number of nodes that are folded."""

    nodes: list[Node]
    width: float
    height: float
    left_out: int
    scale: float = PIXELS_PER_POINT
    font: float = FONT
    small: float = SMALL


@dataclass(frozen=True)
class Branch:
    """A node in the page's list, or an entry for folded nodes."""

    topic: Topic | None  # The node; None for an entry of folded nodes
    # Its name, and its share including the nodes below it
    label: str
    below: float
    words: list[str]  # Its most probable words
    children: list[Branch]  # Nodes below it, or the folded nodes
    unfolded: bool  # True if its children are visible at first


def branches(tree: Sequence[Topic], *, min_share: float | None = None, levels: int | None = None) -> list[Branch]:
    """Return a tree as nested branches, with small and deep ones closed at first."""
    shown = fold(tree, min_share=min_share, levels=levels, max_entries=MAX_OPEN_ROWS)
    visible = {node.id for node in shown if not isinstance(node, FoldedNodes)}
    folded = {node.id: node for node in shown if isinstance(node, FoldedNodes)}
    below: dict[int | None, list[Topic]] = {}
    for node in tree:
        below.setdefault(node.parent, []).append(node)

    def branch(node: Topic) -> Branch:
        children = [branch(child) for child in below.get(node.id, ())]
        first = [child for child in children if child.topic is not None and child.topic.id in visible]
        rest = [child for child in children if child.topic is not None and child.topic.id not in visible]
        words = [plain(word) for word in node.names[:WORDS]]
        if first and rest:
            stub = folded[node.id]
            first.append(Branch(None, stub.label, stub.below or 0.0, [], rest, False))
        return Branch(node, node.label, node.below or 0.0, words, first or rest, bool(first))

    return [branch(node) for node in tree if node.level == 0]


def view(tree: Sequence[Topic], *, min_share: float | None = None, levels: int | None = None) -> TreeView:
    """Lay out the largest nodes of a tree."""
    drawn = fold(tree, min_share=min_share, levels=levels, max_entries=MAX_ENTRIES)
    short = [replace(node, words=node.words[:WORDS]) for node in drawn]
    depths = [node.level or 0 for node in drawn]
    cards = cards_of(short, text_width)
    places = layout(depths, [(card.width, card.height) for card in cards])
    parents = parents_of(depths)
    nodes = []
    for number, (node, card, (x, y)) in enumerate(zip(drawn, cards, places, strict=True)):
        strength = float(min(max(node.below or 0.0, 0.0), 1.0) ** 0.5)
        texts = [(y + INSET / 2 + FONT * LINE * (line + 0.5), text) for line, text in enumerate(card.lines)]
        parent = parents[number]
        thread = "" if parent < 0 else _edge_path(edge_points(places[parent], cards[parent], (x, y), card))
        folded = isinstance(node, FoldedNodes)
        nodes.append(Node(node.id, x, y, card, strength, texts, thread, 0.6 + 3.0 * strength, folded))
    width = max((x + card.width for (x, _), card in zip(places, cards, strict=True)), default=0.0)
    height = max((y + card.height for (_, y), card in zip(places, cards, strict=True)), default=0.0)
    left_out = sum(node.count for node in drawn if isinstance(node, FoldedNodes))
    return TreeView(nodes, width + 2, height + 2, left_out)


def _edge_path(points: Sequence[tuple[float, float]]) -> str:
    """Return the SVG path of an edge: a straight line, then a cubic curve."""
    start, turn, *curve = [f"{x:.1f},{y:.1f}" for x, y in points]
    return f"M{start}L{turn}C{' '.join(curve)}"
