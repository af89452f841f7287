"""Convergence, judged by means of figures over windows of iterations.

The mean over the last quarter of all iterations is compared with the mean over the quarter before. Figures are held as
sums over bins of iterations. Checkpoints store these sums, so that a resumed fit stops where an uninterrupted one does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

PREFIX = "bin:"
LAST, REPORTED = f"{PREFIX}last", f"{PREFIX}reported"
CHANGE, OBJECTIVE, SCORE = "counts", "objective", "score"


@dataclass(frozen=True)
class FlatRule:
    """Thresholds under which a figure counts as flat; chosen on the KOS corpus with 120 topics."""

    # Iterations of which a bin holds the sum; a figure is tested at the end of every second bin
    bin_iterations: int = 10
    first_iteration: int = 60  # No figure is flat before this iteration
    min_values: int = 4  # Values that a window needs
    # Relative difference of the two windows' means up to which a figure is flat
    max_change: Mapping[str, float] = field(default_factory=lambda: {CHANGE: 5e-2, OBJECTIVE: 2.5e-3, SCORE: 5e-4})
    # Standard errors of the difference up to which a figure is flat too, as noise alone may cause it
    standard_errors: float = 1.0


RULE = FlatRule()


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
                    key = f"{PREFIX}{name}:{(iteration - 1) // RULE.bin_iterations}:{power}"
                    self._sums[key] = self._sums.get(key, 0.0) + term

    def has(self, name: str) -> bool:
        """Return true if there is a value of a figure."""
        return any(key.startswith(f"{PREFIX}{name}:") for key in self._sums)

    def flat(self, name: str, iteration: int) -> bool:
        """Return true if a figure is flat after the iteration that was added last."""
        bins = iteration // RULE.bin_iterations
        if iteration % RULE.bin_iterations or iteration < RULE.first_iteration or bins % 2:
            return False
        width = max(bins // 4, 1)
        last, before = (self._window(name, bins - (k + 1) * width, bins - k * width) for k in (0, 1))
        if last is None or before is None:
            return False
        difference = abs(last[0] - before[0])
        noise = RULE.standard_errors * math.hypot(last[1], before[1])
        return difference <= max(RULE.max_change[name] * abs(before[0]), noise)

    def _window(self, name: str, first: int, end: int) -> tuple[float, float] | None:
        """Return the mean of a figure over some bins, and its standard error."""
        bins = range(max(first, 0), end)
        number, total, squares = (
            math.fsum(self._sums.get(f"{PREFIX}{name}:{index}:{power}", 0.0) for index in bins)
            for power in ("n", "x", "xx")
        )
        if number < RULE.min_values:
            return None
        mean = total / number
        return mean, math.sqrt(max(squares / number - mean * mean, 0.0) / number)

    def first_report(self) -> bool:
        """Return true at the first call, also over the resumptions of a run."""
        is_first = REPORTED not in self._sums
        self._sums[REPORTED] = 1.0
        return is_first
