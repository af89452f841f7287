"""Draw a run with matplotlib: its convergence, the sizes of its topics, their map, and pictures of their own."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from collapsium.pipeline.analysis.expected_topics import label_topics
from collapsium.pipeline.analysis.group_words import MAX_GROUPS
from collapsium.pipeline.analysis.label_prediction import require_table
from collapsium.pipeline.analysis.segments import (
    SegmentProportions,
    colours_of,
    compare_runs,
    largest,
    segment_proportions,
)
from collapsium.pipeline.analysis.topic_shares import SummarySource, topic_shares
from collapsium.pipeline.formatting import plain, shortened
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.topics import Topic, topics
from collapsium.pipeline.models.topics import topics as topics_of
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords
from collapsium.pipeline.outputs import overwrites
from collapsium.pipeline.reporting.charts import COUNTS, NUMBERS, Series, events_of, parameters_of, series_of, title_of
from collapsium.pipeline.reporting.embedding import circle_texts, map_names, relevant, topic_map
from collapsium.pipeline.reporting.label_map import LabelMap, label_map, shares_of_labels, unclear_labels
from collapsium.pipeline.reporting.options import (
    FoldingOptions,
    PlotOptions,
    SegmentPlotOptions,
    TimePlotOptions,
    TopicPlotOptions,
    nouns_of,
)
from collapsium.pipeline.reporting.plots.style import (
    ALIGNMENT,
    COLOURS,
    GRID,
    LATE,
    Drawing,
    Size,
    Style,
    integer_ticks,
    measured_width,
    new_figure,
    new_panels,
    picture_kind,
    thousands,
)
from collapsium.pipeline.reporting.plots.time import csv_of, draw_time
from collapsium.pipeline.reporting.plots.tree import tree_drawing
from collapsium.pipeline.reporting.trees import MAX_DRAWN, fold
from collapsium.storage.errors import AbsentError, OptionError, near
from collapsium.storage.io.file import File, require_free
from collapsium.storage.io.folder import Folder
from collapsium.workers.document_summaries import means_over_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Okabe and Ito's colours, and three of Tol's that differ from them; all other topics are grey.
AREAS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#332288", "#999933", "#882255"
)  # fmt: skip
GREY = "#CFCFCF"
OTHERS = "other topics"
# Words in a legend, and characters of each.
WORDS, LETTERS = 5, 18
# Size of a panel, width of a legend at its right, and height of a line of a legend below, in inches.
PANEL = (6.4, 3.9)
LEGEND, ROW = 3.6, 0.19
MAX_WIDE_OUTLINES = 60  # Segments up to which areas have broad outlines


def draw_segments(
    run: str | os.PathLike[str],
    style: Style,
    *,
    document: str | None = None,
    chosen: Sequence[int] | None = None,
    compared: str | os.PathLike[str] | None = None,
    corpus: str | os.PathLike[str] | None = None,
) -> tuple[Drawing, list[str]]:
    """Draw topic proportions along a document's segments.

    Returns picture: The figure; lines: A line for each panel, with the mean Hellinger distance between neighbouring
    segments
    """
    matches: dict[int, int] = {}
    if compared is None:
        panels = [segment_proportions(run, document=document, corpus=corpus)]
    else:
        first, second, matches = compare_runs(run, compared, document=document, corpus=corpus)
        panels = [first, second]
    known = [{topic.id: topic for topic in style.named(topics(run, WORDS))}]
    known += [] if compared is None else [{topic.id: topic for topic in topics(compared, WORDS)}]
    coloured = _coloured(chosen, known[0], panels, matches)
    colours = colours_of(coloured, list(known[0]), len(AREAS))
    palettes = [{topic: AREAS[colours[topic]] for topic in coloured}]
    back = {first_topic: second_topic for second_topic, first_topic in matches.items()}
    palettes += [{back[topic]: colour for topic, colour in palettes[0].items() if topic in back}] * (len(panels) - 1)
    lines = [f"{_title(panel)}: {panel.distance_text} (mean Hellinger distance)" for panel in panels]
    return Drawing(lambda: _segments_figure(panels, known, palettes, style)), lines


def _coloured(
    chosen: Sequence[int] | None,
    known: Mapping[int, Topic],
    panels: Sequence[SegmentProportions],
    matches: dict[int, int],
) -> list[int]:
    if chosen is None:
        return [topic for topic in largest(panels, matches, len(AREAS)) if topic in known]
    ids = list(dict.fromkeys(chosen))
    if not ids or len(ids) > len(AREAS):
        raise OptionError(f"expected 1 to {len(AREAS)} topics, found {len(ids)}", "topics")
    for topic in ids:
        if topic not in known:
            raise OptionError(f"`topics` {topic}: {panels[0].name} has no topic {topic} with tokens")
    return ids


def _title(panel: SegmentProportions) -> str:
    return plain(f"{panel.name}, {panel.family}" + ("" if panel.document is None else f": {panel.document}"))


def _segments_figure(
    panels: Sequence[SegmentProportions],
    known: Sequence[Mapping[int, Topic]],
    palettes: Sequence[Mapping[int, str]],
    style: Style,
) -> Figure:
    lines = max(len(palette) for palette in palettes) + 1
    alone = len(panels) == 1
    size = (PANEL[0] + LEGEND, PANEL[1]) if alone else (PANEL[0] * len(panels), PANEL[1] + ROW * lines)
    figure = new_figure(*(style.size or size), plain(style.title or ""))
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel, palette, topics_by_id in zip(row, panels, palettes, known, strict=True):
        shares, number = means_over_runs(panel.proportions), len(panel.proportions)
        edges = np.arange(len(shares) + 1) * number / len(shares) + 0.5
        base = np.zeros(len(shares))
        parts = [(shares[:, topic], colour, _named(topics_by_id[topic])) for topic, colour in palette.items()]
        rest = np.setdiff1d(np.arange(shares.shape[1]), list(palette))
        if shares[:, rest].sum() > 0.0:
            parts.append((shares[:, rest].sum(axis=1), GREY, OTHERS))
        outline = {"fill": True, "edgecolor": "white", "linewidth": 0.6 if number <= MAX_WIDE_OUTLINES else 0.2}
        for values, colour, name in parts:
            axes.stairs(base + values, edges, baseline=base, color=colour, label=name, **outline)
            base = base + values
        axes.set(xlim=(edges[0], edges[-1]), ylim=(0.0, 1.0))
        axes.set_xlabel(f"{panel.unit}{steps_note(number, len(shares))}")
        integer_ticks(axes.xaxis)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(f"{_title(panel)}\n{panel.distance_text}", loc="left", fontsize=10, parse_math=False)
        position: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.13)}
        if alone:
            position = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        # The legend has the order of the areas, the topmost first.
        axes.legend(**position, frameon=False, fontsize=9, reverse=True, handlelength=1.2, labelspacing=0.35)
        for text in axes.get_legend().get_texts():
            text.set_parse_math(False)
    row[0].set_ylabel("topic proportions")
    return figure


def steps_note(segments: int, steps: int) -> str:
    """Return a note about steps that are means of neighbouring segments; empty where each segment has a step."""
    low, high = segments // steps, -(-segments // steps)
    return "" if high == 1 else f" (a step is the mean of {low if low == high else f'{low} or {high}'})"


def _named(topic: Topic) -> str:
    """Return a topic's id with its title or first words."""
    words = [topic.title] if topic.title is not None else topic.names[:WORDS]
    return " ".join([f"{topic.id}:", *(shortened(word, LETTERS) for word in words)])


