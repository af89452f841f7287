"""Numbers as people read them, and the geometry of small charts; templates draw it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 360.0, 210.0  # of a chart, in its own units, which are about pixels
LEFT, RIGHT, TOP, BOTTOM = 72.0, 12.0, 10.0, 28.0
MOST_POINTS = 400
LATE = 0.1  # share of the iterations whose values lie before what is shown: they would press all else together
MINUS, THIN = "\N{MINUS SIGN}", "\N{NARROW NO-BREAK SPACE}"


def number(value: float, digits: int = 4) -> str:
    """Write a number with so many digits that matter, thousands apart: ``-7.146``, ``12,345``, ``1.2e-05``."""
    if not math.isfinite(value):
        return "–"
    if value == round(value) or abs(value) >= 10**digits:
        text = f"{value:,.0f}"
    elif abs(value) >= 1e-4:
        places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
        text = f"{value:,.{places}f}".rstrip("0").rstrip(".")
    else:
        text = f"{value:.{max(digits - 2, 1)}g}"
    return text.replace("-", MINUS)


def percent(share: float) -> str:
    """Write a share: ``12.3%``, and ``<0.1%`` of what is less."""
    return "<0.1%" if 0 < share < 0.001 else f"{share:.1%}"


def times(factor: float) -> str:
    """Write a factor: ``0.4``, ``1.7``, ``23``, ``>999``."""
    return f"{factor:.1f}" if factor < 9.95 else f"{factor:.0f}" if factor < 999.5 else ">999"


def duration(seconds: float) -> str:
    """Write a time: ``12.3 s``, ``4 min 5 s``, ``2 h 10 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Attributes
    ----------
    name : str
        Of the member, empty where there is one line alone.
    path : str
        As SVG has it.
    points : int
        How many it has.
    last : float
        Its last value.
    """

    name: str
    path: str
    points: int
    last: float


@dataclass(frozen=True)
class Chart:
    """A chart over iterations.

    Attributes
    ----------
    name, title, unit, caption : str
        What is drawn.
    lines : list of Line
        One a member.
    across, up : list of (float, str)
        Places and texts of the ticks.
    """

    name: str
    title: str
    unit: str
    caption: str
    lines: list[Line]
    across: list[tuple[float, str]]
    up: list[tuple[float, str]]


Points = Sequence[tuple[float, float]]


def ticks(low: float, high: float, count: int = 4, *, whole: bool = False) -> list[float]:
    """Return about `count` round numbers between two, or whole ones, of which there may be none."""
    if not high > low:
        return [low] if not whole or low == round(low) else []
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough)
    step = max(step, 1.0) if whole else step
    first = math.ceil(low / step - 1e-9)
    return [one * step for one in range(first, math.floor(high / step + 1e-9) + 1)]


def thinned(points: Points) -> list[tuple[float, float]]:
    """Leave out points evenly where there are too many; the first and the last stay."""
    if len(points) <= MOST_POINTS:
        return list(points)
    step = (len(points) - 1) / (MOST_POINTS - 1)
    return [points[round(step * place)] for place in range(MOST_POINTS)]


def chart(name: str, title: str, unit: str, series: Sequence[tuple[str, Points]], *, counted: bool = False) -> Chart:
    """Lay out a chart.

    Parameters
    ----------
    name, title, unit : str
        What is drawn.
    series : sequence of (str, points)
        A member's name and its (iteration, value); at least one point.
    counted : bool, optional
        Whether the values are counts, whose ticks are whole numbers.

    Returns
    -------
    Chart
        Its vertical range leaves out the first tenth of the iterations.
    """
    last = max(points[-1][0] for _, points in series)
    first = min(points[0][0] for _, points in series)
    late = [value for _, points in series for x, value in points if x >= first + LATE * (last - first)]
    low, high = min(late), max(late)
    room = 0.06 * (high - low) or max(abs(high) * 0.01, 1e-9)
    low, high = low - room, high + room
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + wide * (x - first) / max(last - first, 1e-9), TOP + tall * (high - y) / (high - low)

    lines = []
    for member, points in series:
        spots = [place(*point) for point in thinned(points)]
        # Far outside the frame, which cuts the line off, numbers need not be exact.
        path = " ".join(
            f"{'L' if n else 'M'}{x:.1f},{min(max(y, -500.0), 900.0):.1f}" for n, (x, y) in enumerate(spots)
        )
        lines.append(Line(member, path, len(spots), points[-1][1]))
    marks = ticks(low, high, whole=counted)
    values = [value for _, points in series for _, value in points[-1:]]
    ends = f"{number(values[0])}" if len(values) == 1 else f"{number(min(values))} to {number(max(values))}"
    caption = f"{ends} after iteration {last:,.0f}"
    up = [(place(first, mark)[1], text) for mark, text in zip(marks, _texts(marks), strict=True)]
    across = [(place(mark, low)[0], f"{mark:,.0f}") for mark in ticks(first, last, 5, whole=True)]
    return Chart(name, title, unit, caption, lines, across, up)


def _texts(marks: Sequence[float]) -> list[str]:
    """Write marks with the decimals by which all differ; large ones in millions."""
    unit, name = (1e6, " M") if max(map(abs, marks), default=0.0) >= 1e6 else (1.0, "")
    digits = _digits([mark / unit for mark in marks])
    return [f"{mark / unit:,.{digits}f}{name}".replace("-", MINUS) for mark in marks]


def _digits(marks: Sequence[float]) -> int:
    """Return the decimals by which all marks differ."""
    step = min((b - a for a, b in itertools.pairwise(marks)), default=abs(marks[0]) if marks else 1.0)
    return max(-math.floor(math.log10(step) + 1e-9), 0) if step > 0 else 0
