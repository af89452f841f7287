"""Decide from means over windows of iterations whether a fit still changes.

The last quarter of all iterations is compared with the quarter before. Figures are held as sums over bins of ten
iterations, which checkpoints keep, so that a resumed fit ends where one that was never stopped does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

BIN = 10
PREFIX = "bin:"
TOLD = f"{PREFIX}told"
CHANGE, OBJECTIVE, SCORE = "counts", "objective", "score"


@dataclass(frozen=True)
class FlatRule:
    """When a figure is taken to be flat; the shares were chosen on KOS with 120 topics (README)."""

    first: int = 60
    """Iterations before which nothing is flat."""
    least_values: int = 4
    """Values that a window needs."""
    shares: Mapping[str, float] = field(default_factory=lambda: {CHANGE: 5e-2, OBJECTIVE: 2.5e-3, SCORE: 5e-4})
    """Relative difference of the two windows' means below which a figure is flat."""
    errors: float = 1.0
    """Standard errors of the difference below which it is flat too: what noise would do."""


RULE = FlatRule()


class Windows:
    """Sums of figures over bins of iterations.

    Parameters
    ----------
    sums : mapping of str to float, optional
        As `record` gave them.
    """

    def __init__(self, sums: Mapping[str, float] | None = None) -> None:
        self._sums = {name: value for name, value in (sums or {}).items() if name.startswith(PREFIX)}

    def record(self) -> dict[str, float]:
        """Return all sums, for a checkpoint."""
        return dict(self._sums)

    def add(self, iteration: int, figures: Mapping[str, float | None]) -> None:
        """Add the figures of an iteration; one that was added before is left as it is."""
        if iteration <= self._sums.get(f"{PREFIX}last", 0.0):
            return
        self._sums[f"{PREFIX}last"] = float(iteration)
        for name, value in figures.items():
            if value is not None and math.isfinite(value):
                for part, term in (("n", 1.0), ("x", value), ("xx", value * value)):
                    key = f"{PREFIX}{name}:{(iteration - 1) // BIN}:{part}"
                    self._sums[key] = self._sums.get(key, 0.0) + term

    def has(self, name: str) -> bool:
        """Tell whether there is a value of a figure."""
        return any(key.startswith(f"{PREFIX}{name}:") for key in self._sums)

    def flat(self, name: str, iteration: int) -> bool:
        """Tell whether a figure is flat after an iteration; it is looked at after every twentieth.

        Parameters
        ----------
        name : str
            The figure.
        iteration : int
            The last one that was added.

        Returns
        -------
        bool
            False where there are too few values.
        """
        bins = iteration // BIN
        if iteration % BIN or iteration < RULE.first or bins % 2:
            return False
        width = max(bins // 4, 1)
        last, before = (self._window(name, bins - (k + 1) * width, bins - k * width) for k in (0, 1))
        if last is None or before is None:
            return False
        difference = abs(last[0] - before[0])
        noise = RULE.errors * math.hypot(last[1], before[1])
        return difference <= max(RULE.shares[name] * abs(before[0]), noise)

    def _window(self, name: str, first: int, end: int) -> tuple[float, float] | None:
        """Return the mean of a figure over some bins, and its standard error."""
        bins = range(max(first, 0), end)
        number, total, squares = (
            math.fsum(self._sums.get(f"{PREFIX}{name}:{one}:{part}", 0.0) for one in bins) for part in ("n", "x", "xx")
        )
        if number < RULE.least_values:
            return None
        mean = total / number
        return mean, math.sqrt(max(squares / number - mean * mean, 0.0) / number)

    def once(self) -> bool:
        """Tell whether this was not asked before, in this fit or in the one that it goes on with."""
        fresh = TOLD not in self._sums
        self._sums[TOLD] = 1.0
        return fresh
