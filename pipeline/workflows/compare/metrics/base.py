"""The interface of metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from collapsium.pipeline.workflows.compare.fits import CellFits, Resources
from collapsium.pipeline.workflows.compare.tables import Column, Row, Rows
from collapsium.pipeline.workflows.compare.targets import Target


class Metric(ABC):
    """A measure of a cell's fits: what it adds to a row, and how the report shows and defines it.

    Attributes
    ----------
    fields : mapping
        Types of the fields that it adds to the table, by name.
    definition : str
        What they are, as items of a Markdown list.
    """

    fields: Mapping[str, pa.DataType]
    definition: str

    @abstractmethod
    def measure(self, fits: CellFits, target: Target, resources: Resources) -> dict[str, Any]:
        """Measure a cell whose fits are all at their ends.

        Parameters
        ----------
        fits : CellFits
            The fits.
        target : Target
            What they are scored on.
        resources : Resources
            Where it is computed.

        Returns
        -------
        dict
            Its fields of the cell's row, and what else the cell's record keeps.
        """

    def columns(self, rows: Rows) -> tuple[Column, ...]:  # noqa: ARG002
        """Return its columns of the report's table."""
        return ()

    def further_lines(self, rows: Rows, baselines: Rows) -> list[str]:  # noqa: ARG002
        """Return what the report says of it below the table."""
        return []

    def further_tables(self, rows: Rows) -> dict[str, tuple[Rows, pa.Schema]]:  # noqa: ARG002
        """Return rows and schemas of tables of its own, by the name of their file; `rows` are of baselines too."""
        return {}


def best_of_families(rows: Rows) -> dict[str, Row]:
    """Return the row of each family whose perplexity is lowest."""
    best: dict[str, Row] = {}
    for row in rows:
        if row["family"] not in best or row["perplexity"] < best[row["family"]]["perplexity"]:
            best[row["family"]] = row
    return best
