"""The one renderer of small SVG charts: reports and the scheduler's page of runs draw with it."""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TypeVar

from markupsafe import Markup

from collapsium.pipeline.formatting import MINUS, number, plain

Points = Sequence[tuple[float, float]]
Ticks = Sequence[tuple[float, str]]  # Values with their texts
Value = TypeVar("Value")

# Sizes in units of the chart, each about a pixel on a wide screen.
WIDTH, HEIGHT = 360.0, 210.0
LEFT, RIGHT, TOP, BOTTOM = 72.0, 12.0, 10.0, 28.0
CHARACTER = 8.0  # Width of a digit of ticks, in wide typefaces
FAR = 1000.0  # Distance outside the chart at which positions are cut off, because they are invisible anyway
MAX_POINTS = 400
# Share of the iterations left out of the vertical range: the first values would flatten all later ones.
EARLY = 0.1
COLOURS = 6  # Classes c0, c1, ... of lines, and f0, f1, ... of areas

STYLE = """:root {
  color-scheme: light dark;
  --paper: #fbfbf9; --card: #ffffff; --ink: #1c1f22; --soft: #565d64; --rule: #dcdfe1; --accent: #00639c;
  --fill: #0072b2; --pale: #c5dcea; --chosen: #c04f00; --wash: #eef3f6;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b85a93; --c4: #b07700; --c5: #3d94c9;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --card: #1b1f23; --ink: #e8e8e4; --soft: #a5adb4; --rule: #33393e; --accent: #7cc0ee;
    --fill: #4da3d8; --pale: #2b475a; --chosen: #ff9a52; --wash: #20272c;
    --c0: #5db0e4; --c1: #ff8a3d; --c2: #35c79c; --c3: #e09ac4; --c4: #f0b93f; --c5: #9cd3f5;
  }
}
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", Arial, sans-serif;
  font-variant-numeric: tabular-nums;
}
a { color: var(--accent); text-underline-offset: 0.15em; }
figure { margin: 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(21rem, 100%), 1fr)); gap: 1.25rem; }
.charts .chart {
  background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 0.8rem 0.9rem 0.6rem;
}
.chart > svg { display: block; width: 100%; height: auto; }
.chart figcaption { color: var(--ink); margin-bottom: 0.4rem; font-size: 0.9375rem; }
.chart .last { margin: 0; }
.chart text { fill: var(--soft); font-size: 12.5px; }
.chart text.up { text-anchor: end; dominant-baseline: central; } .chart text.across { text-anchor: middle; }
.chart text.over { fill: var(--ink); dominant-baseline: central; }
.grid { stroke: var(--rule); }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); }
.c3 { stroke: var(--c3); } .c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); }
.f0 { fill: var(--c0); } .f1 { fill: var(--c1); } .f2 { fill: var(--c2); }
.f3 { fill: var(--c3); } .f4 { fill: var(--c4); } .f5 { fill: var(--c5); }
.pale { fill: var(--pale); } .rest { fill: #bfc3c6; }
.band { fill: var(--fill); fill-opacity: 0.2; }
.swatch { width: 0.8em; height: 0.8em; margin-right: 0.35em; }
small, .aside, figcaption, .unit, .last { color: var(--soft); font-size: 0.875rem; }
"""


