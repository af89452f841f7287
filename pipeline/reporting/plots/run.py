"""Plots of a run, where matplotlib is installed: the course of its fit, its topics' sizes and their map."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collapsium.pipeline.analysis.labels.expected_topics import label_topics
from collapsium.pipeline.analysis.topic_shares import topic_shares
from collapsium.pipeline.analysis.topics import Topic
from collapsium.pipeline.analysis.topics import topics as topics_of
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.registry import load_family
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.options import keywords
from collapsium.pipeline.reporting.curves import COUNTS, NUMBERS, Series, events_of, series_of, title_of
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
    new_panels,
    picture_kind,
    saved,
    thousands,
    whole_numbers,
)
from collapsium.pipeline.reporting.plots.time import csv_of, draw_time
from collapsium.pipeline.reporting.plots.topic_map import POOL, MapPanel
from collapsium.pipeline.reporting.plots.tree import draw as draw_tree
from collapsium.pipeline.reporting.topic_map import map_names, relevant
from collapsium.pipeline.reporting.tree_folding import DRAWN, fold
from collapsium.storage.errors import AbsentError, OccupiedError, OptionError
from collapsium.storage.io.file import File
from collapsium.storage.io.folder import Folder

WHAT = ("score", "objective", "topics", "parameters", "sizes", "map")
LABELS, SEGMENTS, TIME, TREE = "labels", "segments", "time", "tree"
ALONE = (LABELS, SEGMENTS, TIME, TREE)  # pictures by themselves
OF = {  # options of pictures
    "document": (SEGMENTS,),
    "beside": (SEGMENTS,),
    "topics": (SEGMENTS, TIME),
    "corpus": (SEGMENTS, TIME),
    "period": (TIME,),
    "csv": (TIME,),
    "min_share": (TREE,),
    "levels": (TREE,),
}
MAP_WORDS, TREE_WORDS = 8, 5  # of a topic


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
        What is drawn.
    segments : SegmentPlotOptions
        Whose segments are drawn.
    periods : TimePlotOptions
        Which shares by period are drawn.
    chosen : TopicPlotOptions
        Whose course is drawn.
    folding : FoldingOptions
        Which branches of a tree are folded.

    Returns
    -------
    list of str
        What was drawn; of ``segments`` a line a run, with the mean Hellinger distance between neighbours; of ``time``
        the period, and what was left out.

    Raises
    ------
    OptionError
        The file's ending is neither, or there is nothing to draw of that kind; or a picture is not alone; or there is
        no such document or topic.
    MismatchError
        The runs have other vocabularies, or another number of segments.
    MissingError
        matplotlib is not installed.
    OccupiedError
        The file exists.
    AbsentError
        The run has nothing to draw.
    """
    kind = picture_kind(out)
    wanted = tuple(dict.fromkeys(options.what or WHAT))
    besides: dict[str, Any] = {
        "document": segments.document,
        "topics": chosen.topics,
        "beside": segments.beside,
        "corpus": chosen.corpus,
        "period": periods.period,
        "csv": periods.csv,
        "min_share": folding.min_share,
        "levels": folding.levels,
    }
    _check(wanted, besides)
    target = File(out)
    for path in (out, *([] if periods.csv is None else [periods.csv])):
        if File(path).exists():
            raise OccupiedError(f"{os.fspath(path)}: exists already; name a new file or remove this one")
    if wanted == (LABELS,):
        _put(target, _labels(run, kind))
        return [LABELS]
    if wanted == (SEGMENTS,):
        data, said = draw_segments(
            run, kind, document=segments.document, chosen=chosen.topics, other=segments.beside, corpus=chosen.corpus
        )
        _put(target, data)
        return said
    if wanted == (TREE,):
        _put(target, _tree(run, kind, folding.min_share, folding.levels))
        return [TREE]
    if wanted == (TIME,):
        found = topic_shares(run, period=periods.period, corpus=chosen.corpus)
        data = draw_time(run, found, kind, Folder(run).address.rpartition("/")[2], chosen.topics)
        if periods.csv is not None:
            _put(File(periods.csv), csv_of(found))
        _put(target, data)
        return [f"shares of topics in {len(found.names):,} {found.period}s", *found.notes]
    drawing = _panels(run, wanted)
    missing = [name for name in options.what or () if name not in {one for one, _, _ in drawing}]
    if missing:
        raise OptionError(f"`what` {missing[0]}: there is none to draw of {os.fspath(run)}")
    if not drawing:
        raise AbsentError(f"{os.fspath(run)}: it has nothing to draw")
    data = _drawn(drawing, Folder(run).address.rpartition("/")[2], kind)
    _put(target, data)
    return list(dict.fromkeys(name for name, _, _ in drawing))


def _check(wanted: Sequence[str], besides: Mapping[str, Any]) -> None:
    """Refuse what cannot be drawn together, and options of another picture."""
    for name in wanted:
        if name not in (*WHAT, *ALONE):
            raise OptionError(f"expected {', '.join((*WHAT, *ALONE))}, found {name!r}", "what")
        if name in ALONE and len(wanted) > 1:
            raise OptionError(f"`what` {name}: it is a picture by itself; draw the others into another file")
    for name, value in besides.items():
        if value is not None and not set(OF[name]) & set(wanted):
            raise OptionError(f"expected with `what` {' or '.join(OF[name])}", name)


