"""Draw topic proportions along the segments of a document, for one run or for two next to each other."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from collapsium.pipeline.analysis.segments import (
    SegmentProportions,
    colours_of,
    compare_runs,
    largest,
    segment_proportions,
)
from collapsium.pipeline.analysis.topics import Topic, topics
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.plots.style import SALT, integer_ticks, saved
from collapsium.pipeline.reporting.text_layout import shortened
from collapsium.storage.errors import OptionError
from collapsium.workers.document_summaries import means_over_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, and three of Tol's that differ from them; all other topics are grey.
AREAS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#332288", "#999933", "#882255"
)  # fmt: skip
GREY = "#CFCFCF"
OTHERS = "other topics"
# Words in a legend, and letters of each.
WORDS, LETTERS = 5, 18
# Size of a panel, width of a legend at its right, and height of a line of a legend below, in inches.
PANEL = (6.4, 3.9)
LEGEND, ROW = 3.6, 0.19
MAX_WIDE_OUTLINES = 60  # Segments up to which areas have broad outlines


def draw_segments(
    run: str | os.PathLike[str],
    kind: str,
    *,
    document: str | None = None,
    chosen: Sequence[int] | None = None,
    other: str | os.PathLike[str] | None = None,
    corpus: str | os.PathLike[str] | None = None,
) -> tuple[bytes, list[str]]:
    """Draw topic proportions along a document's segments.

    Returns picture: The file; lines: A line for each panel, with the mean Hellinger distance between neighbouring
    segments
    """
    matches: dict[int, int] = {}
    if other is None:
        panels = [segment_proportions(run, document=document, corpus=corpus)]
    else:
        first, second, matches = compare_runs(run, other, document=document, corpus=corpus)
        panels = [first, second]
    known = [{topic.id: topic for topic in topics(place, WORDS)} for place in (run, other) if place is not None]
    coloured = _coloured(chosen, known[0], panels, matches)
    colours = colours_of(coloured, list(known[0]), len(AREAS))
    palettes = [{topic: AREAS[colours[topic]] for topic in coloured}]
    back = {ours: theirs for theirs, ours in matches.items()}
    palettes += [{back[topic]: colour for topic, colour in palettes[0].items() if topic in back}] * (len(panels) - 1)
    lines = [f"{_title(panel)}: {panel.distance_text} (mean Hellinger distance)" for panel in panels]
    return _drawn(panels, known, palettes, kind), lines


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


def _drawn(
    panels: Sequence[SegmentProportions],
    known: Sequence[Mapping[int, Topic]],
    palettes: Sequence[Mapping[int, str]],
    kind: str,
) -> bytes:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    lines = max(len(palette) for palette in palettes) + 1
    alone = len(panels) == 1
    size = (PANEL[0] + LEGEND, PANEL[1]) if alone else (PANEL[0] * len(panels), PANEL[1] + ROW * lines)
    style = {"font.size": 10, "svg.fonttype": "none"}
    with warnings.catch_warnings(), rc_context({**SALT, **style}):
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure = Figure(figsize=size, layout="constrained")
        row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, panel, palette, topics_of in zip(row, panels, palettes, known, strict=True):
            _areas(axes, panel, palette, topics_of)
            position: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.13)}
            if alone:
                position = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
            # The legend has the order of the areas, the topmost first.
            axes.legend(**position, frameon=False, fontsize=9, reverse=True, handlelength=1.2, labelspacing=0.35)
            for text in axes.get_legend().get_texts():
                text.set_parse_math(False)
        row[0].set_ylabel("topic proportions")
        return saved(figure, kind)


def _areas(axes: Axes, panel: SegmentProportions, palette: Mapping[int, str], known: Mapping[int, Topic]) -> None:
    """Draw stacked areas with a step for each segment."""
    shares, number = means_over_runs(panel.proportions), len(panel.proportions)
    edges = np.arange(len(shares) + 1) * number / len(shares) + 0.5
    base = np.zeros(len(shares))
    parts = [(shares[:, topic], colour, _named(known[topic])) for topic, colour in palette.items()]
    rest = np.setdiff1d(np.arange(shares.shape[1]), list(palette))
    if shares[:, rest].sum() > 0.0:
        parts.append((shares[:, rest].sum(axis=1), GREY, OTHERS))
    style = {"fill": True, "edgecolor": "white", "linewidth": 0.6 if number <= MAX_WIDE_OUTLINES else 0.2}
    for values, colour, name in parts:
        axes.stairs(base + values, edges, baseline=base, color=colour, label=name, **style)
        base = base + values
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0.0, 1.0))
    axes.set_xlabel(f"{panel.unit}{steps_note(number, len(shares))}")
    integer_ticks(axes.xaxis)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"{_title(panel)}\n{panel.distance_text}", loc="left", fontsize=10, parse_math=False)


def steps_note(segments: int, steps: int) -> str:
    """Return a note about steps that are means of neighbouring segments; empty where each segment has a step."""
    fewest, most = segments // steps, -(-segments // steps)
    return "" if most == 1 else f" (a step is the mean of {fewest if fewest == most else f'{fewest} or {most}'})"


def _named(topic: Topic) -> str:
    """Return a topic's id with its title or first words."""
    words = [topic.title] if topic.title is not None else topic.names[:WORDS]
    return " ".join([f"{topic.id}:", *(shortened(word, LETTERS) for word in words)])
