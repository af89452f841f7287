"""Frames whose texts notebooks show complete; importing this module needs pandas."""

from __future__ import annotations

import pandas as pd


class Table(pd.DataFrame):  # type: ignore[misc]
    """A data frame like any other; only its view in a notebook does not cut words and passages at 50 characters."""

    @property
    def _constructor(self) -> type[Table]:
        return Table

    def _repr_html_(self) -> str:
        """Return the table with complete texts and the rows that pandas shows."""
        rows = pd.get_option("display.max_rows")
        long = rows is not None and len(self) > rows
        with pd.option_context("display.max_colwidth", None):
            shown = pd.get_option("display.min_rows") if long else rows
            columns = pd.get_option("display.max_columns")
            return str(self.to_html(max_rows=shown, max_cols=columns, show_dimensions=long, notebook=True))