def _put(target: File, data: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="collapsium-") as place:
        part = Path(place) / "plot"
        part.write_bytes(data)
        target.put(part)


def _labels(run: str | os.PathLike[str], kind: str) -> bytes:
    """Draw the map of labels and topics."""
    table, model = label_topics(run, MAP_WORDS), Model(run)
    ids, share = np.array([one.id for one in table.topics]), np.array([one.share for one in table.topics])
    found = label_map(table, map_names(model, table.topics, relevant(model, ids, share, POOL)))
    return draw_labels(found, f"{Folder(run).address.rpartition('/')[2]}: labels and topics", kind)


def _tree(run: str | os.PathLike[str], kind: str, min_share: float | None, levels: int | None) -> bytes:
    """Draw the tree of topics, with its small or deep branches folded."""
    tree = topics_of(run, TREE_WORDS)
    if any(node.level is None for node in tree):
        raise OptionError(f"`what` {TREE}: there is none to draw of {os.fspath(run)}")
    title = f"{Folder(run).address.rpartition('/')[2]}: {len(tree):,} nodes"
    return draw_tree(fold(tree, min_share=min_share, levels=levels, most=DRAWN), kind, title)


Panel = tuple[str, str, Callable[[Any], None]]


def _panels(run: str | os.PathLike[str], what: Sequence[str]) -> list[Panel]:
    """Return what there is to draw: its kind, its title, and what draws it."""
    members, model = events_of(run), Model(run)
    figures = load_family(model.record.family).figures(model.global_state)
    parameters = [name for name in figures if name not in NUMBERS]
    named = {"score": ["score"], "objective": ["objective"], "topics": list(NUMBERS), "parameters": parameters}
    found: list[Panel] = []
    for kind in what:
        for name in named.get(kind, []):
            series = series_of(members, name)
            if len({value for _, points in series for _, value in points}) > 1:
                found.append((kind, title_of(name)[0], _course(series, title_of(name)[1], counted=name in COUNTS)))
    if not {"sizes", "map"} & set(what):
        return found
    shown = topics_of(run, 1)
    if "sizes" in what and shown:
        found.append(("sizes", "Sizes", lambda axes: _sizes(axes, shown)))
    if "map" in what and shown and not any(topic.signed for topic in shown):
        found.append(("map", "Map", MapPanel(model, shown)))
    return found


def _drawn(drawing: Sequence[Panel], title: str, kind: str) -> bytes:
    from matplotlib import rc_context

    style = {"font.size": 10, "axes.grid": True, "grid.alpha": 0.3, "svg.fonttype": "none"}
    with rc_context({**SALT, **style}):
        figure, axes = new_panels(len(drawing), "", legend=False)
        figure.suptitle(plain(title), x=0.01, ha="left", parse_math=False)
        maps = [draw for _, _, draw in drawing if isinstance(draw, MapPanel)]
        if len(drawing) == len(maps):
            maps[0].alone = True
            figure.set_size_inches(maps[0].size())
        for one, (_, name, draw) in zip(axes, drawing, strict=True):
            one.set_title(plain(name), parse_math=False)
            draw(one)
        if maps:
            # A map's letters have sizes of their own, so that its room must be known before they are placed.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
            maps[0].finish()
        return saved(figure, kind)


def _course(series: Series, unit: str, *, counted: bool) -> Callable[[Any], None]:
    def draw(axes: Any) -> None:
        late: list[float] = []
        for number, (name, points) in enumerate(series):
            x, y = zip(*points, strict=True)
            axes.plot(x, y, color=COLOURS[number % len(COLOURS)], linewidth=1.6, label=f"member {name}")
            late += y[int(len(y) * LATE) :]
        low, high = min(late), max(late)
        room = 0.05 * (high - low) or 0.01
        axes.set_ylim(low - room, high + room)
        whole_numbers(axes.xaxis)
        axes.set_xlabel("iteration")
        axes.set_ylabel(unit)
        if counted:
            whole_numbers(axes.yaxis)
        elif max(abs(low), abs(high)) >= 10_000:
            thousands(axes.yaxis)
        else:
            axes.ticklabel_format(axis="y", useOffset=False, style="plain")
        if 1 < len(series) <= len(COLOURS):
            axes.legend(frameon=False, fontsize=8)

    return draw


def _sizes(axes: Any, shown: Sequence[Topic]) -> None:
    shares = sorted((100 * topic.share for topic in shown), reverse=True)
    axes.bar(range(1, len(shares) + 1), shares, width=1.0 if len(shares) > 40 else 0.8, color=COLOURS[0])
    axes.set_xlabel(f"{'nodes' if shown[0].level is not None else 'topics'}, the largest first")
    axes.set_ylabel("share (%)")
    whole_numbers(axes.xaxis)
