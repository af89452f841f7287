"""Drawings of trees of topics: small and deep branches are folded, and cards of text laid out without overlap."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collapsium.pipeline.formatting import plain
from collapsium.pipeline.models.topics import Topic
from collapsium.storage.errors import OptionError

# All lengths are in points. In a browser the fonts have 13.3, 12 and 18.7 pixels.
FONT, SMALL, TITLE = 10.0, 9.0, 14.0
# Height of a line, relative to its font.
LINE = 1.25
# Widths at which the words of inner nodes and of leaves wrap.
INNER, LEAF = 150.0, 262.0
# Distance between a card's edge and its text.
INSET = 5.0
# Room below each card, and further room below the children of a node.
GAP, GROUP = 4.5, 5.0
# Lines are shortened in steps of this width until they are about equally long.
WRAP_STEP = 5.0
# Distance between columns.
STEP = 36.0
Measure = Callable[[str, float], float]


@dataclass(frozen=True)
class Card:
    """A node's text and size."""

    head: str  # The id and the share
    lines: tuple[str, ...]  # The words, wrapped
    indent: float  # Distance from the card's left edge to the words, in points
    # The card's size, in points
    width: float
    height: float


def cards_of(tree: Sequence[Topic], measure: Measure, wider: float = 1.0) -> list[Card]:
    """Return the nodes' cards, with words wrapped."""
    levels = [node.level or 0 for node in tree]
    heads = [f"{node.label} · {node.below:.1%}" for node in tree]
    # The words of a column are aligned.
    columns: dict[int, float] = {}
    for node, level, head in zip(tree, levels, heads, strict=True):
        if node.names:
            columns[level] = max(columns.get(level, 0.0), measure(head, SMALL))
    cards = []
    for number, (node, head) in enumerate(zip(tree, heads, strict=True)):
        leaf = number + 1 == len(tree) or levels[number + 1] <= levels[number]
        room = wider * (LEAF if leaf else INNER)
        lines = wrapped([plain(word) for word in node.names], room, lambda text: measure(text, FONT))
        indent = INSET + (columns[levels[number]] + INSET if node.names else measure(heads[number], SMALL))
        width = indent + max(measure(line, FONT) for line in lines) + INSET
        cards.append(Card(head, lines, indent, width, len(lines) * FONT * LINE + INSET))
    return cards


def wrapped(
    words: Sequence[str], width: float, measure: Callable[[str], float], between: str = "  "
) -> tuple[str, ...]:
    """Wrap words into the smallest number of lines, of about equal length."""
    fitting = [shortened_to(word, width, measure) for word in words]
    widths, space = [measure(word) for word in fitting], measure(between)
    starts = _line_starts(widths, space, width)
    steps = max(int(width / WRAP_STEP), 1)
    for narrower in (width * step / steps for step in range(steps, 0, -1)):
        if narrower < max(widths, default=0.0):
            break
        candidate = _line_starts(widths, space, narrower)
        if len(candidate) > len(starts):
            break
        starts = candidate
    return tuple(between.join(fitting[low:high]) for low, high in itertools.pairwise([*starts, len(fitting)])) or ("",)


def _line_starts(widths: Sequence[float], space: float, width: float) -> list[int]:
    """Return the index of each line's first word."""
    first: list[int] = []
    end = 0.0
    for number, name_width in enumerate(widths):
        if first and end + space + name_width <= width:
            end += space + name_width
        else:
            first.append(number)
            end = name_width
    return first


def shortened_to(text: str, width: float, measure: Callable[[str], float]) -> str:
    """Return a text that fits a width, cut and ended by an ellipsis if needed."""
    if measure(text) <= width:
        return text
    fits = itertools.takewhile(lambda n: measure(text[:n] + "…") <= width, range(1, len(text)))
    return text[: max(fits, default=0)] + "…"


