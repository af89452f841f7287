"""The interface of plots, and the results that they draw."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collapsium.pipeline.workflows.compare.options import CompareOptions
from collapsium.pipeline.workflows.compare.tables import Row, Rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Results:
    """The results of a comparison."""

    options: CompareOptions  # Options of the comparison
    # Rows of the cells, and of other libraries and classifiers
    rows: Rows
    baselines: Rows
    series: Rows  # Iterations of the fits; see `collapsium.pipeline.workflows.compare.tables.SERIES`

    @property
    def classified(self) -> list[Row]:
        """The rows of families and classifiers that predict the field."""
        return [row for row in (*self.rows, *self.baselines) if row["classified"]]

    def series_of(self, cell: str) -> list[Row]:
        """Return the iterations of a cell's fits."""
        return [row for row in self.series if row["cell"] == cell]


class Plot(ABC):
    """A picture of a comparison's results."""

    name: str  # Name of its files, without their endings
    style: Mapping[str, object] = {}  # Matplotlib's settings under which it is drawn

    @abstractmethod
    def draw(self, results: Results) -> Figure | None:
        """Return a figure; None if there is nothing to show."""
