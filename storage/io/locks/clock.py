"""The clock and the pauses by which locks are watched and renewed."""

from __future__ import annotations

import time
from collections.abc import Callable

pause: Callable[[float], None] = time.sleep


def now() -> float:
    """Return the seconds of a clock that is never adjusted; on Linux it counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