def layout(levels: Sequence[int], sizes: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Place the nodes of a tree."""
    parents = parents_of(levels)
    # A node's block has room for its card and for its children's blocks, whose heights add up in `children`.
    children = [0.0] * len(levels)
    block = [0.0] * len(levels)
    for number in reversed(range(len(levels))):
        children[number] += GROUP if children[number] else 0.0
        block[number] = max(sizes[number][1] + GAP, children[number])
        if parents[number] >= 0:
            children[parents[number]] += block[number]
    widest = [0.0] * (max(levels, default=0) + 1)
    for level, (width, _) in zip(levels, sizes, strict=True):
        widest[level] = max(widest[level], width)
    left = [0.0, *itertools.accumulate(width + STEP for width in widest)]
    # Upper edges of each node's next child block, and of the next root's block.
    next_child, next_root = [0.0] * len(levels), 0.0
    places = []
    for number, level in enumerate(levels):
        parent = parents[number]
        top = next_child[parent] if parent >= 0 else next_root
        if parent >= 0:
            next_child[parent] += block[number]
        else:
            next_root += block[number]
        unused = block[number] - children[number] + (GROUP if children[number] else 0.0)
        next_child[number] = top + unused / 2
        places.append((left[level], top + (block[number] - sizes[number][1]) / 2))
    return places


def parents_of(levels: Sequence[int]) -> list[int]:
    """Return the index of each node's parent from the levels in depth-first order; -1 for a root."""
    last: dict[int, int] = {}
    parents = []
    for number, level in enumerate(levels):
        parents.append(last[level - 1] if level else -1)
        last[level] = number
    return parents


def strength(node: Topic) -> float:
    """Return the visual weight of a node from 0 to 1: the square root of its share, so that small ones still differ."""
    return float(min(max(node.below or 0.0, 0.0), 1.0) ** 0.5)


def edge_points(
    parent_place: tuple[float, float], parent: Card, place: tuple[float, float], card: Card
) -> list[tuple[float, float]]:
    """Return the points of the edge from a parent to a node: start, end of the straight part, and three of a cubic."""
    # The straight part crosses the parent's column, which has no other card at this height.
    x, y = parent_place[0] + parent.width, parent_place[1] + parent.height / 2
    child_x, child_y = place[0], place[1] + card.height / 2
    turn = child_x - STEP
    bend = (turn + child_x) / 2
    return [(x, y), (turn, y), (bend, y), (bend, child_y), (child_x, child_y)]


MAX_DRAWN = 60  # Entries of a picture, unless the user chooses which branches to fold


@dataclass(frozen=True)
class FoldedNodes(Topic):
    """An entry for nodes that are not shown: some children of a node, with all their descendants.

    The entry has the parent's id, the children's level, and no words; ``below`` is the sum over the children.
    """

    count: int = 0  # Number of nodes

    @property
    def label(self) -> str:
        """The entry's text in a drawing of a tree."""
        return f"… {self.count:,} more"


def check_folding(min_share: float | None, levels: int | None) -> None:
    """Raise `OptionError` if the minimum share is not in [0, 1], or there are less than one level."""
    if min_share is not None and not 0.0 <= min_share <= 1.0:
        raise OptionError(f"`min_share` {min_share}: expected a share from 0 to 1, such as 0.01")
    if levels is not None and levels < 1:
        raise OptionError(f"`levels` {levels}: expected 1, the root alone, or more")


def fold(
    tree: Sequence[Topic], *, min_share: float | None = None, levels: int | None = None, max_entries: int | None = None
) -> list[Topic]:
    """Fold the small and deep branches of a tree."""
    check_folding(min_share, levels)
    parents = parents_of([node.level or 0 for node in tree])
    if min_share is None and levels is None:
        shown = [True] * len(tree) if max_entries is None else _largest(tree, parents, max_entries)
    else:
        smallest, deepest = min_share or 0.0, levels or len(tree)
        shown = []
        for node, parent in zip(tree, parents, strict=True):
            large = (node.below or 0.0) >= smallest and (node.level or 0) < deepest
            shown.append(parent < 0 or (large and shown[parent]))
    return _with_folded_entries(tree, parents, shown)


def _largest(tree: Sequence[Topic], parents: Sequence[int], max_entries: int) -> list[bool]:
    """Mark the largest nodes, so that they and the entries for folded nodes are at most `max_entries`."""
    hidden_children = [0] * len(tree)
    for parent in parents:
        if parent >= 0:
            hidden_children[parent] += 1
    shown, rows = [False] * len(tree), 0
    # A node's `below` is at least each child's, so parents come first except for rounding.
    for row in sorted(range(len(tree)), key=lambda row: (-(tree[row].below or 0.0), row)):
        parent = parents[row]
        # A node adds an entry, and one for its folded children; the last child takes the folded children's entry.
        added = 1 + (hidden_children[row] > 0) - (parent >= 0 and hidden_children[parent] == 1)
        if parent >= 0 and (not shown[parent] or rows + added > max_entries):
            continue
        shown[row] = True
        rows += added
        if parent >= 0:
            hidden_children[parent] -= 1
    return shown


def _with_folded_entries(tree: Sequence[Topic], parents: Sequence[int], shown: Sequence[bool]) -> list[Topic]:
    """Return the nodes that are shown, with entries for the folded ones."""
    # Number and share of the nodes that are folded below each shown node.
    count, share = [0] * len(tree), [0.0] * len(tree)
    for row, parent in enumerate(parents):
        if shown[row]:
            continue
        if shown[parent]:
            share[parent] += tree[row].below or 0.0
        while not shown[parent]:
            parent = parents[parent]
        count[parent] += 1
    entries: list[Topic] = []
    # Ancestors of the current node, from the root on.
    unfinished: list[int] = []

    def finish(level: int) -> None:
        while len(unfinished) > level:
            row = unfinished.pop()
            if count[row]:
                node = tree[row]
                entries.append(
                    FoldedNodes(
                        node.id, 0.0, [], parent=node.id, level=(node.level or 0) + 1, below=share[row],
                        signed=node.signed, count=count[row],
                    )
                )  # fmt: skip

    for row, node in enumerate(tree):
        if shown[row]:
            finish(node.level or 0)
            entries.append(node)
            unfinished.append(row)
    finish(0)
    return entries
