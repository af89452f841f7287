"""Format and parse numbers of bytes, and rates of networks."""

from __future__ import annotations

import math
from collections.abc import Callable

from collapsium.storage.errors import OptionError

Counting = Callable[[int], None]

RATES = {"BIT": 1, "KBIT": 1e3, "MBIT": 1e6, "GBIT": 1e9, "TBIT": 1e12}
UNITS = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def size(count: float) -> str:
    """Format a number of bytes for people."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.5 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def parse_size(text: str | int, name: str = "memory") -> int:
    """Parse a number of bytes, such as ``750MB``, ``1.5GB`` or ``2GiB``."""
    written = str(text).strip().upper().replace(" ", "")
    number = written.rstrip("KMGTIB")
    unit = written[len(number) :] or "B"
    unit = unit if unit.endswith("B") else unit + "B"
    try:
        value = float(number) * UNITS[unit]
    except (ValueError, KeyError):
        raise OptionError(f"expected a size such as 750MB or 1.5GB, found {text!r}", name) from None
    if not 1 <= value < math.inf:
        raise OptionError(f"expected a size above zero, found {text!r}", name)
    return int(value)


def parse_rate(text: str | float, name: str = "link") -> float:
    """Parse a number of bits per second, such as ``100Mbit``, ``10Gbit`` or ``1 Gbit/s``."""
    written = str(text).strip().upper().replace(" ", "").removesuffix("/S")
    number = written.rstrip("KMGTBI")
    unit = written[len(number) :] or "BIT"
    try:
        value = float(number) * RATES[unit]
    except (ValueError, KeyError):
        raise OptionError(f"expected bits per second such as 100Mbit or 10Gbit, found {text!r}", name) from None
    if not 1 <= value < math.inf:
        raise OptionError(f"expected bits per second above zero, found {text!r}", name)
    return value


def rate(bits: float) -> str:
    """Format a number of bits per second for people."""
    return size(bits).replace("B", "bit") + "/s"


def silent(documents: int) -> None:
    """Ignore the number of documents."""