# Width of a map in a separate picture, its font size, and the font size of a map among other panels, in points.
WIDTH = 640.0
FONT, SMALL = 9.0, 7.0
NAME_CANDIDATES = 4  # Words for each lambda from which a topic's name is chosen


class MapPanel:
    """A topic map, which is drawn once the figure's layout has fixed its size."""

    def __init__(self, model: Model, topics: Sequence[Topic]) -> None:
        ids = np.array([topic.id for topic in topics], dtype=np.int64)
        share = np.array([topic.share for topic in topics])
        self.topics = topics
        self.map = topic_map(model, ids, share)
        self.names = map_names(model, topics, relevant(model, ids, share, NAME_CANDIDATES))
        self.alone = False

    def __call__(self, axes: Axes) -> None:
        """Clear axes for the map, and write the map's quality below."""
        axes.grid(visible=False)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        text = self.map.quality.describe("nodes" if self.topics[0].level is not None else "topics")
        axes.set_xlabel(textwrap.fill(text, 130 if self.alone else 62), fontsize=9 if self.alone else 7, loc="left")

    def finish(self, axes: Axes) -> None:
        """Draw circles, ids and names to fill the axes, one unit of which is then a point."""
        from matplotlib.patches import Circle

        box = axes.get_window_extent()
        wide, tall = (72.0 * pixels / axes.figure.dpi for pixels in (box.width, box.height))
        width = min(wide, tall / self.map.height)
        left, top = (width - wide) / 2, (width * self.map.height - tall) / 2
        axes.set(xlim=(left, left + wide), ylim=(top + tall, top))
        size = FONT if self.alone else SMALL
        x, y, radius = ((width * values).tolist() for values in (self.map.x, self.map.y, self.map.radius))
        for number in np.argsort(-self.map.radius, kind="stable").tolist():
            circle = Circle((x[number], y[number]), radius[number], facecolor=f"{COLOURS[0]}66")
            circle.set(edgecolor=COLOURS[0], linewidth=0.8)
            axes.add_patch(circle)
        style = {"fontsize": size, "va": "center", "parse_math": False}
        for number, text in enumerate(circle_texts(self.map, self.topics, self.names, width, size, measured_width)):
            if text.inside:
                axes.text(x[number], y[number], str(self.topics[number].id), ha="center", **style)
            if text.outside is not None:
                alignment = ALIGNMENT[text.outside.anchor]
                axes.text(text.outside.anchor_x, text.outside.middle, text.text, ha=alignment, **style)