@dataclass
class Chart:
    """A chart, whose marks and ticks are in the units of its data."""

    # Values at the left and right edges, and at the bottom and top
    x: tuple[float, float]
    y: tuple[float, float]
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    marks: list[str] = field(default_factory=list)  # SVG elements

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the position of a point in the picture."""
        (left, right), (bottom, top) = self.x, self.y
        across = self.left + (self.width - self.left - RIGHT) * (x - left) / (right - left or 1.0)
        down = TOP + (self.height - TOP - BOTTOM) * (top - y) / (top - bottom or 1.0)
        return _near(across, self.width), _near(down, self.height)

    def line(self, points: Points, style: str, title: str = "") -> None:
        """Draw a line through at most 400 of the points."""
        self._path(thinned(points, MAX_POINTS), "", f"line {style}", title)

    def area(self, outline: Points, style: str, title: str = "", link: str = "") -> None:
        """Fill an outline; a link gives the number of the topic to which it leads."""
        self._path(outline, "Z", style, title, link)

    def _path(self, points: Points, end: str, style: str, title: str, link: str = "") -> None:
        path = " ".join("{:.1f},{:.1f}".format(*self.at(*point)) for point in points)
        drawn = f'<path class="{style}" d="M{path}{end}">{_title(title)}</path>'
        self.marks.append(
            f'<a href="#{link}" tabindex="-1" data-topic="{link.rpartition("-")[2]}">{drawn}</a>' if link else drawn
        )

    def bar(self, x: tuple[float, float], y: tuple[float, float], style: str = "", title: str = "") -> None:
        """Draw a rectangle between two values of each axis; it is visible however narrow."""
        (left, low), (right, high) = self.at(x[0], y[0]), self.at(x[1], y[1])
        size = f'width="{max(right - left, 1.0):.1f}" height="{abs(low - high):.1f}"'
        place = f'x="{left:.1f}" y="{min(low, high):.1f}"'
        self.marks.append(f'<rect class="{style}" {place} {size}>{_title(title)}</rect>')

    def dot(self, x: float, y: float, style: str, title: str) -> None:
        """Draw a point."""
        across, down = self.at(x, y)
        self.marks.append(f'<circle class="{style}" cx="{across:.1f}" cy="{down:.1f}" r="3">{_title(title)}</circle>')

    def text(self, x: float, y: float, text: str, style: str, shift: float = 0.0) -> None:
        """Write a text at a point."""
        across, down = self.at(x, y)
        self.marks.append(f'<text class="{style}" x="{across + shift:.1f}" y="{down:.1f}">{escape(plain(text))}</text>')

    def drawn(self, label: str, x_ticks: Ticks = (), y_ticks: Ticks = (), *, grid: bool = True) -> Markup:
        """Return the SVG, with a label for people who do not see it; marks outside the axes are cut off."""
        right, (top, tall) = self.width - RIGHT, (TOP - 2, self.height - TOP - BOTTOM + 4)
        parts = [f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{escape(plain(label))}">']
        for value, text in y_ticks:
            height = f"{self.at(self.x[0], value)[1]:.1f}"
            if grid:
                parts.append(f'<line class="grid" x1="{self.left:g}" x2="{right:g}" y1="{height}" y2="{height}"/>')
            parts.append(f'<text class="up" x="{self.left - 6:g}" y="{height}">{escape(text)}</text>')
        for value, text in x_ticks:
            half = min(CHARACTER * len(text), self.width) / 2  # A text at an edge is moved inwards
            across = min(max(self.at(value, self.y[0])[0], half), self.width - half)
            parts.append(f'<text class="across" x="{across:.1f}" y="{self.height - 10:g}">{escape(text)}</text>')
        # An inner picture cuts off everything outside of it.
        box = (self.left, top, right - self.left + 2, tall)
        sizes = " ".join(f'{name}="{value:g}"' for name, value in zip(("x", "y", "width", "height"), box, strict=True))
        seen = " ".join(f"{value:g}" for value in box)
        parts += [f'<svg {sizes} viewBox="{seen}">', *self.marks, "</svg></svg>"]
        return Markup("".join(parts))  # noqa: S704 - texts are escaped above


def _near(position: float, size: float) -> float:
    return min(max(position, -FAR), size + FAR)


def _title(text: str) -> str:
    return f"<title>{escape(plain(text))}</title>" if text else ""


def thinned(values: Sequence[Value], limit: int) -> list[Value]:
    """Return at most `limit` evenly spaced values; the first and the last stay."""
    if len(values) <= limit:
        return list(values)
    step = (len(values) - 1) / max(limit - 1, 1)
    return [values[round(step * index)] for index in range(limit - 1)] + [values[-1]]


def ticks(low: float, high: float, count: int = 4, *, integer: bool = False) -> list[float]:
    """Return about `count` round numbers between two values; there may be no integer between them."""
    if not high > low:
        return [low] if not integer or low == round(low) else []
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    step = max(step, 1.0) if integer else step
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def number_ticks(marks: Sequence[float]) -> Ticks:
    """Return ticks whose texts have just enough decimals to tell them apart; large ones are in millions."""
    unit, name = (1e6, " M") if max(map(abs, marks), default=0.0) >= 1e6 else (1.0, "")
    values = [mark / unit for mark in marks]
    step = min((b - a for a, b in itertools.pairwise(values)), default=abs(values[0]) if values else 1.0)
    digits = max(-math.floor(math.log10(step) + 1e-9), 0) if step > 0 else 0
    return [(mark, f"{mark / unit:,.{digits}f}{name}".replace("-", MINUS)) for mark in marks]


def curves(title: str, series: Sequence[tuple[str, Points]], *, counted: bool = False) -> tuple[Markup, str]:
    """Return a chart of a figure by iteration, a line for each series, and its caption; counts have whole ticks."""
    last = max(points[-1][0] for _, points in series)
    first = min(points[0][0] for _, points in series)
    late = [value for _, points in series for x, value in points if x >= first + EARLY * (last - first)]
    low, high = min(late), max(late)
    room = 0.06 * (high - low) or max(abs(high) * 0.01, 1e-9)
    chart = Chart((first, last), (low - room, high + room))
    for line, (name, points) in enumerate(series):
        chart.line(points, f"c{line % COLOURS}", f"member {name}: {number(points[-1][1])}" if name else "")
    ends = [round(points[-1][1]) if counted else points[-1][1] for _, points in series]
    span = number(ends[0]) if len(ends) == 1 else f"{number(min(ends))} to {number(max(ends))}"
    caption = f"{span} after iteration {last:,.0f}"
    y_ticks = number_ticks(ticks(*chart.y, integer=counted))
    return chart.drawn(f"{title}: {caption}", iteration_ticks(first, last), y_ticks), caption


def iteration_ticks(first: float, last: float) -> Ticks:
    """Return ticks of an axis of iterations."""
    return [(mark, f"{mark:,.0f}") for mark in ticks(first, last, 5, integer=True)]


def security_policy(style: str, script: str) -> str:
    """Return a Content-Security-Policy that allows this style and this script only."""
    hashes = {
        name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for name, text in (("style", style), ("script", script))
    }
    allowed = "; ".join(f"{name}-src 'sha256-{digest}'" for name, digest in hashes.items())
    return f"default-src 'none'; {allowed}; img-src data:; base-uri 'none'; form-action 'none'"
