"""Drawings of a report in SVG: topics over time, along segments, and as a tree, which is also a nested list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from collapsium.pipeline.analysis.segments import colours_of
from collapsium.pipeline.analysis.topic_shares import TimeShares
from collapsium.pipeline.formatting import counted, number, percent, plain
from collapsium.pipeline.models.topics import Topic
from collapsium.pipeline.reporting.plots.time import (
    BAND,
    FEW_DOCUMENTS,
    label_of,
    labelled_periods,
    top_of_scale,
    unbroken,
)
from collapsium.pipeline.reporting.text_layout import text_width
from collapsium.pipeline.reporting.trees import (
    FONT,
    INSET,
    LINE,
    SMALL,
    Card,
    FoldedNodes,
    cards_of,
    edge_points,
    fold,
    layout,
    parents_of,
    strength,
)
from collapsium.pipeline.svg import Chart, Ticks, ticks
from collapsium.storage.runs.summary import SegmentedDocument

TIME_LEFT = 52.0  # Left margin of the charts over time
MAX_DATES = 4
TIME_WORDS = 4


@dataclass(frozen=True)
class TopicChart:
    """A chart of a topic, or of something else; with a caption, and the classes and names of its lines."""

    title: str
    topic: int | None
    svg: Markup
    caption: str = ""
    lines: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class TimeView:
    """The page's section on time: charts, whether a period has few documents, and notes on documents left out."""

    period: str
    charts: list[TopicChart]
    has_small_periods: bool
    notes: list[str]


def time_view(shares: TimeShares, topics: Sequence[Topic], documents: str) -> TimeView:
    """Draw topic shares by period."""
    known = {topic.id: topic for topic in topics}
    # Seconds since the beginning of the first period.
    origin = shares.starts[0]
    edges = [
        ((start - origin).total_seconds(), (end - origin).total_seconds())
        for start, end in zip(shares.starts, shares.ends, strict=True)
    ]
    middles, end = [(low + high) / 2 for low, high in edges], edges[-1][1]
    dates = [(middles[row], label_of(shares, row)) for row in labelled_periods([x / end for x in middles], MAX_DATES)]
    columns = [column for column in shares.foremost() if int(shares.topics[column]) in known]
    charts = [_topic(shares, column, known[int(shares.topics[column])], edges, dates, documents) for column in columns]
    heading = documents.capitalize()
    sizes = Chart((0.0, end), (0.0, 1.1 * float(shares.documents.max())), left=TIME_LEFT)
    for edge, name, count in zip(edges, shares.names, shares.documents.tolist(), strict=True):
        sizes.bar(edge, (0.0, count), title=f"{name}: {count:,}")
    caption = f"{number(int(shares.documents.sum()))} in {shares.counted}"
    y_ticks = [(mark, f"{mark:,.0f}") for mark in ticks(*sizes.y, integer=True)]
    charts.append(TopicChart(heading, None, sizes.drawn(f"{heading}, {caption}", dates, y_ticks), caption))
    return TimeView(shares.period, charts, bool((shares.documents < FEW_DOCUMENTS).any()), shares.notes)


def _topic(
    shares: TimeShares, column: int, topic: Topic, edges: Sequence[tuple[float, float]], dates: Ticks, documents: str
) -> TopicChart:
    share, error = shares.shares[:, column], BAND * shares.errors[:, column]
    high, x = top_of_scale(shares, column), [(low + right) / 2 for low, right in edges]
    low_edge, high_edge = np.clip(share - error, 0.0, high), np.clip(share + error, 0.0, high)
    chart = Chart((0.0, edges[-1][1]), (0.0, high), left=TIME_LEFT)
    for run in unbroken(shares):
        rows, wide = list(run), [x[row] for row in run]
        if len(rows) == 1:
            # The band of a single period extends by a quarter of its length to both sides.
            low, right = edges[rows[0]]
            rows, wide = rows * 2, [x[rows[0]] - (right - low) / 4, x[rows[0]] + (right - low) / 4]
        else:
            chart.line([(x[row], share[row]) for row in rows], "c0")
        upper, lower = (list(zip(wide, edge[rows].tolist(), strict=True)) for edge in (high_edge, low_edge))
        chart.area([*upper, *reversed(lower)], "band")
    rows_of_periods = zip(x, shares.names, share.tolist(), error.tolist(), shares.documents.tolist(), strict=True)
    for middle, name, value, half, count in rows_of_periods:
        counted_documents = counted(count, "document") if documents == "documents" else f"{count:,} {documents}"
        text = f"{name}: {percent(value)} ± {percent(half)}, {counted_documents}"
        chart.dot(middle, value, "mark few" if count < FEW_DOCUMENTS else "mark", text)
    words = " ".join(plain(word) for word in ([topic.title] if topic.title is not None else topic.names[:TIME_WORDS]))
    lowest, highest = int(share.argmin()), int(share.argmax())
    caption = (
        f"lowest {percent(share[lowest])} ({shares.names[lowest]}), highest {percent(share[highest])} "
        f"({shares.names[highest]})"
    )
    digits = 0 if high >= 0.04 else 1 if high >= 0.004 else 2
    y_ticks = [(mark, f"{mark:.{digits}%}") for mark in ticks(0.0, high)]
    return TopicChart(words, topic.id, chart.drawn(f"{words}, {caption}", dates, y_ticks), caption)