# Height of the title above the map, and minimum width of the picture, in points.
HEAD, MIN_WIDTH = 44.0, 360.0


def _labels_figure(label_map: LabelMap, title: str) -> Figure:
    """Draw a map of labels and topics."""
    # A unit of the map is a point, so that texts have the sizes for which they were placed.
    width = max(label_map.width, MIN_WIDTH)
    figure = new_figure(width / 72, (label_map.height + HEAD) / 72, layout=None)
    axes = figure.add_axes((0.0, 0.0, 1.0, label_map.height / (label_map.height + HEAD)))
    axes.set(xlim=((label_map.width - width) / 2, (label_map.width + width) / 2), ylim=(label_map.height, 0))
    axes.set_axis_off()
    for mark in label_map.marks:
        colour, alpha, shape = (COLOURS[1], 0.9, "s") if mark.topic is None else (COLOURS[0], 0.35, "o")
        if mark.text is not None and mark.text.has_leader:
            middle = min(max(mark.x, mark.text.left), mark.text.left + mark.text.width)
            axes.plot([mark.x, middle], [mark.y, mark.text.middle], color=colour, linewidth=0.5, alpha=0.5)
        axes.scatter([mark.x], [mark.y], (2 * mark.radius) ** 2, color=colour, alpha=alpha, marker=shape)
    for mark in label_map.marks:
        if mark.text is None:
            continue
        weight, ink = ("bold", "#7a3500") if mark.topic is None else ("normal", "#16384f")
        style = {"fontsize": mark.text.size, "fontweight": weight, "color": ink, "parse_math": False}
        axes.text(mark.text.anchor_x, mark.text.middle, mark.name, ha=ALIGNMENT[mark.text.anchor], va="center", **style)
    top = label_map.height + HEAD
    figure.text(8 / width, 1 - 6 / top, plain(title), va="top", fontsize=13, parse_math=False)
    legend = "squares: labels; circles: topics, sized by share"
    figure.text(8 / width, 1 - 26 / top, legend, va="top", fontsize=10)
    return figure


