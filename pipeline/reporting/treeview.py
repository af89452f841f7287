"""A tree of topics as a page shows it, laid out as `collapsar topics --picture` does, without matplotlib."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

from collapsar.pipeline.describing import Topic
from collapsar.pipeline.treeplot import FONT, INSET, LINE, SMALL, STEP, Card, cards_of, layout, parents_of

MOST = 120  # nodes that are drawn: the largest, with those above them
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
    """A node in its place, in points: its card, its text, and the line from its parent (empty of a root)."""

    id: int
    x: float
    y: float
    card: Card
    strength: float
    texts: list[tuple[float, str]]
    thread: str
    width: float


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


def view(tree: Sequence[Topic]) -> TreeView:
    """Lay out the largest nodes of a tree.

    Parameters
    ----------
    tree : sequence of Topic
        All nodes, depth-first.

    Returns
    -------
    TreeView
        A node is drawn with those above it.
    """
    size = sorted(((-(node.below or 0.0), place) for place, node in enumerate(tree)))
    # What is below a node is no more than what is at it and below, so parents come first but for ties.
    drawn = {place for _, place in size[:MOST]}
    above = parents_of([node.level or 0 for node in tree])
    for place in sorted(drawn, reverse=True):
        while above[place] >= 0 and above[place] not in drawn:
            place = above[place]
            drawn.add(place)
    shown = [node for place, node in enumerate(tree) if place in drawn]
    short = [replace(node, words=node.words[:WORDS]) for node in shown]
    levels = [node.level or 0 for node in shown]
    cards = cards_of(short, measure)
    places = layout(levels, [(card.width, card.height) for card in cards])
    parents = parents_of(levels)
    nodes = []
    for number, (node, card, (x, y)) in enumerate(zip(shown, cards, places, strict=True)):
        strength = float(min(max(node.below or 0.0, 0.0), 1.0) ** 0.5)
        texts = [(y + INSET / 2 + FONT * LINE * (line + 0.5), text) for line, text in enumerate(card.lines)]
        thread = "" if parents[number] < 0 else _thread(places[parents[number]], cards[parents[number]], (x, y), card)
        nodes.append(Node(node.id, x, y, card, strength, texts, thread, 0.6 + 3.0 * strength))
    width = max((x + card.width for (x, _), card in zip(places, cards, strict=True)), default=0.0)
    height = max((y + card.height for (_, y), card in zip(places, cards, strict=True)), default=0.0)
    return TreeView(nodes, width + 2, height + 2, len(tree) - len(shown))


def _thread(above: tuple[float, float], parent: Card, place: tuple[float, float], card: Card) -> str:
    """Return the line from a parent to a node: level through the parent's column, then over."""
    x, y = above[0] + parent.width, above[1] + parent.height / 2
    to, down = place[0], place[1] + card.height / 2
    turn = to - STEP
    bend = (turn + to) / 2
    return f"M{x:.1f},{y:.1f}L{turn:.1f},{y:.1f}C{bend:.1f},{y:.1f} {bend:.1f},{down:.1f} {to:.1f},{down:.1f}"
