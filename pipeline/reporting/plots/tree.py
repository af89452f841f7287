"""Pictures of trees of topics, where matplotlib is installed: PNG and SVG.

The root is at the left, a column a level. Each node is a card with its words, in the middle of a block of its own: as
high as the card, or as the blocks of its children together, which lie in it one under another. So no cards overlap, and
a parent lies between its first and its last child.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.plots.style import COLOURS, DPI, SALT, saved
from collapsium.pipeline.reporting.tree_layout import (
    FONT,
    INSET,
    LINE,
    SMALL,
    STEP,
    TITLE,
    Card,
    Measure,
    _shortened,
    cards_of,
    layout,
    parents_of,
    wrapped,
)

if TYPE_CHECKING:
    from collapsium.pipeline.analysis.topics import Topic

WIDER, TALL = (1.0, 1.4, 2.0), 1.5  # by how much they grow where a tree is higher than so many times its width
MARGIN = 18.0
NARROW = 440.0  # what a picture is wide at least, for its caption
ROOMY = 1.04  # other fonts than the one that was measured may be a little wider
MOST = 60_000  # pixels that a PNG may be high or wide
STYLE = {  # an SVG names all the fonts, of which a reader takes the first that it has
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "svg.fonttype": "none",
    "text.usetex": False,
}
INK, GREY, THREAD = "#111111", "#4a4a4a", "#8c9aa5"
CAPTION = (
    "Each node: its id, the share of the {what} at it and below it, and its {words}. "
    "The darker a node and the thicker its line, the larger the share.{folded}"
)

FOLDED = " Small nodes are folded: … n more, with their share."


def draw(tree: Sequence[Topic], kind: str, title: str) -> bytes:
    """Draw a tree.

    Parameters
    ----------
    tree : sequence of Topic
        Its nodes, depth-first.
    kind : str
        ``png`` or ``svg``.
    title : str
        What stands above it.

    Returns
    -------
    bytes
        The file; text of an SVG stays text, and the same tree gives the same bytes.
    """
    from matplotlib import rc_context

    with warnings.catch_warnings(), rc_context({**SALT, **STYLE}):
        # Letters that the font lacks are boxes in a PNG; an SVG has them all.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure = _figure(tree, title, _measure)
        inches = max(figure.get_size_inches())
        return saved(figure, kind, min(DPI, MOST / inches))


@lru_cache(maxsize=100_000)
def _measure(text: str, size: float) -> float:
    """Return the width of a text, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)  # another font will have these
    return max(float(width), wide * size) * ROOMY


def _figure(tree: Sequence[Topic], title: str, measure: Measure) -> Any:
    """Make the figure: one pair of axes, whose units are points from the upper left corner."""
    from matplotlib.figure import Figure

    levels = [node.level or 0 for node in tree]
    for wider in WIDER:
        cards = cards_of(tree, measure, wider)
        places = layout(levels, [(card.width, card.height) for card in cards])
        across = max([NARROW, *(x + card.width for (x, _), card in zip(places, cards, strict=True))])
        down = max((y + card.height for (_, y), card in zip(places, cards, strict=True)), default=0.0)
        if down <= TALL * across:
            break
    signed = any(node.signed for node in tree)
    text = CAPTION.format(
        what="documents" if signed else "tokens",
        words="largest loadings" if signed else "most probable words",
        folded="" if all(node.names for node in tree) else FOLDED,
    )
    caption = wrapped(text.split(), across, lambda line: measure(line, SMALL), " ")
    upper = MARGIN + TITLE * LINE + len(caption) * SMALL * LINE + 2 * INSET
    size = (across + 2 * MARGIN, upper + down + MARGIN)
    figure = Figure(figsize=(size[0] / 72, size[1] / 72))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0.0, size[0]), ylim=(size[1], 0.0))
    axes.axis("off")
    heading = _shortened(plain(title), across, lambda line: measure(line, TITLE))
    _write(axes, MARGIN, MARGIN + TITLE / 2, heading, TITLE, INK)
    for number, line in enumerate(caption):
        _write(axes, MARGIN, MARGIN + TITLE * LINE + (number + 0.8) * SMALL * LINE, line, SMALL, GREY)
    moved = [(x + MARGIN, y + upper) for x, y in places]
    _draw_threads(axes, tree, parents_of(levels), cards, moved)
    for node, card, (x, y) in zip(tree, cards, moved, strict=True):
        _draw_card(axes, node, card, x, y)
    return figure


def _write(axes: Any, x: float, y: float, text: str, size: float, colour: str) -> None:
    # A dollar sign begins no formula.
    axes.text(x, y, text, size=size, color=colour, ha="left", va="center_baseline", parse_math=False)


def _draw_threads(
    axes: Any, tree: Sequence[Topic], above: Sequence[int], cards: Sequence[Card], places: Sequence[tuple[float, float]]
) -> None:
    """Draw a line from each node's parent to it, behind the cards."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    for number, parent in enumerate(above):
        if parent < 0:
            continue
        x, y = places[parent][0] + cards[parent].width, places[parent][1] + cards[parent].height / 2
        to, down = places[number][0], places[number][1] + cards[number].height / 2
        # Level through the parent's column, where no other card lies, then over to the child.
        turn = to - STEP
        bend = (turn + to) / 2
        codes = [Path.MOVETO, Path.LINETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
        path = Path([(x, y), (turn, y), (bend, y), (bend, down), (to, down)], codes)
        width = 0.6 + 3.0 * _strength(tree[number])
        axes.add_patch(PathPatch(path, fill=False, edgecolor=THREAD, linewidth=width, zorder=1))


def _draw_card(axes: Any, node: Topic, card: Card, x: float, y: float) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0,rounding_size=3"
    # Folded nodes, which have no words, are dashed.
    fill, line = (_tint(0.05 + 0.5 * _strength(node)), "-") if node.names else ((1.0, 1.0, 1.0), "--")
    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            card.width,
            card.height,
            style,
            facecolor=fill,
            edgecolor=THREAD,
            linewidth=0.6,
            linestyle=line,
            zorder=2,
        )
    )
    first = y + INSET / 2 + FONT * LINE / 2
    _write(axes, x + INSET, first, card.head, SMALL, GREY)
    for number, line in enumerate(card.lines):
        _write(axes, x + card.indent, first + number * FONT * LINE, line, FONT, INK)


def _strength(node: Topic) -> float:
    """Return how dark and thick a node is, from 0 to 1: the root of its share, so that small ones still differ."""
    return float(min(max(node.below or 0.0, 0.0), 1.0) ** 0.5)


def _tint(part: float) -> tuple[float, float, float]:
    """Mix white with so much of the first colour."""
    red, green, blue = (1.0 - part * (1.0 - int(COLOURS[0][at : at + 2], 16) / 255) for at in (1, 3, 5))
    return red, green, blue
