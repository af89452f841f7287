"""Topic shares by period as a page shows them: a small chart a topic, and one of documents."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collapsium.pipeline.analysis.topic_shares import TimeShares
from collapsium.pipeline.analysis.topics import Topic
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.charts import BOTTOM, HEIGHT, RIGHT, TOP, WIDTH, number, percent, ticks
from collapsium.pipeline.reporting.plots.time import BAND, FEW_DOCUMENTS, unbroken

LEFT = 52.0
ACROSS = 4  # dates below a chart, at most
WORDS = 4


@dataclass(frozen=True)
class Mark:
    """A period in a chart: where its mark lies, what is said of it, and whether it has few documents."""

    x: float
    y: float
    said: str
    few: bool


@dataclass(frozen=True)
class Bar:
    """The documents of a period."""

    x: float
    y: float
    width: float
    height: float
    said: str


@dataclass(frozen=True)
class TimeChart:
    """A chart: of a topic its line, its band and a mark a period; of documents, without a topic, bars."""

    topic: int | None
    title: str
    said: str
    lines: list[str]
    bands: list[str]
    marks: list[Mark]
    bars: list[Bar]
    up: list[tuple[float, str]]


@dataclass(frozen=True)
class TimeView:
    """The section: its charts, the dates below each, and what is left out."""

    period: str
    charts: list[TimeChart]
    across: list[tuple[float, str]]
    notes: list[str]
    left: float = LEFT


def view(found: TimeShares, topics: Sequence[Topic]) -> TimeView:
    """Lay out topic shares by period.

    Parameters
    ----------
    found : TimeShares
        The shares.
    topics : sequence of Topic
        Those of the page.

    Returns
    -------
    TimeView
        Of the largest topics and those that change most.
    """
    known = {topic.id: topic for topic in topics}
    first, last = found.starts[0], found.ends[-1]
    wide = WIDTH - LEFT - RIGHT

    def across(at: datetime.datetime) -> float:
        return LEFT + wide * ((at - first) / (last - first))

    edges = [(across(start), across(end)) for start, end in zip(found.starts, found.ends, strict=True)]
    columns = [one for one in found.foremost() if int(found.topics[one]) in known]
    charts = [_topic(found, column, known[int(found.topics[column])], edges) for column in columns]
    return TimeView(found.period, [*charts, _documents(found, edges)], _marked(found, edges), found.notes)


def _marked(found: TimeShares, edges: Sequence[tuple[float, float]]) -> list[tuple[float, str]]:
    """Name a few periods, far enough apart."""
    marks: list[tuple[float, str]] = []
    room = (WIDTH - LEFT - RIGHT) / ACROSS
    for (low, high), start, name in zip(edges, found.starts, found.names, strict=True):
        at = min(max((low + high) / 2, LEFT + 28), WIDTH - RIGHT - 34)
        if not marks or at >= marks[-1][0] + room:
            marks.append((at, start.date().isoformat() if found.period == "week" else name))
    return marks


def _place(share: float, high: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - min(max(share / high, 0.0), 1.0))


def _topic(found: TimeShares, column: int, topic: Topic, edges: Sequence[tuple[float, float]]) -> TimeChart:
    share, error = found.shares[:, column], BAND * found.errors[:, column]
    high = max(1.2 * float(share.max()), float(np.quantile(share + error, 0.9)), 1e-6)
    x = [(low + right) / 2 for low, right in edges]
    lines, bands = [], []
    for run in unbroken(found):
        if len(run) > 1:
            lines.append("M" + "L".join(f"{x[one]:.1f},{_place(share[one], high):.1f}" for one in run))
            upper = [f"{x[one]:.1f},{_place(share[one] + error[one], high):.1f}" for one in run]
            lower = [f"{x[one]:.1f},{_place(share[one] - error[one], high):.1f}" for one in reversed(run)]
            bands.append("M" + "L".join([*upper, *lower]) + "Z")
        else:
            low, right = edges[run[0]]
            half = max((right - low) / 4, 1.5)
            top, bottom = (_place(share[run[0]] + sign * error[run[0]], high) for sign in (1, -1))
            middle = x[run[0]]
            bands.append(f"M{middle - half:.1f},{top:.1f}H{middle + half:.1f}V{bottom:.1f}H{middle - half:.1f}Z")
    said = [
        f"{name}: {percent(s)} ± {percent(e)}, {count:,} document{'' if count == 1 else 's'}"
        for name, s, e, count in zip(found.names, share.tolist(), error.tolist(), found.documents.tolist(), strict=True)
    ]
    few = (found.documents < FEW_DOCUMENTS).tolist()
    marks = [
        Mark(round(at, 1), round(_place(one, high), 1), text, small)
        for at, one, text, small in zip(x, share.tolist(), said, few, strict=True)
    ]
    words = " ".join(plain(word) for word in ([topic.title] if topic.title is not None else topic.names[:WORDS]))
    lowest, highest = int(share.argmin()), int(share.argmax())
    caption = (
        f"from {percent(share[lowest])} ({found.names[lowest]}) to {percent(share[highest])} ({found.names[highest]})"
    )
    digits = 0 if high >= 0.04 else 1 if high >= 0.004 else 2
    up = [(_place(mark, high), f"{mark:.{digits}%}") for mark in ticks(0.0, high)]
    return TimeChart(topic.id, words, caption, lines, bands, marks, [], up)


def _documents(found: TimeShares, edges: Sequence[tuple[float, float]]) -> TimeChart:
    most = float(found.documents.max())
    bars = []
    for (low, right), name, count in zip(edges, found.names, found.documents.tolist(), strict=True):
        top, width = _place(count, 1.1 * most), max(right - low, 1.0)
        bars.append(
            Bar(round(low, 1), round(top, 1), round(width, 1), round(HEIGHT - BOTTOM - top, 1), f"{name}: {count:,}")
        )
    up = [(_place(mark, 1.1 * most), f"{mark:,.0f}") for mark in ticks(0.0, 1.1 * most, whole=True)]
    total = int(found.documents.sum())
    said = f"{number(total)} in {len(found.names):,} {found.period}s"
    return TimeChart(None, "Documents", said, [], [], [], bars, up)
