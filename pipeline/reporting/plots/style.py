"""Colours, panels and files shared by all plots, made with matplotlib."""

from __future__ import annotations

import importlib.util
import io
import os
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, cast

from collapsium.pipeline.models.topics import Topic
from collapsium.pipeline.reporting.options import renamed
from collapsium.storage.errors import MissingError, OptionError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart; their yellow is too pale for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
# matplotlib's horizontal alignments by SVG's text anchors
ALIGNMENT = {"start": "left", "middle": "center", "end": "right"}
# Size of a panel in inches, panels in a row, and resolution of a PNG in dots per inch.
PANEL = (4.6, 3.7)
ACROSS = 3
DPI = 150
MAX_PIXELS = 60_000  # Maximum height and width of a PNG
FONT_TOLERANCE = 1.04  # Fonts other than the measured one, by which an SVG may be shown, may be a little wider
# Makes the ids within an SVG the same in every process.
SALT = {"svg.hashsalt": "collapsium"}
# Texts of an SVG stay texts; texts of a PDF can be searched and edited
STYLE: Mapping[str, object] = {"font.size": 10, "svg.fonttype": "none", "pdf.fonttype": 42}
GRID: Mapping[str, object] = {"axes.grid": True, "grid.alpha": 0.3}
LATE = 0.1  # Share of the iterations left out of the vertical range, because their scores would flatten all later ones


def can_draw() -> bool:
    """Return True if matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def picture_kind(path: str | os.PathLike[str], option: str | None = None) -> str:
    """Return a picture's format, ``png``, ``svg`` or ``pdf``, from its name."""
    named = "" if option is None else f"`{option}` "
    kind = os.fspath(path).rpartition(".")[2].lower()
    if kind not in ("png", "svg", "pdf"):
        raise OptionError(f"{named}{os.fspath(path)}: expected a name that ends in .svg, .png or .pdf")
    if not can_draw():
        raise MissingError(
            f"{named}{os.fspath(path)}: pictures need matplotlib, which is not installed: "
            "pip install 'collapsium[plots]'"
        )
    return kind


@lru_cache(maxsize=100_000)
def measured_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width of a text in points, as matplotlib draws it."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=size, weight="bold" if bold else "normal")
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    # Wide characters come from another font, one font size wide.
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return max(float(width), wide * size) * FONT_TOLERANCE


Size = tuple[float, float]  # Width and height in inches


@dataclass(frozen=True)
class Style:
    """Title, size, names and nouns that any picture takes."""

    title: str | None = None
    size: Size | None = None
    names: Mapping[int, str] = field(default_factory=dict)  # By topic
    nouns: Mapping[str, str] = field(default_factory=dict)  # Of documents, words, tokens and topics

    def text(self, text: str) -> str:
        """Return a text of ours with the picture's nouns."""
        return renamed(text, self.nouns)

    def named(self, topics: Sequence[Topic]) -> list[Topic]:
        """Return topics with their names as titles."""
        return [replace(topic, title=self.names.get(topic.id, topic.title)) for topic in topics]


@dataclass(frozen=True)
class Drawing:
    """A figure that is made when it is drawn, in its style."""

    make: Callable[[], Figure]
    style: Mapping[str, object] = field(default_factory=lambda: STYLE)

    def figure(self) -> Figure:
        """Make the figure, which notebooks show and the caller may change."""
        from matplotlib import rc_context

        with rc_context({**STYLE, **self.style}):
            return self.make()

    def file(self, kind: str) -> bytes:
        """Return the figure as a file."""
        return drawn(self.make, kind, self.style)


def drawn(make: Callable[[], Figure], kind: str, style: Mapping[str, object] = STYLE) -> bytes:
    """Make a figure in a style, and return it as a file; characters that the font lacks become boxes in silence."""
    from matplotlib import rc_context

    with warnings.catch_warnings(), rc_context({**SALT, **STYLE, **style}):
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        return saved(make(), kind)


def saved(figure: Figure, kind: str) -> bytes:
    """Return a figure as a ``png``, ``svg`` or ``pdf`` file; the same bytes for the same figure."""
    sink, dpi = io.BytesIO(), min(DPI, MAX_PIXELS / max(figure.get_size_inches()))
    # Without the date, the same numbers give the same file.
    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(sink, format=kind, dpi=dpi, metadata=dated.get(kind, {}))
    return sink.getvalue()


def new_panels(
    count: int,
    title: str,
    *,
    legend: bool = True,
    across: int = ACROSS,
    size: Size | None = None,
    panel: Size = PANEL,
    sharey: bool = False,
    ax: Axes | None = None,
) -> tuple[Figure, list[Axes]]:
    """Return a new figure with `count` panels and, if `legend`, room for a legend at the right; or given axes."""
    if ax is not None:
        if count != 1:
            raise OptionError(f"axes are for a single panel; this figure has {count}, so leave them out", "ax")
        ax.spines[["top", "right"]].set_visible(False)
        return cast("Figure", ax.get_figure(root=True)), [ax]
    figure = new_figure(1.0, 1.0, title)
    across = min(count, across)
    down = -(-count // across)
    figure.set_size_inches(size or (panel[0] * across + 2.6 * legend, panel[1] * down + 0.5))
    axes = list(figure.subplots(down, across, squeeze=False, sharey=sharey).flat)
    for extra in axes[count:]:
        extra.set_visible(False)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes[:count]


def new_figure(width: float, height: float, title: str = "", *, layout: str | None = "constrained") -> Figure:
    """Return an empty figure of a size in inches."""
    figure: Figure = _figure_class()(figsize=(width, height), layout=layout)
    if title:
        figure.suptitle(title, x=0.01, ha="left", parse_math=False)
    return figure


@cache
def _figure_class() -> type[Figure]:
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):  # type: ignore[misc]
        """A figure that notebooks show even if pyplot was not imported."""

        def _repr_png_(self) -> bytes:
            return saved(self, "png")

    return NotebookFigure


def thousands(axis: Axis) -> None:
    """Format the numbers of an axis without decimals and with thousands separated."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}".replace("-", "\N{MINUS SIGN}")))


def integer_ticks(axis: Axis) -> None:
    """Put ticks on integers only, for an axis of counts, iterations or ranks."""
    from matplotlib.ticker import MaxNLocator

    # The locator marks fractions where fewer than `min_n_ticks` ticks are integers.
    axis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1, steps=(1, 2, 5, 10)))
    thousands(axis)
