"""A tree of topics as a page shows it: drawn as `collapsium topics --picture` draws it, and as a list."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

from collapsium.pipeline.analysis.topics import Topic
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.tree_folding import FoldedNodes, fold
from collapsium.pipeline.reporting.tree_layout import FONT, INSET, LINE, SMALL, STEP, Card, cards_of, layout, parents_of

MOST = 40  # entries of the picture, unless it is said which branches are folded
ROWS = 30  # rows of the list that are seen at first
WORDS = 5
SCALE = 1.3  # pixels a point
# Widths of letters, of the font's size, in the widest font that is likely (DejaVu Sans); of others by their kind.
WIDTHS = {
    **dict.fromkeys("ilj.,' |!I:;", 0.36),
    **dict.fromkeys("tfr-()[]/", 0.45),
    **dict.fromkeys("wM<>=+&~_#^\N{MINUS SIGN}", 0.88),
    **dict.fromkeys("mW%@", 1.02),
}
UPPER, OTHER, BROAD = 0.76, 0.645, 1.05


@dataclass(frozen=True)
class Node:
    """A node in its place, in points: its card, its text, and the line from its parent (empty of a root).

    Of nodes that are folded it has the id of the node above them.
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
    """A tree that is drawn: its nodes, its size in points, and how many nodes were left out."""

    nodes: list[Node]
    width: float
    height: float
    left_out: int
    scale: float = SCALE
    font: float = FONT
    small: float = SMALL


def measure(text: str, size: float) -> float:
    """Foresee the width of a text in the fonts that readers have, in points."""
    return size * sum(WIDTHS.get(letter) or _width(letter) for letter in text)


def _width(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF":
        return BROAD
    return UPPER if letter.isupper() else OTHER


@dataclass(frozen=True)
class Branch:
    """A node in the list of a page, or nodes that are folded there.

    Attributes
    ----------
    topic : Topic or None
        The node; None of nodes that are folded.
    label, below : str and float
        What it is called, and its share with those below it.
    words : list of str
        Its words.
    children : list of Branch
        Those below it, or those that are folded.
    unfolded : bool
        Whether its children are seen at first.
    """

    topic: Topic | None
    label: str
    below: float
    words: list[str]
    children: list[Branch]
    unfolded: bool


def branches(tree: Sequence[Topic], *, min_share: float | None = None, levels: int | None = None) -> list[Branch]:
    """Return a tree as nested branches, of which those that `fold` folds are closed at first.

    Parameters
    ----------
    tree : sequence of Topic
        All nodes, depth-first.
    min_share, levels : float and int, optional
        As for `collapsium.pipeline.reporting.tree_folding.fold`; by default 30 rows are seen.

    Returns
    -------
    list of Branch
        The roots. No node is left out.
    """
    shown = fold(tree, min_share=min_share, levels=levels, most=ROWS)
    seen = {node.id for node in shown if not isinstance(node, FoldedNodes)}
    folded = {node.id: node for node in shown if isinstance(node, FoldedNodes)}
    below: dict[int | None, list[Topic]] = {}
    for node in tree:
        below.setdefault(node.parent, []).append(node)

    def branch(node: Topic) -> Branch:
        own = [branch(child) for child in below.get(node.id, ())]
        first = [one for one in own if one.topic is not None and one.topic.id in seen]
        rest = [one for one in own if one.topic is not None and one.topic.id not in seen]
        words = [plain(word) for word in node.names[:WORDS]]
        if first and rest:
            stub = folded[node.id]
            first.append(Branch(None, stub.label, stub.below or 0.0, [], rest, False))
        return Branch(node, node.label, node.below or 0.0, words, first or rest, bool(first))

    return [branch(node) for node in tree if node.level == 0]


def view(tree: Sequence[Topic], *, min_share: float | None = None, levels: int | None = None) -> TreeView:
    """Lay out the largest nodes of a tree.

    Parameters
    ----------
    tree : sequence of Topic
        All nodes, depth-first.
    min_share, levels : float and int, optional
        As for `collapsium.pipeline.reporting.tree_folding.fold`; by default the largest nodes are drawn.

    Returns
    -------
    TreeView
        A node is drawn with those above it.
    """
    drawn = fold(tree, min_share=min_share, levels=levels, most=MOST)
    short = [replace(node, words=node.words[:WORDS]) for node in drawn]
    depths = [node.level or 0 for node in drawn]
    cards = cards_of(short, measure)
    places = layout(depths, [(card.width, card.height) for card in cards])
    parents = parents_of(depths)
    nodes = []
    for number, (node, card, (x, y)) in enumerate(zip(drawn, cards, places, strict=True)):
        strength = float(min(max(node.below or 0.0, 0.0), 1.0) ** 0.5)
        texts = [(y + INSET / 2 + FONT * LINE * (line + 0.5), text) for line, text in enumerate(card.lines)]
        thread = "" if parents[number] < 0 else _thread(places[parents[number]], cards[parents[number]], (x, y), card)
        folded = isinstance(node, FoldedNodes)
        nodes.append(Node(node.id, x, y, card, strength, texts, thread, 0.6 + 3.0 * strength, folded))
    width = max((x + card.width for (x, _), card in zip(places, cards, strict=True)), default=0.0)
    height = max((y + card.height for (_, y), card in zip(places, cards, strict=True)), default=0.0)
    left_out = sum(node.count for node in drawn if isinstance(node, FoldedNodes))
    return TreeView(nodes, width + 2, height + 2, left_out)


def _thread(above: tuple[float, float], parent: Card, place: tuple[float, float], card: Card) -> str:
    """Return the line from a parent to a node: level through the parent's column, then over."""
    x, y = above[0] + parent.width, above[1] + parent.height / 2
    to, down = place[0], place[1] + card.height / 2
    turn = to - STEP
    bend = (turn + to) / 2
    return f"M{x:.1f},{y:.1f}L{turn:.1f},{y:.1f}C{bend:.1f},{y:.1f} {bend:.1f},{down:.1f} {to:.1f},{down:.1f}"
