"""Assign labels and covariates of side files to documents, by order or by id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.corpus.list_columns import union
from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.errors import InputError
from collapsium.storage.readers.guesses import Guess
from collapsium.storage.short_repr import ShortRepr


@dataclass(frozen=True, repr=False)
class Side(ShortRepr):
    """The labels and covariates of one side file."""

    path: str  # The file
    ids: pa.Array | None  # Unique id of each row; None if row d belongs to document d
    columns: dict[str, pa.Array]  # ``labels`` as (field, value) lists, and the covariates
    guesses: tuple[Guess, ...] = ()  # Texts that were read as missing values

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def places(self, ids: pa.Array, first: int) -> pa.Array:
        """Return the row of each document, null if it has none; `first` is the number of the first document."""
        if self.ids is not None:
            return pc.index_in(ids, value_set=self.ids)
        rows = np.arange(first, first + len(ids))
        return pa.array(rows, mask=rows >= len(self))


class Sides:
    """Several side files, with a record of the rows that documents have used."""

    def __init__(
        self,
        files: Sequence[Side],
        further: Mapping[str, pa.DataType] | None = None,
        guesses: Sequence[Guess] = (),
    ) -> None:
        self.guesses = tuple(guesses)
        self.files, self._further = tuple(files), dict(further or {})
        self._seen = [np.zeros(0 if side.ids is None else len(side.ids), dtype=bool) for side in files]

    @property
    def columns(self) -> dict[str, pa.DataType]:
        """Return the additional columns of documents with their types."""
        columns = dict(self._further)
        for side in self.files:
            columns.update({name: LABELS if name == "labels" else pa.float64() for name in side.columns})
        return columns

    @property
    def by_order(self) -> bool:
        """True if the rows of any file follow the order of the documents."""
        return any(side.ids is None for side in self.files)

    def of(self, ids: pa.Array, first: int) -> dict[str, pa.Array]:
        """Return the labels and covariates of documents, and record the rows that were used."""
        columns: dict[str, pa.Array] = {name: pa.nulls(len(ids), kind) for name, kind in self.columns.items()}
        for side, seen in zip(self.files, self._seen, strict=True):
            places = side.places(ids, first)
            if side.ids is not None:
                seen[np.asarray(places.drop_null(), dtype=np.int64)] = True
            taken = {name: column.take(places) for name, column in side.columns.items()}
            columns.update(merged({name: columns[name] for name in taken}, taken))
        return merged(columns, {})

    def judge(self, documents: int) -> int:
        """Return the number of unmatched rows after the last document; raise an error if a file does not fit."""
        unmatched = 0
        for side, seen in zip(self.files, self._seen, strict=True):
            if side.ids is None:
                if len(side) != documents:
                    raise InputError(
                        side.path, f"expected {documents:,} lines, one for each document, found {len(side):,}"
                    )
                continue
            if not seen.any():
                some = ", ".join(map(repr, side.ids.slice(0, 3).to_pylist())) or "none"
                raise InputError(
                    side.path, f"expected ids of the documents, found none among {len(side):,} (such as {some}); "
                    "`id` FIELD names their field"
                )  # fmt: skip
            unmatched += int((~seen).sum())
        return unmatched


def merged(own: Mapping[str, pa.Array], other: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Return the merged columns of the same documents."""
    columns = dict(own)
    for name, column in other.items():
        if name not in columns:
            columns[name] = column
        elif name == "labels":
            columns[name] = union([columns[name], column], len(column))
        else:
            columns[name] = pc.coalesce(columns[name], column)
    if "labels" in columns and columns["labels"].null_count:
        columns["labels"] = union([columns["labels"]], len(columns["labels"]))
    return columns
