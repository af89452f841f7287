"""Pictures of trees of topics, where matplotlib is installed: PNG and SVG.

The root is at the left, a column a level. Each node is a card with its words, in the middle of a block of its own: as
high as the card, or as the blocks of its children together, which lie in it one under another. So no cards overlap, and
a parent lies between its first and its last child.
"""

from __future__ import annotations

import itertools
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from collapsar.pipeline.plotting import COLOURS, DPI, SALT, can_draw, saved
from collapsar.pipeline.progress import plain
from collapsar.storage.errors import MissingError, OptionError

if TYPE_CHECKING:
    from collapsar.pipeline.describing import Topic

# All lengths are points.
FONT, SMALL, TITLE = 10.0, 9.0, 14.0  # in a browser 13.3, 12 and 18.7 pixels
LINE = 1.25  # height of a line, of its font's
INNER, LEAF = 150.0, 262.0  # widths at which the words of nodes with and without children go to the next line
INSET = 5.0  # from a card's edge to its text
WIDER, TALL = (1.0, 1.4, 2.0), 1.5  # by how much they grow where a tree is higher than so many times its width
GAP, GROUP = 4.5, 5.0  # below each card, and once more below the children of a node
FINE = 5.0  # steps in which lines are made shorter, to be as long as one another
STEP = 36.0  # from a column to the next
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
KINDS = ("png", "svg")
CAPTION = (
    "Each node: its id, the share of the {what} at it and below it, and its {words}. "
    "The darker a node and the thicker its line, the larger the share.{folded}"
)

FOLDED = " Small nodes are folded: … n more, with their share."

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


def kind_of(path: str) -> str:
    """Return ``png`` or ``svg``, by a path's ending.

    Parameters
    ----------
    path : str
        Of a picture.

    Returns
    -------
    str
        Its kind.

    Raises
    ------
    OptionError
        It ends otherwise.
    MissingError
        There is no matplotlib to draw it.
    """
    kind = path.rpartition(".")[2].lower()
    if kind not in KINDS:
        raise OptionError(f"--picture {path}: expected a name that ends in .svg or .png")
    if not can_draw():
        raise MissingError(
            "--picture: pictures need matplotlib, which is not there; the extra 'plots' asks for it: "
            "pip install 'collapsar[plots]'"
        )
    return kind


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
