"""Convergence, judged by means of figures over windows of iterations.

The mean over the last quarter of all iterations is compared with the mean over the quarter before. Figures are held as
sums over bins of iterations. Checkpoints store these sums, so that a resumed fit stops where an uninterrupted one does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

PREFIX = "bin:"
LAST, REPORTED = f"{PREFIX}last", f"{PREFIX}reported"
CHANGE, OBJECTIVE, SCORE = "counts", "objective", "score"


# Thresholds under which a figure counts as flat; chosen on the KOS corpus with 120 topics
BIN_ITERATIONS = 10  # Iterations of which a bin holds the sum; a figure is tested at the end of every second bin
FIRST_ITERATION = 60  # No figure is flat before this iteration
MIN_VALUES = 4  # Values that a window needs
# Relative difference of the two windows' means up to which a figure is flat
MAX_CHANGE = {CHANGE: 5e-2, OBJECTIVE: 2.5e-3, SCORE: 5e-4}
# Standard errors of the difference up to which a figure is flat too, as noise alone may cause it
STANDARD_ERRORS = 1.0


class Windows:
    """Sums of figures over bins of iterations."""

    def __init__(self, sums: Mapping[str, float] | None = None) -> None:
        self._sums = {name: value for name, value in (sums or {}).items() if name.startswith(PREFIX)}

    def record(self) -> dict[str, float]:
        """Return all sums, for a checkpoint."""
        return dict(self._sums)

    def add(self, iteration: int, figures: Mapping[str, float | None]) -> None:
        """Add the figures of an iteration, unless they were added before."""
        if iteration <= self._sums.get(LAST, 0.0):
            return
        self._sums[LAST] = float(iteration)
        for name, value in figures.items():
            if value is not None and math.isfinite(value):
                for power, term in (("n", 1.0), ("x", value), ("xx", value * value)):
                    key = f"{PREFIX}{name}:{(iteration - 1) // BIN_ITERATIONS}:{power}"
                    self._sums[key] = self._sums.get(key, 0.0) + term

    def has(self, name: str) -> bool:
        """Return true if there is a value of a figure."""
        return any(key.startswith(f"{PREFIX}{name}:") for key in self._sums)

    def flat(self, name: str, iteration: int) -> bool:
        """Return true if a figure is flat after the iteration that was added last."""
        bins = iteration // BIN_ITERATIONS
        if iteration % BIN_ITERATIONS or iteration < FIRST_ITERATION or bins % 2:
            return False
        width = max(bins // 4, 1)
        last, before = (self._window(name, bins - (k + 1) * width, bins - k * width) for k in (0, 1))
        if last is None or before is None:
            return False
        difference = abs(last[0] - before[0])
        noise = STANDARD_ERRORS * math.hypot(last[1], before[1])
        return difference <= max(MAX_CHANGE[name] * abs(before[0]), noise)

    def _window(self, name: str, first: int, end: int) -> tuple[float, float] | None:
        """Return the mean of a figure over some bins, and its standard error."""
        bins = range(max(first, 0), end)
        number, total, squares = (
            math.fsum(self._sums.get(f"{PREFIX}{name}:{index}:{power}", 0.0) for index in bins)
            for power in ("n", "x", "xx")
        )
        if number < MIN_VALUES:
            return None
        mean = total / number
        return mean, math.sqrt(max(squares / number - mean * mean, 0.0) / number)

    def first_report(self) -> bool:
        """Return true at the first call, also over the resumptions of a run."""
        is_first = REPORTED not in self._sums
        self._sums[REPORTED] = 1.0
        return is_first
