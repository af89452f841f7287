"""Colours, panels and files that all plots share, where matplotlib is installed."""

from __future__ import annotations

import importlib.util
import io
import os
from typing import Any

from collapsium.storage.errors import MissingError, OptionError

# Okabe and Ito's colours, which people who see colours differently can tell apart; their yellow is too pale for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
PANEL = (4.6, 3.7)  # inches
ACROSS = 3  # panels side by side
DPI = 150  # of PNG
SALT = {"svg.hashsalt": "collapsium"}  # names within an SVG, the same in every process
LATE = 0.1  # share of the iterations whose scores lie before what is shown


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def picture_kind(path: str | os.PathLike[str], option: str | None = None) -> str:
    """Return ``png`` or ``svg``, by a picture's ending.

    Parameters
    ----------
    path : str or path-like
        The picture.
    option : str, optional
        The option that names it, for errors.

    Returns
    -------
    str
        Its kind.

    Raises
    ------
    OptionError
        It ends otherwise.
    MissingError
        There is no matplotlib to draw it.
    """
    named = "" if option is None else f"`{option}` "
    kind = os.fspath(path).rpartition(".")[2].lower()
    if kind not in ("png", "svg"):
        raise OptionError(f"{named}{os.fspath(path)}: expected a name that ends in .svg or .png")
    if not can_draw():
        raise MissingError(
            f"{named}{os.fspath(path)}: pictures need matplotlib, which is not there; pip install 'collapsium[plots]'"
        )
    return kind


def saved(figure: Any, kind: str, dpi: float = DPI) -> bytes:
    """Return a figure as a ``png`` or ``svg`` file; the same bytes for the same figure."""
    sink = io.BytesIO()
    # No dates, so that the same numbers give the same file.
    figure.savefig(sink, format=kind, dpi=dpi, metadata={"Date": None} if kind == "svg" else {})
    return sink.getvalue()


def new_panels(count: int, title: str, *, legend: bool = True) -> tuple[Any, list[Any]]:
    """Make a figure of so many panels, without a window, and with room for a legend; the last row may stay empty."""
    from matplotlib.figure import Figure

    across = min(count, ACROSS)
    down = -(-count // across)
    figure = Figure(figsize=(PANEL[0] * across + 2.6 * legend, PANEL[1] * down + 0.5), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left")
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for extra in axes[count:]:
        extra.set_visible(False)
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes[:count]


def thousands(axis: Any) -> None:
    """Write the numbers of an axis without decimals and with their thousands apart."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}".replace("-", "\N{MINUS SIGN}")))


def whole_numbers(axis: Any) -> None:
    """Mark whole numbers alone on an axis of counts, iterations or ranks, with their thousands apart."""
    from matplotlib.ticker import MaxNLocator

    # Where fewer ticks than `min_n_ticks` fall on whole numbers, the locator marks fractions.
    axis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1, steps=(1, 2, 5, 10)))
    thousands(axis)


def whole_steps(axes: Any) -> None:
    """Mark whole numbers alone on a logarithmic horizontal axis of counts."""
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high >= 100 * low else (1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    thousands(axes.xaxis)
