"""Pictures of topic proportions along the segments of a document, of one run or of two side by side."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collapsium.pipeline.analysis.segments import Along, along, beside, colours_of, largest
from collapsium.pipeline.analysis.topics import Topic, topics
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.plots.style import SALT, saved, whole_numbers
from collapsium.storage.errors import OptionError
from collapsium.workers.document_summaries import means_over_runs

# Okabe and Ito's, and three of Tol's that can be told from them; the grey is of all other topics.
AREAS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#332288", "#999933", "#882255"
)  # fmt: skip
GREY = "#CFCFCF"
OTHERS = "other topics"
WORDS, LETTERS = 5, 18  # of a topic's words, and of each
PANEL = (6.4, 3.9)  # inches
LEGEND, ROW = 3.6, 0.19  # of a legend beside the panel, and of a line of one below
FEW = 60  # places up to which areas are parted by broad lines


def draw_segments(
    run: str | os.PathLike[str],
    kind: str,
    *,
    document: str | None = None,
    chosen: Sequence[int] | None = None,
    other: str | os.PathLike[str] | None = None,
    corpus: str | os.PathLike[str] | None = None,
) -> tuple[bytes, list[str]]:
    """Draw topic proportions along a document's segments; needs matplotlib.

    Parameters
    ----------
    run : str or path-like
        Folder of a run.
    kind : str
        ``png`` or ``svg``.
    document : str, optional
        Its id; see `collapsium.pipeline.analysis.segments.neighbour_distance`.
    chosen : sequence of int, optional
        Ids of the topics that have colours, ten at most; by default the largest.
    other : str or path-like, optional
        A run to draw beside it, whose topics get the colours of those that they are nearest to.
    corpus : str or path-like, optional
        Where the training corpus of `run` lies by now.

    Returns
    -------
    picture : bytes
        The file.
    said : list of str
        What was drawn, a line a panel.

    Raises
    ------
    OptionError
        A topic is not there, or there are too many; or there is no such document.
    """
    partner: dict[int, int] = {}
    if other is None:
        pictures = [along(run, document=document, corpus=corpus)]
    else:
        one, another, partner = beside(run, other, document=document, corpus=corpus)
        pictures = [one, another]
    known = [{topic.id: topic for topic in topics(place, WORDS)} for place in (run, other) if place is not None]
    coloured = _coloured(chosen, known[0], pictures, partner)
    places = colours_of(coloured, list(known[0]), len(AREAS))
    palettes = [{topic: AREAS[places[topic]] for topic in coloured}]
    back = {ours: theirs for theirs, ours in partner.items()}
    palettes += [{back[topic]: colour for topic, colour in palettes[0].items() if topic in back}] * (len(pictures) - 1)
    said = [f"{_title(one)}: {one.said} (mean Hellinger distance)" for one in pictures]
    return _drawn(pictures, known, palettes, kind), said


def _coloured(
    chosen: Sequence[int] | None, known: Mapping[int, Topic], pictures: Sequence[Along], partner: dict[int, int]
) -> list[int]:
    if chosen is None:
        return [topic for topic in largest(pictures, partner, len(AREAS)) if topic in known]
    found = list(dict.fromkeys(chosen))
    if not found or len(found) > len(AREAS):
        raise OptionError(f"expected 1 to {len(AREAS)} topics, found {len(found)}", "topics")
    for topic in found:
        if topic not in known:
            raise OptionError(f"`topics` {topic}: {pictures[0].name} has no topic {topic} with tokens")
    return found


def _title(one: Along) -> str:
    return plain(f"{one.name}, {one.family}" + ("" if one.document is None else f": {one.document}"))


def _drawn(
    pictures: Sequence[Along],
    known: Sequence[Mapping[int, Topic]],
    palettes: Sequence[Mapping[int, str]],
    kind: str,
) -> bytes:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    lines = max(len(palette) for palette in palettes) + 1
    alone = len(pictures) == 1
    size = (PANEL[0] + LEGEND, PANEL[1]) if alone else (PANEL[0] * len(pictures), PANEL[1] + ROW * lines)
    style = {"font.size": 10, "svg.fonttype": "none"}
    with warnings.catch_warnings(), rc_context({**SALT, **style}):
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(1, len(pictures), sharey=True, squeeze=False)[0]
        for number, (axes, one) in enumerate(zip(panels, pictures, strict=True)):
            _areas(axes, one, palettes[number], known[number])
            where: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.13)}
            if alone:
                where = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
            # The legend reads as the areas lie: the topmost first.
            axes.legend(**where, frameon=False, fontsize=9, reverse=True, handlelength=1.2, labelspacing=0.35)
            for text in axes.get_legend().get_texts():
                text.set_parse_math(False)
        panels[0].set_ylabel("share of topics")
        return saved(figure, kind)


def _areas(axes: Any, one: Along, palette: Mapping[int, str], known: Mapping[int, Topic]) -> None:
    """Draw areas over one another, a step a place."""
    shares, number = means_over_runs(one.proportions), len(one.proportions)
    edges = np.arange(len(shares) + 1) * number / len(shares) + 0.5
    base = np.zeros(len(shares))
    parts = [(shares[:, topic], colour, _named(known[topic])) for topic, colour in palette.items()]
    rest = np.setdiff1d(np.arange(shares.shape[1]), list(palette))
    if shares[:, rest].sum() > 0.0:
        parts.append((shares[:, rest].sum(axis=1), GREY, OTHERS))
    style = {"fill": True, "edgecolor": "white", "linewidth": 0.6 if number <= FEW else 0.2}
    for values, colour, name in parts:
        axes.stairs(base + values, edges, baseline=base, color=colour, label=name, **style)
        base = base + values
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0.0, 1.0))
    each = "" if len(shares) == number else f", means of about {number / len(shares):.2g} neighbours"
    axes.set_xlabel(f"{one.places}{each}")
    whole_numbers(axes.xaxis)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"{_title(one)}\n{one.said}", loc="left", fontsize=10, parse_math=False)


def _named(topic: Topic) -> str:
    """Name a topic by its id and its first words."""
    words = [plain(topic.title)] if topic.title is not None else [plain(word) for word in topic.names[:WORDS]]
    return " ".join([f"{topic.id}:", *(one if len(one) <= LETTERS else f"{one[: LETTERS - 1]}…" for one in words)])