PANELS = ("score", "change", "objective", "topics", "parameters", "sizes", "map")
LABELS, SEGMENTS, TIME, TREE = "labels", "segments", "time", "tree"
# Pictures that cannot be panels among others.
ALONE = (LABELS, SEGMENTS, TIME, TREE)
# The pictures that each option applies to.
PICTURES_OF_OPTION = {
    "document": (SEGMENTS,),
    "compare_with": (SEGMENTS,),
    "topics": (SEGMENTS, TIME),
    "corpus": (SEGMENTS, TIME),
    "period": (TIME,),
    "cluster": (TIME,),
    "same_scale": (TIME,),
    "csv": (TIME,),
    "min_share": (TREE,),
    "levels": (TREE,),
}
MAP_WORDS, TREE_WORDS = 8, 5


@shows("drawing")
@overwrites("out", "csv", files=True)
@keywords(
    options=PlotOptions,
    segments=SegmentPlotOptions,
    periods=TimePlotOptions,
    chosen=TopicPlotOptions,
    folding=FoldingOptions,
)
def plot(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    options: PlotOptions,
    segments: SegmentPlotOptions,
    periods: TimePlotOptions,
    chosen: TopicPlotOptions,
    folding: FoldingOptions,
    ax: Axes | None = None,
) -> list[str] | Figure:
    """Draw a run.

    Parameters
    ----------
    run : str or path-like
        Folder of a run, finished or not, or of a model.
    out : str or path-like, optional
        By default the figure is returned; else the PNG, SVG or PDF file to write, by its ending.
    options : PlotOptions
        Panels to draw.
    segments : SegmentPlotOptions
        Document whose segments are drawn, and a second run to compare with.
    periods : TimePlotOptions
        Period of the topic shares over time.
    chosen : TopicPlotOptions
        Topics to draw along segments or over time.
    folding : FoldingOptions
        Branches of a tree that are folded into a single entry.
    ax : matplotlib.axes.Axes, optional
        Axes to draw in, for a single panel such as ``map``, or for one topic over time. Their figure is returned.

    Returns
    -------
    list of str or matplotlib.figure.Figure
        Without `out` the figure, which the caller may change. Else names of the panels; for ``segments`` a line for
        each run with the mean Hellinger distance between neighbouring segments; for ``time`` the period and notes on
        documents that are left out.

    Raises
    ------
    OptionError
        The file is no .png, .svg or .pdf; the run has no data for a panel; a picture of its own is combined with
        others; or a document or topic does not exist.
    MismatchError
        The two runs have different vocabularies, or different numbers of segments.
    MissingError
        matplotlib is not installed.
    OccupiedError
        The file exists.
    AbsentError
        The run has nothing to draw.
    """
    kind = "" if out is None else picture_kind(out)
    pictures = tuple(dict.fromkeys(options.what or PANELS))
    _check(
        pictures,
        {
            "document": segments.document,
            "topics": chosen.topics,
            "compare_with": segments.compare_with,
            "corpus": chosen.corpus,
            "period": periods.period,
            "cluster": periods.cluster,
            "same_scale": periods.same_scale or None,
            "csv": periods.csv,
            "min_share": folding.min_share,
            "levels": folding.levels,
        },
    )
    require_free(out, periods.csv)
    if ax is not None:
        _check_axes(out, pictures, options)
    style, shares = Style(options.title, options.size, options.names or {}, nouns_of(options.noun)), None
    if options.size is not None and pictures in ((LABELS,), (TREE,)):
        raise OptionError(f"does not apply to `what` {pictures[0]}, whose size follows from its texts", "size")
    if pictures == (LABELS,):
        drawing, lines = _labels(run, style), [LABELS]
    elif pictures == (SEGMENTS,):
        compared = segments.compare_with
        drawing, lines = draw_segments(
            run, style, document=segments.document, chosen=chosen.topics, compared=compared, corpus=chosen.corpus
        )
    elif pictures == (TREE,):
        drawing, lines = _tree(run, style, folding.min_share, folding.levels), [TREE]
    elif pictures == (TIME,):
        shares = topic_shares(run, period=periods.period, cluster=periods.cluster, corpus=chosen.corpus)
        drawing = draw_time(run, shares, style, chosen.topics, same_scale=periods.same_scale, ax=ax)
        lines = [f"topic shares in {shares.counted}", *shares.notes]
    else:
        drawing, lines = _drawn_panels(run, pictures, options.what or (), style, ax)
    data = drawing.figure() if out is None else drawing.file(kind)
    if shares is not None and periods.csv is not None:
        File(periods.csv).write(csv_of(shares))
    if out is None or not isinstance(data, bytes):
        return data
    File(out).write(data)
    return lines


