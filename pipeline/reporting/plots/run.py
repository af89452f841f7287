"""Draw a run with matplotlib: its convergence, the sizes of its topics, their map, and pictures of their own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from collapsium.pipeline.analysis.labels.expected_topics import label_topics
from collapsium.pipeline.analysis.topic_shares import topic_shares
from collapsium.pipeline.analysis.topics import Topic
from collapsium.pipeline.analysis.topics import topics as topics_of
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.options import keywords
from collapsium.pipeline.reporting.curves import COUNTS, NUMBERS, Series, events_of, parameters_of, series_of, title_of
from collapsium.pipeline.reporting.label_map import label_map
from collapsium.pipeline.reporting.options import (
    FoldingOptions,
    PlotOptions,
    SegmentPlotOptions,
    TimePlotOptions,
    TopicPlotOptions,
)
from collapsium.pipeline.reporting.plots.labels import draw as draw_labels
from collapsium.pipeline.reporting.plots.segments import draw_segments
from collapsium.pipeline.reporting.plots.style import (
    COLOURS,
    LATE,
    SALT,
    integer_ticks,
    new_panels,
    picture_kind,
    saved,
    thousands,
)
from collapsium.pipeline.reporting.plots.time import csv_of, draw_time
from collapsium.pipeline.reporting.plots.topic_map import NAME_CANDIDATES, MapPanel
from collapsium.pipeline.reporting.plots.tree import draw as draw_tree
from collapsium.pipeline.reporting.topic_map import map_names, relevant
from collapsium.pipeline.reporting.tree_folding import MAX_DRAWN, fold
from collapsium.storage.errors import AbsentError, OccupiedError, OptionError, near
from collapsium.storage.io.file import File
from collapsium.storage.io.folder import Folder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    "csv": (TIME,),
    "min_share": (TREE,),
    "levels": (TREE,),
}
MAP_WORDS, TREE_WORDS = 8, 5


@keywords(
    options=PlotOptions,
    segments=SegmentPlotOptions,
    periods=TimePlotOptions,
    chosen=TopicPlotOptions,
    folding=FoldingOptions,
)
def plot(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    options: PlotOptions,
    segments: SegmentPlotOptions,
    periods: TimePlotOptions,
    chosen: TopicPlotOptions,
    folding: FoldingOptions,
) -> list[str]:
    """Draw a run.

    Parameters
    ----------
    run : str or path-like
        Folder of a run, finished or not, or of a model.
    out : str or path-like
        PNG or SVG file to write, by its ending.
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

    Returns
    -------
    list of str
        Names of the panels; for ``segments`` a line for each run with the mean Hellinger distance between neighbouring
        segments; for ``time`` the period and notes on documents that are left out.

    Raises
    ------
    OptionError
        The file is neither .png nor .svg; the run has no data for a panel; a picture of its own is combined with
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
    kind = picture_kind(out)
    names = tuple(dict.fromkeys(options.what or PANELS))
    _check(
        names,
        {
            "document": segments.document,
            "topics": chosen.topics,
            "compare_with": segments.compare_with,
            "corpus": chosen.corpus,
            "period": periods.period,
            "csv": periods.csv,
            "min_share": folding.min_share,
            "levels": folding.levels,
        },
    )
    target = File(out)
    for path in (out, *([] if periods.csv is None else [periods.csv])):
        if File(path).exists():
            raise OccupiedError(f"{os.fspath(path)}: exists already; name a new file or remove this one")
    if names == (LABELS,):
        _put(target, _labels(run, kind))
        return [LABELS]
    if names == (SEGMENTS,):
        other = segments.compare_with
        data, lines = draw_segments(
            run, kind, document=segments.document, chosen=chosen.topics, other=other, corpus=chosen.corpus
        )
        _put(target, data)
        return lines
    if names == (TREE,):
        _put(target, _tree(run, kind, folding.min_share, folding.levels))
        return [TREE]
    if names == (TIME,):
        shares = topic_shares(run, period=periods.period, corpus=chosen.corpus)
        data = draw_time(run, shares, kind, options.title, chosen.topics)
        if periods.csv is not None:
            _put(File(periods.csv), csv_of(shares))
        _put(target, data)
        return [f"topic shares in {len(shares.names):,} {shares.period}s", *shares.notes]
    panels = _panels(run, names)
    drawn = list(dict.fromkeys(name for name, _, _ in panels))
    missing = [name for name in options.what or () if name not in drawn]
    if missing:
        raise OptionError(f"`what` {missing[0]}: {os.fspath(run)} has no data for this panel")
    if not panels:
        raise AbsentError(f"{os.fspath(run)}: it has nothing to draw")
    _put(target, _drawn(panels, options.title or Folder(run).address.rpartition("/")[2], kind))
    return drawn


