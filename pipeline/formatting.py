"""Numbers and times as people say them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


BLOCKS, PLAIN = "▁▂▃▄▅▆▇█", "_.-=+*#@"


def lasting(seconds: float) -> str:
    """Return a time as people say it: ``40 s``, ``5 min``, ``2 h 05 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def quantity(number: float) -> str:
    """Return a number in three digits or so: ``950``, ``12.3k``, ``4.5M``."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def sparkline(values: list[float], width: int, *, ascii_only: bool = False) -> str:
    """Draw a curve in a line of text.

    Parameters
    ----------
    values : list of float
        The curve, evenly spaced.
    width : int
        Letters, at most.
    ascii_only : bool, optional
        Whether the terminal knows no others.

    Returns
    -------
    str
        A letter for each value or, where there are too many, for the last of each run of them.
    """
    signs = PLAIN if ascii_only else BLOCKS
    if not values or width < 1:
        return ""
    count = min(width, len(values))
    shown = [values[(place + 1) * len(values) // count - 1] for place in range(count)]
    low, span = min(shown), max(shown) - min(shown)
    return "".join(signs[int((value - low) / span * (len(signs) - 1)) if span else 0] for value in shown)


def counted(number: int, what: str) -> str:
    """Return ``1 shard`` or ``4 shards``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def plain(text: str) -> str:
    """Return a text without what would steer a terminal: words and labels are anybody's."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
