"""Formatting of numbers, durations, curves and counts for people."""

from __future__ import annotations

from collections.abc import Mapping

# Characters of sparklines, from low to high
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*#@"


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


def shown_options(options: Mapping[str, object]) -> dict[str, object]:
    """Return recorded options for people, with the size of a table of weights in its place."""
    table = options.get("weights")
    if not isinstance(table, Mapping):
        return dict(options)
    return {**options, "weights": f"a table of {len(table['words']):,} words"}
