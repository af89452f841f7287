"""The interface of metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import pyarrow as pa

from collapsium.pipeline.workflows.compare.fits import CellFits, Resources
from collapsium.pipeline.workflows.compare.tables import Column, Row, Rows
from collapsium.pipeline.workflows.compare.targets import Target
from collapsium.storage.data_types import JsonObject


class Metric(ABC):
    """A measure of a cell's fits, with its fields of the row and its columns and definition in the report."""

    fields: Mapping[str, pa.DataType]  # Types of its fields of the table, by name
    definition: str  # Definitions of the fields, as items of a Markdown list

    @abstractmethod
    def measure(self, fits: CellFits, target: Target, resources: Resources) -> JsonObject:
        """Measure a cell with completed fits."""

    def require(self, target: Target) -> None:  # noqa: B027
        """Refuse a comparison whose metric cannot be measured, before the first fit."""

    def columns(self, rows: Rows) -> tuple[Column, ...]:  # noqa: ARG002
        """Return its columns of the report's table."""
        return ()

    def further_lines(self, rows: Rows, baselines: Rows) -> list[str]:  # noqa: ARG002
        """Return lines of the report below the table."""
        return []

    def further_tables(self, rows: Rows) -> dict[str, tuple[Rows, pa.Schema]]:  # noqa: ARG002
        """Return rows and schemas of further tables by file name; `rows` include baselines."""
        return {}


def best_of_families(rows: Rows) -> dict[str, Row]:
    """Return the row of each family whose perplexity is lowest."""
    best: dict[str, Row] = {}
    for row in rows:
        if row["family"] not in best or row["perplexity"] < best[row["family"]]["perplexity"]:
            best[row["family"]] = row
    return best