def _check(names: Sequence[str], options: Mapping[str, object]) -> None:
    """Refuse unknown panels, pictures of their own among panels, and options that apply to none of them."""
    for name in names:
        if name not in (*PANELS, *ALONE):
            known = (*PANELS, *ALONE)
            raise OptionError(f"expected {', '.join(known)}, found {name!r}{near(name, known)}", "what")
        if name in ALONE and len(names) > 1:
            raise OptionError(f"`what` {name}: it is a picture of its own; draw the other panels to another file")
    for option, value in options.items():
        pictures = PICTURES_OF_OPTION[option]
        if value is not None and not set(pictures) & set(names):
            raise OptionError(f"applies only to `what` {' or '.join(pictures)}", option)


def _put(target: File, data: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="collapsium-") as place:
        part = Path(place) / "plot"
        part.write_bytes(data)
        target.put(part)


def _labels(run: str | os.PathLike[str], kind: str) -> bytes:
    """Draw the map of labels and topics."""
    table, model = label_topics(run, MAP_WORDS), Model(run)
    ids, share = np.array([one.id for one in table.topics]), np.array([one.share for one in table.topics])
    labels = label_map(table, map_names(model, table.topics, relevant(model, ids, share, NAME_CANDIDATES)))
    return draw_labels(labels, f"{Folder(run).address.rpartition('/')[2]}: labels and topics", kind)


def _tree(run: str | os.PathLike[str], kind: str, min_share: float | None, levels: int | None) -> bytes:
    """Draw the tree of topics, with its small or deep branches folded."""
    tree = topics_of(run, TREE_WORDS)
    if any(node.level is None for node in tree):
        raise OptionError(f"`what` {TREE}: the topics of {os.fspath(run)} are not a tree")
    title = f"{Folder(run).address.rpartition('/')[2]}: {len(tree):,} nodes"
    return draw_tree(fold(tree, min_share=min_share, levels=levels, max_entries=MAX_DRAWN), kind, title)


Panel = tuple[str, str, "Callable[[Axes], None]"]  # Name, title and drawing function of a panel


def _panels(run: str | os.PathLike[str], names: Sequence[str]) -> list[Panel]:
    """Return those of the named panels that the run has data for."""
    members, model = events_of(run), Model(run)
    values = model.figures()
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
                title, unit = title_of(figure)
                panels.append((name, title, _curve(series, unit, counted=figure in COUNTS)))
    if not {"sizes", "map"} & set(names):
        return panels
    topics = topics_of(run, 1)
    nodes = any(topic.level is not None for topic in topics)
    if "sizes" in names and topics:
        title = f"Share of the tokens of each {'node' if nodes else 'topic'}"
        panels.append(("sizes", title, lambda axes: _sizes(axes, topics)))
    if "map" in names and topics and not any(topic.signed for topic in topics):
        panels.append(("map", f"Map of the {'nodes' if nodes else 'topics'}", MapPanel(model, topics)))
    return panels


def _drawn(panels: Sequence[Panel], title: str, kind: str) -> bytes:
    from matplotlib import rc_context

    style = {"font.size": 10, "axes.grid": True, "grid.alpha": 0.3, "svg.fonttype": "none"}
    with rc_context({**SALT, **style}):
        figure, all_axes = new_panels(len(panels), "", legend=False)
        figure.suptitle(plain(title), x=0.01, ha="left", parse_math=False)
        maps = [(draw, axes) for axes, (_, _, draw) in zip(all_axes, panels, strict=True) if isinstance(draw, MapPanel)]
        if len(panels) == len(maps):
            maps[0][0].alone = True
            figure.set_size_inches(maps[0][0].size())
        for axes, (_, name, draw) in zip(all_axes, panels, strict=True):
            axes.set_title(plain(name), parse_math=False)
            draw(axes)
        for topics_map, axes in maps:
            # Texts of a map have sizes of their own, so the map's size must be known before they are placed.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
            topics_map.finish(axes)
        return saved(figure, kind)


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
