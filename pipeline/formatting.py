"""Formatting of numbers, durations, curves and counts for people."""

from __future__ import annotations

import math
from collections.abc import Mapping

# Characters of sparklines, from low to high
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
MINUS = "\N{MINUS SIGN}"


def number(value: float, digits: int = 4) -> str:
    """Format a number to `digits` significant digits, with thousands separated: ``-7.140``, ``12,345``, ``1.2e-05``.

    Integers are exact, and floats have all their digits, so that -6.000 beside -6.123 is not -6.
    """
    if not math.isfinite(value):
        return "–"
    if isinstance(value, int) or value == 0 or abs(value) >= 10**digits:
        text = f"{value:,.0f}"
    elif abs(value) >= 1e-4:
        places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
        text = f"{value:,.{places}f}"
    else:
        text = f"{value:.{max(digits - 2, 1)}g}"
    return text.replace("-", MINUS)


def percent(share: float) -> str:
    """Format a share: ``12.3%``, or ``<0.1%`` if it is smaller."""
    return "<0.1%" if 0 < share < 0.001 else f"{share:.1%}"


def times(factor: float) -> str:
    """Format a factor: ``0.4``, ``1.7``, ``23``, ``>999``."""
    return f"{factor:.1f}" if factor < 9.95 else f"{factor:.0f}" if factor < 999.5 else ">999"


def duration(seconds: float) -> str:
    """Format a duration: ``12.3 s``, ``4 min 5 s``, ``2 h 10 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def duration_text(seconds: float) -> str:
    """Return a duration: ``40 s``, ``5 min``, ``2 h 05 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def quantity(number: float) -> str:
    """Return a number with three significant digits: ``950``, ``12.3k``, ``4.5M``."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def sparkline(values: list[float], width: int, *, ascii_only: bool = False) -> str:
    """Return a curve as a line of text."""
    blocks = ASCII_BLOCKS if ascii_only else BLOCKS
    if not values or width < 1:
        return ""
    count = min(width, len(values))
    selected = [values[(number + 1) * len(values) // count - 1] for number in range(count)]
    low, span = min(selected), max(selected) - min(selected)
    return "".join(blocks[int((value - low) / span * (len(blocks) - 1)) if span else 0] for value in selected)


def counted(number: int, noun: str) -> str:
    """Return a number with a noun: ``1 shard`` or ``4 shards``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def sample_text(share: float) -> str:
    """Return the size of a sample of documents: ``1/8 of the documents``."""
    return f"1/{1.0 / share:.0f} of the documents"


def plain(text: str) -> str:
    """Return a text without control characters, which words and labels of a corpus may contain."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def shortened(text: str, letters: int) -> str:
    """Return a text without control characters, cut to at most `letters` characters, if possible between words."""
    text = plain(text)
    if len(text) <= letters:
        return text
    words = text[:letters].rpartition(" ")[0].rstrip()
    return (words if len(words) > letters / 2 else text[: letters - 1]) + "…"


def shown_options(options: Mapping[str, object]) -> dict[str, object]:
    """Return recorded options for people, with the size of a table of weights in its place."""
    table = options.get("weights")
    if not isinstance(table, Mapping):
        return dict(options)
    return {**options, "weights": f"a table of {len(table['words']):,} words"}
