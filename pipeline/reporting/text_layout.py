"""Place texts next to points in the plane so that no text covers another."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.formatting import plain

Floats = npt.NDArray[np.float64]
Box = tuple[float, float, float, float]

LINE = 1.2
"""Height of a line, in the size of its letters."""
BOLD = 1.12
"""Width of bold letters in that of others."""
# Widths in the size of the letters: DejaVu Sans, which is as wide as any common font without serifs.
NARROW, SLIM, LETTER, WIDE = 0.32, 0.44, 0.64, 1.0
CAPITAL, FULL, OTHER = 0.78, 1.05, 0.8
DIRECTIONS = ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (-1, -1), (1, 1), (-1, 1))
GAP = 2.0
"""Room between a point and its text, and between a text and the edge."""


@dataclass(frozen=True)
class Point:
    """A point with a text.

    Attributes
    ----------
    x, y : float
        Its middle, y downwards.
    radius : float
        Of what is drawn there.
    text : str
        What is to stand beside it; may be empty.
    size : float
        Of the letters.
    bold : bool
        Whether they are bold.
    """

    x: float
    y: float
    radius: float
    text: str
    size: float
    bold: bool = False

    @property
    def box(self) -> Box:
        """The square about what is drawn."""
        return self.x - self.radius, self.y - self.radius, self.x + self.radius, self.y + self.radius


@dataclass(frozen=True)
class Placed:
    """Where a text stands.

    Attributes
    ----------
    left, middle : float
        Where it begins, and the height of its middle.
    width, size : float
        What it takes at most, and the letters' size.
    x : float
        Its point's.
    joined : bool
        Whether it lies so far from its point that a line should join them.
    """

    left: float
    middle: float
    width: float
    size: float
    x: float
    joined: bool

    @property
    def anchor(self) -> str:
        """The end of the text that stays in narrower fonts, the one next to the point: start, middle or end."""
        if self.left >= self.x:
            return "start"
        return "end" if self.left + self.width <= self.x else "middle"

    @property
    def at(self) -> float:
        """Where that end is."""
        return round(self.left + self.width * ("start", "middle", "end").index(self.anchor) / 2, 1)

    @property
    def box(self) -> Box:
        """What the text takes at most."""
        half = LINE * self.size / 2
        return self.left, self.middle - half, self.left + self.width, self.middle + half


@dataclass(frozen=True)
class Placement:
    """Where texts may stand.

    Attributes
    ----------
    width, height : float
        The plane's.
    distances : tuple of float
        How far from its point a text may lie, ascending.
    most_covered : float
        The share of a text, at most, that may lie over points; it costs as much as it covers.
    """

    width: float
    height: float
    distances: tuple[float, ...] = (0.0,)
    most_covered: float = 1.0


def shortened(text: str, letters: int) -> str:
    """Return a text without control characters, and with so many letters at most."""
    text = plain(text)
    return text if len(text) <= letters else text[: letters - 1] + "…"


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return about what a text takes at most in common fonts without serifs."""
    return size * (BOLD if bold else 1.0) * sum(map(_width, text))


def _width(letter: str) -> float:
    if letter in "ijl|!.,:;'":
        return NARROW
    if letter in "ftrI()[]{}-/\\ ":
        return SLIM
    if letter in "mwMW@%…":
        return WIDE
    if letter.isascii():
        return CAPITAL if letter.isupper() else LETTER
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return FULL
    return LETTER if "LATIN SMALL" in unicodedata.name(letter, "") else OTHER


def place_texts(
    points: Sequence[Point], order: Sequence[int], where: Placement, taken: Sequence[Box] = ()
) -> list[Placed | None]:
    """Find a place for each text, next to its point, so that it covers no other text and few points.

    Parameters
    ----------
    points : sequence of Point
        All of them.
    order : sequence of int
        The points whose texts are placed, those first that matter most.
    where : Placement
        The plane.
    taken : sequence of Box, optional
        Left, top, right and bottom of what else no text may cover.

    Returns
    -------
    list of Placed or None
        One a point; None where there is no room, or no text.
    """
    circles = np.array([(one.x, one.y, one.radius) for one in points], dtype=np.float64).reshape(-1, 3)
    texts = np.zeros((len(taken) + len(order), 4))
    texts[: len(taken)] = np.array(taken, dtype=np.float64).reshape(-1, 4)
    used = len(taken)
    placed: list[Placed | None] = [None] * len(points)
    for one in order:
        point = points[one]
        width, height = text_width(point.text, point.size, bold=point.bold), LINE * point.size
        if not point.text or width > where.width - 2 * GAP or height > where.height - 2 * GAP:
            continue
        best: tuple[float, Box, float] | None = None
        for box, far in _boxes(point, width, height, where):
            if best is not None and 3.0 * far >= best[0]:
                break
            if _shared(box, texts[:used]).any():
                continue
            covered = float(_covered(box, circles).sum())
            cost = covered + 3.0 * far
            if covered <= where.most_covered * width * height and (best is None or cost < best[0]):
                best = cost, box, far
        if best is None:
            continue
        _, box, far = best
        texts[used] = box
        used += 1
        middle = round((box[1] + box[3]) / 2, 1)
        placed[one] = Placed(round(box[0], 1), middle, round(width, 1), point.size, point.x, far > 0)
    return placed


def _boxes(point: Point, width: float, height: float, where: Placement) -> Iterator[tuple[Box, float]]:
    """Give the places of a text about a point, the nearest first, within the plane."""
    for far, (across, down) in itertools.product(where.distances, DIRECTIONS):
        # In the diagonals a text may come as near as the circle lets it.
        reach = point.radius * (0.75 if across and down else 1.0) + GAP + far
        left = point.x + across * reach - (width if across < 0 else 0.0 if across else width / 2)
        top = point.y + down * reach - (height if down < 0 else 0.0 if down else height / 2)
        left = min(max(left, GAP), where.width - width - GAP)
        top = min(max(top, GAP), where.height - height - GAP)
        yield (left, top, left + width, top + height), far


def _shared(box: Box, others: Floats) -> Floats:
    """Return the area that a box shares with each of other boxes."""
    wide = np.minimum(box[2], others[:, 2]) - np.maximum(box[0], others[:, 0])
    tall = np.minimum(box[3], others[:, 3]) - np.maximum(box[1], others[:, 1])
    return np.asarray(np.maximum(wide, 0.0) * np.maximum(tall, 0.0))


def _covered(box: Box, circles: Floats) -> Floats:
    """Return about the area that a box shares with each circle, taken as a square of its area where they meet."""
    half = circles[:, 2] * 0.886
    squares = np.stack([circles[:, 0] - half, circles[:, 1] - half, circles[:, 0] + half, circles[:, 1] + half], axis=1)
    across = np.clip(circles[:, 0], box[0], box[2]) - circles[:, 0]
    down = np.clip(circles[:, 1], box[1], box[3]) - circles[:, 1]
    return np.where(np.hypot(across, down) < circles[:, 2], _shared(box, squares), 0.0)