def _drawn_panels(
    run: str | os.PathLike[str], names: tuple[str, ...], required: Sequence[str], style: Style, ax: Axes | None
) -> tuple[Drawing, list[str]]:
    """Return the figure of the panels that the run has data for, and their names."""
    members, model = events_of(run), Model(run)
    values = model.metrics()
    figures = {
        "score": ["score"],
        "change": ["change"],
        "objective": ["objective"],
        "topics": list(NUMBERS),
        "parameters": parameters_of(values),
    }
    panels: list[Panel] = []
    for name in names:
        for figure in figures.get(name, []):
            series = series_of(members, figure)
            if len({value for _, points in series for _, value in points}) > 1:
                panel_title, unit = map(style.text, title_of(figure))
                panels.append((name, panel_title, _curve(series, unit, counted=figure in COUNTS)))
    run_topics = style.named(topics_of(run, 1)) if {"sizes", "map"} & set(names) else []
    nodes = any(topic.level is not None for topic in run_topics)
    if "sizes" in names and run_topics:
        panel_title = style.text(f"Share of the tokens of each {'node' if nodes else 'topic'}")
        panels.append(("sizes", panel_title, lambda axes: _sizes(axes, run_topics)))
    if "map" in names and run_topics and not any(topic.signed for topic in run_topics):
        panels.append(("map", f"Map of the {'nodes' if nodes else 'topics'}", MapPanel(model, run_topics)))
    shown = list(dict.fromkeys(name for name, _, _ in panels))
    missing = [name for name in required if name not in shown]
    if missing:
        raise OptionError(f"`what` {missing[0]}: {os.fspath(run)} has no data for this panel")
    if not panels:
        raise AbsentError(f"{os.fspath(run)}: it has nothing to draw")
    title = style.title or Folder(run).address.rpartition("/")[2]
    return Drawing(lambda: _panels_figure(panels, title, style.size, ax), GRID), shown


def _check_axes(out: object, pictures: Sequence[str], options: PlotOptions) -> None:
    """Refuse options that cannot be combined with axes of the caller's figure."""
    if out is not None:
        raise OptionError("draws into your figure, which is not written; omit `out` and save the figure", "ax")
    if options.size is not None:
        raise OptionError("cannot be combined with `ax`, whose figure has a size", "size")
    separate = next((picture for picture in pictures if picture in ALONE and picture != TIME), None)
    if separate is not None:
        raise OptionError(f"does not go with `what` {separate}, which needs a separate figure", "ax")


def _check(names: Sequence[str], options: Mapping[str, object]) -> None:
    """Refuse unknown panels, pictures of their own among panels, and options that apply to none of them."""
    for name in names:
        if name not in (*PANELS, *ALONE):
            known = (*PANELS, *ALONE)
            raise OptionError(f"expected {', '.join(known)}, found {name!r}{near(name, known)}", "what")
        if name in ALONE and len(names) > 1:
            raise OptionError(f"`what` {name}: it is a separate picture; draw the other panels to another file")
    for option, value in options.items():
        pictures = PICTURES_OF_OPTION[option]
        if value is not None and not set(pictures) & set(names):
            raise OptionError(f"applies only to `what` {' or '.join(pictures)}", option)


