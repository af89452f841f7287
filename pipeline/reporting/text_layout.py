"""Place texts next to points in the plane so that no text covers another."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Box = tuple[float, float, float, float]


class Measure(Protocol):
    """Measures the width of a text, in the unit of its font size."""

    def __call__(self, text: str, size: float, *, bold: bool = False) -> float:
        """Return the width."""


LINE = 1.2  # Height of a line, relative to the font size
BOLD = 1.12  # Width of bold text, relative to normal text
# Widths relative to the font size in DejaVu Sans, which is as wide as any common sans-serif font.
NARROW, SLIM, LETTER, WIDE = 0.32, 0.44, 0.64, 1.0
CAPITAL, FULL, OTHER = 0.78, 1.05, 0.8
DIRECTIONS = ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1))
GAP = 2.0  # Room between a point and its text, and between a text and the edge


@dataclass(frozen=True)
class Point:
    """A point with a text."""

    # The centre, y downwards
    x: float
    y: float
    radius: float  # Radius of the mark that is drawn there
    text: str  # Text to place next to the mark; may be empty
    size: float  # Font size
    bold: bool = False  # True for bold text


@dataclass(frozen=True)
class Placed:
    """Position of a text."""

    # The left edge, and the vertical centre
    left: float
    middle: float
    # Maximum width, and font size
    width: float
    size: float
    x: float  # Horizontal position of the point
    has_leader: bool  # True if the text is so far from its point that a leader line should connect them

    @property
    def anchor(self) -> str:
        """The end of the text next to the point, which stays in place in narrower fonts: start, middle or end."""
        if self.left >= self.x:
            return "start"
        return "end" if self.left + self.width <= self.x else "middle"

    @property
    def anchor_x(self) -> float:
        """Horizontal position of the anchor."""
        return round(self.left + self.width * ("start", "middle", "end").index(self.anchor) / 2, 1)

    @property
    def box(self) -> Box:
        """The text's maximum bounding box."""
        half = LINE * self.size / 2
        return self.left, self.middle - half, self.left + self.width, self.middle + half


@dataclass(frozen=True)
class Placement:
    """Constraints on the positions of texts."""

    # Size of the plane
    width: float
    height: float
    distances: tuple[float, ...] = (0.0,)  # Permitted distances of a text from its point, ascending
    # Maximum share of a text that may lie over points; positions that cover less are preferred
    max_covered: float = 1.0


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return an upper estimate of a text's width in common sans-serif fonts, for browsers, whose fonts are unknown."""
    return size * (BOLD if bold else 1.0) * sum(map(_width, text))


def _width(letter: str) -> float:
    if letter in "ijl|!.,:;'":
        return NARROW
    if letter in "ftrI()[]{}-/\\ ":
        return SLIM
    if letter in "mwMW@%…<>=+&~_#^\N{MINUS SIGN}":
        return WIDE
    if letter.isascii():
        return CAPITAL if letter.isupper() else LETTER
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return FULL
    return LETTER if "LATIN SMALL" in unicodedata.name(letter, "") else OTHER


def place_texts(
    points: Sequence[Point],
    order: Sequence[int],
    plane: Placement,
    taken: Sequence[Box] = (),
    measure: Measure = text_width,
) -> list[Placed | None]:
    """Place each text next to its point, so that it covers no other text and few points."""
    circles = np.array([(point.x, point.y, point.radius) for point in points], dtype=np.float64).reshape(-1, 3)
    # A circle counts as a square of the same area.
    x, y, radius = circles.T
    squares = np.stack([x - 0.886 * radius, y - 0.886 * radius, x + 0.886 * radius, y + 0.886 * radius], axis=1)
    texts = np.zeros((len(taken) + len(order), 4))
    texts[: len(taken)] = np.array(taken, dtype=np.float64).reshape(-1, 4)
    used = len(taken)
    placed: list[Placed | None] = [None] * len(points)
    for number in order:
        point = points[number]
        width, height = measure(point.text, point.size, bold=point.bold), LINE * point.size
        if not point.text or width > plane.width - 2 * GAP or height > plane.height - 2 * GAP:
            continue
        best: tuple[float, Box, float] | None = None
        for box, distance in _boxes(point, width, height, plane):
            if best is not None and 3.0 * distance >= best[0]:
                break
            if _shared(box, texts[:used]).any():
                continue
            across, down = np.clip(x, box[0], box[2]) - x, np.clip(y, box[1], box[3]) - y
            covered = float(np.where(np.hypot(across, down) < radius, _shared(box, squares), 0.0).sum())
            cost = covered + 3.0 * distance
            if covered <= plane.max_covered * width * height and (best is None or cost < best[0]):
                best = cost, box, distance
        if best is None:
            continue
        _, box, distance = best
        texts[used] = box
        used += 1
        middle = round((box[1] + box[3]) / 2, 1)
        placed[number] = Placed(round(box[0], 1), middle, round(width, 1), point.size, point.x, distance > 0)
    return placed


def _boxes(point: Point, width: float, height: float, plane: Placement) -> Iterator[tuple[Box, float]]:
    """Yield boxes around a point within the plane, with their distances, the nearest first."""
    for distance, (across, down) in itertools.product(plane.distances, DIRECTIONS):
        # Diagonally, a text may come closer to a circle.
        reach = point.radius * (0.75 if across and down else 1.0) + GAP + distance
        left = point.x + across * reach - (width if across < 0 else 0.0 if across else width / 2)
        top = point.y + down * reach - (height if down < 0 else 0.0 if down else height / 2)
        left = min(max(left, GAP), plane.width - width - GAP)
        top = min(max(top, GAP), plane.height - height - GAP)
        yield (left, top, left + width, top + height), distance


def _shared(box: Box, boxes: Floats) -> Floats:
    """Return the area of a box's intersection with each of the other boxes."""
    wide = np.minimum(box[2], boxes[:, 2]) - np.maximum(box[0], boxes[:, 0])
    tall = np.minimum(box[3], boxes[:, 3]) - np.maximum(box[1], boxes[:, 1])
    return np.asarray(np.maximum(wide, 0.0) * np.maximum(tall, 0.0))
