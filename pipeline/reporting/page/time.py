"""Charts of topic shares by period for the report's page: one for each topic, and one of the documents' number."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from collapsium.pipeline.analysis.topic_shares import TimeShares
from collapsium.pipeline.analysis.topics import Topic
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.charts import BOTTOM, HEIGHT, RIGHT, TOP, WIDTH, number, percent, ticks
from collapsium.pipeline.reporting.plots.time import (
    BAND,
    FEW_DOCUMENTS,
    label_of,
    labelled_periods,
    top_of_scale,
    unbroken,
)

LEFT = 52.0
MAX_DATES = 4
WORDS = 4


@dataclass(frozen=True)
class Mark:
    """A topic's share in a period: position, tooltip, and whether the period has few documents."""

    x: float
    y: float
    text: str
    few: bool


@dataclass(frozen=True)
class Bar:
    """The number of documents of a period: rectangle and tooltip."""

    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True)
class TimeChart:
    """A topic's chart with lines, bands and a mark for each period, or, without a topic, the documents' bars."""

    topic: int | None
    title: str
    caption: str
    lines: list[str]
    bands: list[str]
    marks: list[Mark]
    bars: list[Bar]
    y_ticks: list[tuple[float, str]]


@dataclass(frozen=True)
class TimeView:
    """The page's section on time: charts, the dates below each, and notes on documents that are left out."""

    period: str
    charts: list[TimeChart]
    x_ticks: list[tuple[float, str]]
    notes: list[str]
    left: float = LEFT


def view(shares: TimeShares, topics: Sequence[Topic]) -> TimeView:
    """Lay out topic shares by period."""
    known = {topic.id: topic for topic in topics}
    first, last = shares.starts[0], shares.ends[-1]
    wide = WIDTH - LEFT - RIGHT

    def x_of(time: datetime.datetime) -> float:
        return LEFT + wide * ((time - first) / (last - first))

    edges = [(x_of(start), x_of(end)) for start, end in zip(shares.starts, shares.ends, strict=True)]
    columns = [column for column in shares.foremost() if int(shares.topics[column]) in known]
    charts = [_topic(shares, column, known[int(shares.topics[column])], edges) for column in columns]
    return TimeView(shares.period, [*charts, _documents(shares, edges)], _date_ticks(shares, edges), shares.notes)


def _date_ticks(shares: TimeShares, edges: Sequence[tuple[float, float]]) -> list[tuple[float, str]]:
    """Name a few periods, far enough apart, and the last one always."""
    places = [min(max((low + high) / 2, LEFT + 28), WIDTH - RIGHT - 34) for low, high in edges]
    rows = labelled_periods([place / (WIDTH - LEFT - RIGHT) for place in places], MAX_DATES)
    return [(places[row], label_of(shares, row)) for row in rows]


def _y_of(value: float, high: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - min(max(value / high, 0.0), 1.0))


def _topic(shares: TimeShares, column: int, topic: Topic, edges: Sequence[tuple[float, float]]) -> TimeChart:
    share, error = shares.shares[:, column], BAND * shares.errors[:, column]
    high = top_of_scale(shares, column)
    x = [(low + right) / 2 for low, right in edges]
    lines, bands = [], []
    for run in unbroken(shares):
        if len(run) > 1:
            lines.append("M" + "L".join(f"{x[row]:.1f},{_y_of(share[row], high):.1f}" for row in run))
            upper = [f"{x[row]:.1f},{_y_of(share[row] + error[row], high):.1f}" for row in run]
            lower = [f"{x[row]:.1f},{_y_of(share[row] - error[row], high):.1f}" for row in reversed(run)]
            bands.append("M" + "L".join([*upper, *lower]) + "Z")
        else:
            low, right = edges[run[0]]
            half = max((right - low) / 4, 1.5)
            top, bottom = (_y_of(share[run[0]] + sign * error[run[0]], high) for sign in (1, -1))
            middle = x[run[0]]
            bands.append(f"M{middle - half:.1f},{top:.1f}H{middle + half:.1f}V{bottom:.1f}H{middle - half:.1f}Z")
    rows = zip(x, shares.names, share.tolist(), error.tolist(), shares.documents.tolist(), strict=True)
    marks = [
        Mark(
            round(middle, 1),
            round(_y_of(value, high), 1),
            f"{name}: {percent(value)} ± {percent(half)}, {count:,} document{'' if count == 1 else 's'}",
            count < FEW_DOCUMENTS,
        )
        for middle, name, value, half, count in rows
    ]
    words = " ".join(plain(word) for word in ([topic.title] if topic.title is not None else topic.names[:WORDS]))
    lowest, highest = int(share.argmin()), int(share.argmax())
    caption = (
        f"from {percent(share[lowest])} ({shares.names[lowest]}) to {percent(share[highest])} ({shares.names[highest]})"
    )
    digits = 0 if high >= 0.04 else 1 if high >= 0.004 else 2
    y_ticks = [(_y_of(mark, high), f"{mark:.{digits}%}") for mark in ticks(0.0, high)]
    return TimeChart(topic.id, words, caption, lines, bands, marks, [], y_ticks)


def _documents(shares: TimeShares, edges: Sequence[tuple[float, float]]) -> TimeChart:
    most = float(shares.documents.max())
    bars = []
    for (low, right), name, count in zip(edges, shares.names, shares.documents.tolist(), strict=True):
        top, width = _y_of(count, 1.1 * most), max(right - low, 1.0)
        bars.append(
            Bar(round(low, 1), round(top, 1), round(width, 1), round(HEIGHT - BOTTOM - top, 1), f"{name}: {count:,}")
        )
    y_ticks = [(_y_of(mark, 1.1 * most), f"{mark:,.0f}") for mark in ticks(0.0, 1.1 * most, integer=True)]
    total = int(shares.documents.sum())
    caption = f"{number(total)} in {len(shares.names):,} {shares.period}s"
    return TimeChart(None, "Documents", caption, [], [], [], bars, y_ticks)