def _labels(run: str | os.PathLike[str], style: Style) -> Drawing:
    """Draw the map of labels and topics."""
    table, model = label_topics(run, MAP_WORDS), Model(run)
    table = replace(table, topics=style.named(table.topics))
    ids, share = np.array([topic.id for topic in table.topics]), np.array([topic.share for topic in table.topics])
    known = require_table(model)
    fields = [field for field in known.fields if sum(name == field for name, _ in known.names) <= MAX_GROUPS]
    unclear = unclear_labels(known, shares_of_labels(run, fields, SummarySource()), table.topics)
    names = map_names(model, table.topics, relevant(model, ids, share, NAME_CANDIDATES))
    labels = label_map(table, names, measured_width, unclear)
    title = style.title or f"{Folder(run).address.rpartition('/')[2]}: {style.text('labels and topics')}"
    return Drawing(lambda: _labels_figure(labels, title))


def _tree(run: str | os.PathLike[str], style: Style, min_share: float | None, levels: int | None) -> Drawing:
    """Draw the tree of topics, with its small or deep branches folded."""
    tree = style.named(topics_of(run, TREE_WORDS))
    if any(node.level is None for node in tree):
        raise OptionError(f"`what` {TREE}: the topics of {os.fspath(run)} are not a tree")
    title = style.title or f"{Folder(run).address.rpartition('/')[2]}: {len(tree):,} nodes"
    return tree_drawing(fold(tree, min_share=min_share, levels=levels, max_entries=MAX_DRAWN), title, style)


Panel = tuple[str, str, "Callable[[Axes], None]"]  # Name, title and drawing function of a panel


def _panels_figure(panels: Sequence[Panel], title: str, size: Size | None, ax: Axes | None) -> Figure:
    """Draw panels; a map is drawn last, when the layout has fixed its size."""
    figure, all_axes = new_panels(len(panels), "", legend=False, size=size, ax=ax)
    if ax is None:
        figure.suptitle(plain(title), x=0.01, ha="left", parse_math=False)
    maps = [(draw, axes) for axes, (_, _, draw) in zip(all_axes, panels, strict=True) if isinstance(draw, MapPanel)]
    if len(panels) == len(maps):
        maps[0][0].alone = True
        if ax is None:
            # Width and height of a figure that shows only the map
            figure.set_size_inches(size or (WIDTH / 72 + 0.3, WIDTH * maps[0][0].map.height / 72 + 1.2))
    for axes, (_, name, draw) in zip(all_axes, panels, strict=True):
        axes.set_title(plain(name), parse_math=False)
        draw(axes)
    for topics_map, axes in maps:
        # Texts of a map have fixed sizes, so the map's size must be known before they are placed.
        figure.draw_without_rendering()
        if ax is None:
            figure.set_layout_engine("none")
        topics_map.finish(axes)
    return figure


def _curve(series: Series, unit: str, *, counted: bool) -> Callable[[Axes], None]:
    """Return a function that draws a figure over the iterations, one line for each member."""

    def draw(axes: Axes) -> None:
        late: list[float] = []
        for number, (name, points) in enumerate(series):
            x, y = zip(*points, strict=True)
            axes.plot(x, y, color=COLOURS[number % len(COLOURS)], linewidth=1.6, label=f"member {name}")
            late += y[int(len(y) * LATE) :]
        low, high = min(late), max(late)
        room = 0.05 * (high - low) or 0.01
        axes.set_ylim(low - room, high + room)
        integer_ticks(axes.xaxis)
        axes.set_xlabel("iteration")
        axes.set_ylabel(unit)
        if counted:
            integer_ticks(axes.yaxis)
        elif max(abs(low), abs(high)) >= 10_000:
            thousands(axes.yaxis)
        else:
            axes.ticklabel_format(axis="y", useOffset=False, style="plain")
        if 1 < len(series) <= len(COLOURS):
            axes.legend(frameon=False, fontsize=8)

    return draw


def _sizes(axes: Axes, topics: Sequence[Topic]) -> None:
    shares = sorted((100 * topic.share for topic in topics), reverse=True)
    axes.bar(range(1, len(shares) + 1), shares, width=1.0 if len(shares) > 40 else 0.8, color=COLOURS[0])
    axes.set_xlabel("rank by size")
    axes.set_ylabel("share of the tokens (%)")
    integer_ticks(axes.xaxis)
