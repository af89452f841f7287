"""Draw trees of topics as PNG or SVG, with matplotlib, and write them as GraphML.

The root is at the left, and each level has a column. A node is a card with its words, centred in a block that is as
high as the card or as the blocks of its children together, whichever is higher. So cards do not overlap, and a parent
lies between its first and its last child.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from collapsium.pipeline.formatting import plain
from collapsium.pipeline.models.topics import Topic
from collapsium.pipeline.reporting.plots.style import COLOURS, Drawing, Style, measured_width, new_figure, picture_kind
from collapsium.pipeline.reporting.trees import (
    FONT,
    INSET,
    LINE,
    MAX_DRAWN,
    SMALL,
    TITLE,
    Card,
    cards_of,
    edge_points,
    fold,
    layout,
    parents_of,
    shortened_to,
    strength,
    wrapped,
)
from collapsium.storage.errors import OptionError
from collapsium.storage.io.file import File, require_free

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from collapsium.pipeline.models.topics import Topic


# Factors on the cards' widths; the first is taken whose picture is at most MAX_ASPECT times as high as wide.
WIDTH_FACTORS, MAX_ASPECT = (1.0, 1.4, 2.0), 1.5
MARGIN = 18.0
# Minimum width of a picture, for its caption.
MIN_WIDTH = 440.0
# An SVG names all the fonts; a viewer uses the first that it has.
STYLE = {
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "text.usetex": False,
}
INK, GREY, EDGE = "#111111", "#4a4a4a", "#8c9aa5"
CAPTION = (
    "Each card shows a node's id, the share of the {unit} at and below the node, and its {words}. "
    "A darker card and a thicker line mean a larger share.{folded}"
)
FOLDED = " Small nodes are folded into entries “… n more” with their total share."


def tree_drawing(tree: Sequence[Topic], title: str, style: Style | None = None) -> Drawing:
    """Draw a tree."""
    return Drawing(lambda: _figure(tree, title, style or Style()), STYLE)


def _figure(tree: Sequence[Topic], title: str, style: Style) -> Figure:
    """Return a figure with one pair of axes, whose units are points from the upper left corner."""
    levels = [node.level or 0 for node in tree]
    for factor in WIDTH_FACTORS:
        cards = cards_of(tree, measured_width, factor)
        places = layout(levels, [(card.width, card.height) for card in cards])
        across = max([MIN_WIDTH, *(x + card.width for (x, _), card in zip(places, cards, strict=True))])
        down = max((y + card.height for (_, y), card in zip(places, cards, strict=True)), default=0.0)
        if down <= MAX_ASPECT * across:
            break
    signed = any(node.signed for node in tree)
    text = CAPTION.format(
        unit="documents" if signed else "tokens",
        words="largest loadings" if signed else "most probable words",
        folded="" if all(node.names for node in tree) else FOLDED,
    )
    caption = wrapped(style.text(text).split(), across, lambda line: measured_width(line, SMALL), " ")
    upper = MARGIN + TITLE * LINE + len(caption) * SMALL * LINE + 2 * INSET
    size = (across + 2 * MARGIN, upper + down + MARGIN)
    figure = new_figure(size[0] / 72, size[1] / 72, layout=None)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0.0, size[0]), ylim=(size[1], 0.0))
    axes.axis("off")
    heading = shortened_to(plain(title), across, lambda line: measured_width(line, TITLE))
    _write(axes, MARGIN, MARGIN + TITLE / 2, heading, TITLE, INK)
    for number, line in enumerate(caption):
        _write(axes, MARGIN, MARGIN + TITLE * LINE + (number + 0.8) * SMALL * LINE, line, SMALL, GREY)
    moved = [(x + MARGIN, y + upper) for x, y in places]
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    for number, above in enumerate(parents_of([node.level or 0 for node in tree])):
        if above < 0:
            continue
        codes = [Path.MOVETO, Path.LINETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
        path = Path(edge_points(moved[above], cards[above], moved[number], cards[number]), codes)
        width = 0.6 + 3.0 * strength(tree[number])
        axes.add_patch(PathPatch(path, fill=False, edgecolor=EDGE, linewidth=width, zorder=1))
    for node, card, (x, y) in zip(tree, cards, moved, strict=True):
        _draw_card(axes, node, card, x, y)
    return figure


def _write(axes: Axes, x: float, y: float, text: str, size: float, colour: str) -> None:
    # Without `parse_math`, a dollar sign would start a formula.
    axes.text(x, y, text, size=size, color=colour, ha="left", va="center_baseline", parse_math=False)


def _draw_card(axes: Axes, node: Topic, card: Card, x: float, y: float) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0,rounding_size=3"
    # Entries of folded nodes, which have no words, have a dashed outline.
    # A part of the first colour, mixed with white.
    part, line = (0.05 + 0.5 * strength(node), "-") if node.names else (0.0, "--")
    fill = tuple(1.0 - part * (1.0 - int(COLOURS[0][at : at + 2], 16) / 255) for at in (1, 3, 5))
    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            card.width,
            card.height,
            style,
            facecolor=fill,
            edgecolor=EDGE,
            linewidth=0.6,
            linestyle=line,
            zorder=2,
        )
    )
    first = y + INSET / 2 + FONT * LINE / 2
    _write(axes, x + INSET, first, card.head, SMALL, GREY)
    for number, line in enumerate(card.lines):
        _write(axes, x + card.indent, first + number * FONT * LINE, line, FONT, INK)


LABEL_WORDS = 3
NAMESPACE = "http://graphml.graphdrawing.org/xmlns"


def check_files(pictures: Sequence[str], graph: str | None, *, overwrite: bool = False) -> None:
    """Refuse files that could not be written, before any work is done."""
    for path in pictures:
        picture_kind(path, "picture")
    paths = [*pictures, *([] if graph is None else [graph])]
    for path in paths:
        if paths.count(path) > 1:
            raise OptionError(f"{path}: named twice")
    if not overwrite:
        require_free(*paths)


def write_files(
    tree: Sequence[Topic],
    pictures: Sequence[str],
    graph: str | None,
    *,
    title: str = "",
    words: int | None = None,
    min_share: float | None = None,
    levels: int | None = None,
) -> None:
    """Write pictures of a tree, and its GraphML."""
    paths = [*pictures, *([] if graph is None else [graph])]
    if paths and any(node.level is None for node in tree):
        option = "picture" if pictures else "graphml"
        raise OptionError(f"`{option}` {paths[0]}: this family's topics are not a tree; omit the option")
    shown = fold(tree, min_share=min_share, levels=levels, max_entries=MAX_DRAWN) if pictures else []
    short = [replace(node, words=node.words[:words]) for node in shown]
    files = {path: tree_drawing(short, title).file(picture_kind(path, "picture")) for path in pictures}
    if graph is not None:
        files[graph] = graphml(tree)
    for path, content in files.items():
        File(path).write(content)


def graphml(tree: Sequence[Topic]) -> bytes:
    """Return a tree as GraphML.

    Nodes have the attributes ``label`` (the first words), ``words`` (all words, separated by commas), ``share``,
    ``below`` and ``level``, and ``stability`` where it is known; edges go from parent to child.
    """
    kinds = {"label": "string", "words": "string", "share": "double", "below": "double", "level": "long"}
    if any(node.stability is not None for node in tree):
        kinds["stability"] = "double"
    root = ET.Element("graphml", {"xmlns": NAMESPACE})
    for name, kind in kinds.items():
        ET.SubElement(root, "key", {"id": name, "for": "node", "attr.name": name, "attr.type": kind})
    graph = ET.SubElement(root, "graph", {"id": "topics", "edgedefault": "directed"})
    for node in tree:
        element = ET.SubElement(graph, "node", {"id": str(node.id)})
        for name, value in (
            {
                "label": " ".join(node.names[:LABEL_WORDS]) if node.title is None else node.title,
                "words": ", ".join(node.names),
                "share": repr(node.share),
                "below": repr(node.below),
                "level": str(node.level),
                "stability": None if node.stability is None else repr(node.stability),
            }
        ).items():
            if name in kinds and value is not None:
                # Words may contain characters that XML does not allow.
                ET.SubElement(element, "data", {"key": name}).text = value if kinds[name] != "string" else plain(value)
    for node in tree:
        if node.parent is not None:
            ET.SubElement(graph, "edge", {"source": str(node.parent), "target": str(node.id)})
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="UTF-8", xml_declaration=True)
    return text + b"\n"
