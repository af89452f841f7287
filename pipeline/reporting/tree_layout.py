"""Lay out trees of topics: cards of text, a column a level, without overlap."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collapsium.pipeline.formatting import plain

if TYPE_CHECKING:
    from collapsium.pipeline.analysis.topics import Topic

# All lengths are points.
FONT, SMALL, TITLE = 10.0, 9.0, 14.0  # in a browser 13.3, 12 and 18.7 pixels
LINE = 1.25  # height of a line, of its font's
INNER, LEAF = 150.0, 262.0  # widths at which the words of nodes with and without children go to the next line
INSET = 5.0  # from a card's edge to its text
GAP, GROUP = 4.5, 5.0  # below each card, and once more below the children of a node
FINE = 5.0  # steps in which lines are made shorter, to be as long as one another
STEP = 36.0  # from a column to the next
Measure = Callable[[str, float], float]


@dataclass(frozen=True)
class Card:
    """A node's text, cut into lines, and its size.

    Attributes
    ----------
    head : str
        The id and the share.
    lines : tuple of str
        The words.
    indent : float
        From the card's left edge to the words, in points.
    width, height : float
        In points.
    """

    head: str
    lines: tuple[str, ...]
    indent: float
    width: float
    height: float


def cards_of(tree: Sequence[Topic], measure: Measure, wider: float = 1.0) -> list[Card]:
    """Cut the nodes' words into lines.

    Parameters
    ----------
    tree : sequence of Topic
        The nodes, depth-first.
    measure : callable
        Gives the width of a text in a font size, in points.
    wider : float, optional
        By how much more the words may spread than they do by default.

    Returns
    -------
    list of Card
        In the same order.
    """
    levels = [node.level or 0 for node in tree]
    heads = [f"{node.label} · {node.below:.1%}" for node in tree]
    columns: dict[int, float] = {}  # in a column the words begin one under another
    for node, level, head in zip(tree, levels, heads, strict=True):
        if node.names:
            columns[level] = max(columns.get(level, 0.0), measure(head, SMALL))
    found = []
    for number, (node, head) in enumerate(zip(tree, heads, strict=True)):
        leaf = number + 1 == len(tree) or levels[number + 1] <= levels[number]
        room = wider * (LEAF if leaf else INNER)
        lines = wrapped([plain(word) for word in node.names], room, lambda text: measure(text, FONT))
        indent = INSET + (columns[levels[number]] + INSET if node.names else measure(heads[number], SMALL))
        width = indent + max(measure(line, FONT) for line in lines) + INSET
        found.append(Card(head, lines, indent, width, len(lines) * FONT * LINE + INSET))
    return found


def wrapped(
    words: Sequence[str], width: float, measure: Callable[[str], float], between: str = "  "
) -> tuple[str, ...]:
    """Set words in lines, as few as they need, and those about as long as one another.

    Parameters
    ----------
    words : sequence of str
        The words.
    width : float
        Of a line, in points.
    measure : callable
        Gives the width of a text.
    between : str, optional
        What stands between words of a line.

    Returns
    -------
    tuple of str
        Lines no wider than that, one at least; a word that is wider by itself is cut short.
    """
    fitting = [_shortened(word, width, measure) for word in words]
    widths, space = [measure(word) for word in fitting], measure(between)
    cut = _cut(widths, space, width)
    steps = max(int(width / FINE), 1)
    for narrower in (width * step / steps for step in range(steps, 0, -1)):
        if narrower < max(widths, default=0.0) or len(again := _cut(widths, space, narrower)) > len(cut):
            break
        cut = again
    return tuple(between.join(fitting[low:high]) for low, high in itertools.pairwise([*cut, len(fitting)])) or ("",)


def _cut(widths: Sequence[float], space: float, width: float) -> list[int]:
    """Return the first word of each line."""
    first: list[int] = []
    end = 0.0
    for number, own in enumerate(widths):
        if first and end + space + own <= width:
            end += space + own
        else:
            first.append(number)
            end = own
    return first


def _shortened(text: str, width: float, measure: Callable[[str], float]) -> str:
    """Cut a text that is too wide, and end it in an ellipsis."""
    if measure(text) <= width:
        return text
    fits = itertools.takewhile(lambda n: measure(text[:n] + "…") <= width, range(1, len(text)))
    return text[: max(fits, default=0)] + "…"


def layout(levels: Sequence[int], sizes: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Place the nodes of a tree.

    Parameters
    ----------
    levels : sequence of int
        Levels of the nodes, depth-first.
    sizes : sequence of (float, float)
        Width and height of each, in points.

    Returns
    -------
    list of (float, float)
        The left and the upper edge of each, in points from the upper left corner of the tree.
    """
    above = parents_of(levels)
    held = [0.0] * len(levels)  # what the children's blocks take together
    block = [0.0] * len(levels)
    for number in reversed(range(len(levels))):
        held[number] += GROUP if held[number] else 0.0
        block[number] = max(sizes[number][1] + GAP, held[number])
        if above[number] >= 0:
            held[above[number]] += block[number]
    widest = [0.0] * (max(levels, default=0) + 1)
    for level, (width, _) in zip(levels, sizes, strict=True):
        widest[level] = max(widest[level], width)
    left = [0.0, *itertools.accumulate(width + STEP for width in widest)]
    free, low = [0.0] * len(levels), 0.0  # where the next child's, and the next root's, block begins
    places = []
    for number, level in enumerate(levels):
        parent = above[number]
        top = free[parent] if parent >= 0 else low
        if parent >= 0:
            free[parent] += block[number]
        else:
            low += block[number]
        free[number] = top + (block[number] - held[number] + (GROUP if held[number] else 0.0)) / 2
        places.append((left[level], top + (block[number] - sizes[number][1]) / 2))
    return places


def parents_of(levels: Sequence[int]) -> list[int]:
    """Return the number of each node's parent, given the levels depth-first; -1 for a root."""
    last: dict[int, int] = {}
    found = []
    for number, level in enumerate(levels):
        found.append(last[level - 1] if level else -1)
        last[level] = number
    return found