Floats = npt.NDArray[np.float64]

SEGMENTS_SIZE, SEGMENTS_LEFT = (720.0, 230.0), 44.0
# Classes s0, s1, ... of the page's style; `rest` is the grey of all other topics.
SEGMENT_COLOURS = 10
SEGMENT_WORDS = 3


@dataclass(frozen=True)
class Area:
    """The area of a topic, or of all other topics: CSS class of the colour, and first words."""

    topic: int | None
    colour: str
    words: str


@dataclass(frozen=True)
class SegmentView:
    """A document's chart: name, caption, areas from the bottom up, and the drawing."""

    name: str
    caption: str
    areas: list[Area]
    svg: Markup


def segment_view(document: SegmentedDocument, known: dict[int, Topic], kind: str) -> SegmentView:
    """Draw the segments of a document, with links to the topics, which are of a `kind`: ``Topic`` or ``Node``."""
    drawn = [topic for topic in document.topics if topic in known]
    colours = colours_of(drawn, list(known), SEGMENT_COLOURS)
    rows = dict(zip(document.topics, np.array(document.shares), strict=True))
    base, areas = np.zeros(len(document.shares[0]) if document.shares else 1), []
    chart = Chart((0.0, float(document.segments)), (0.0, 1.0), *SEGMENTS_SIZE, SEGMENTS_LEFT)
    edges = np.arange(base.size + 1) * document.segments / base.size
    for topic in drawn:
        above = np.minimum(base + rows[topic], 1.0)
        title = known[topic].title
        words = " ".join(plain(word) for word in (known[topic].names[:SEGMENT_WORDS] if title is None else [title]))
        areas.append(Area(topic, f"s{colours[topic]}", words))
        outline = [*_steps(edges, above), *reversed(_steps(edges, base))]
        chart.area(outline, areas[-1].colour, f"{kind} {topic}: {words}", f"{kind.lower()}-{topic}")
        base = above
    if (base < 0.999).any():
        areas.append(Area(None, "rest", "other topics"))
        outline = [(edges[0], 1.0), (edges[-1], 1.0), *reversed(_steps(edges, base))]
        chart.area(outline, areas[-1].colour, areas[-1].words)
    x_ticks = [(mark - 0.5, f"{mark:,.0f}") for mark in ticks(1, document.segments, 8, integer=True)]
    y_ticks = [(share, f"{share:.0%}") for share in (0.0, 0.5, 1.0)]
    name = plain(document.id if document.title is None else f"{document.id}: {document.title}")
    caption = f"{document.segments:,} segments; mean distance between neighbours {number(document.distance, 3)}"
    if base.size < document.segments:
        caption += f"; each step is the mean of about {document.segments / base.size:.2g} neighbouring segments"
    return SegmentView(name, caption, areas, chart.drawn(f"{name}: {caption}", x_ticks, y_ticks, grid=False))


def _steps(edges: Floats, heights: Floats) -> list[tuple[float, float]]:
    """Return the upper edge of an area with a step for each segment."""
    return list(zip(np.repeat(edges, 2)[1:-1].tolist(), np.repeat(heights, 2).tolist(), strict=True))


# Entries of the drawing, and rows of the list that are open at first, unless the user chooses which branches to fold.
MAX_ENTRIES, MAX_OPEN_ROWS = 40, 30
TREE_WORDS = 5
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
        words = [plain(word) for word in node.names[:TREE_WORDS]]
        if first and rest:
            stub = folded[node.id]
            first.append(Branch(None, stub.label, stub.below or 0.0, [], rest, False))
        return Branch(node, node.label, node.below or 0.0, words, first or rest, bool(first))

    return [branch(node) for node in tree if node.level == 0]


def tree_view(tree: Sequence[Topic], *, min_share: float | None = None, levels: int | None = None) -> TreeView:
    """Lay out the largest nodes of a tree."""
    drawn = fold(tree, min_share=min_share, levels=levels, max_entries=MAX_ENTRIES)
    short = [replace(node, words=node.words[:TREE_WORDS]) for node in drawn]
    depths = [node.level or 0 for node in drawn]
    cards = cards_of(short, text_width)
    places = layout(depths, [(card.width, card.height) for card in cards])
    parents = parents_of(depths)
    nodes = []
    for row, (node, card, (x, y)) in enumerate(zip(drawn, cards, places, strict=True)):
        weight = strength(node)
        texts = [(y + INSET / 2 + FONT * LINE * (line + 0.5), text) for line, text in enumerate(card.lines)]
        parent, thread = parents[row], ""
        if parent >= 0:
            points = edge_points(places[parent], cards[parent], (x, y), card)
            start, turn, *curve = [f"{x:.1f},{y:.1f}" for x, y in points]
            thread = f"M{start}L{turn}C{' '.join(curve)}"
        folded = isinstance(node, FoldedNodes)
        nodes.append(Node(node.id, x, y, card, weight, texts, thread, 0.6 + 3.0 * weight, folded))
    width = max((x + card.width for (x, _), card in zip(places, cards, strict=True)), default=0.0)
    height = max((y + card.height for (_, y), card in zip(places, cards, strict=True)), default=0.0)
    left_out = sum(node.count for node in drawn if isinstance(node, FoldedNodes))
    return TreeView(nodes, width + 2, height + 2, left_out)
