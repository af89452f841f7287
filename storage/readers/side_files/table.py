"""What side files say of documents: labels and covariates, by the documents' order or by their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.corpus.label_column import union
from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.errors import InputError
from collapsium.storage.short_repr import ShortRepr


@dataclass(frozen=True, repr=False)
class Side(ShortRepr):
    """What one side file says.

    Attributes
    ----------
    path : str
        The file.
    ids : pyarrow.Array of string or None
        Whom each row is of, each id once; None where row d is of document d.
    columns : dict of str to pyarrow.Array
        ``labels`` as (field, value) lists, and covariates.
    """

    path: str
    ids: pa.Array | None
    columns: dict[str, pa.Array]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def places(self, ids: pa.Array, first: int) -> pa.Array:
        """Return each document's row, null where it has none; `first` is the number of the first document."""
        if self.ids is not None:
            return pc.index_in(ids, value_set=self.ids)
        rows = np.arange(first, first + len(ids))
        return pa.array(rows, mask=rows >= len(self))


class Sides:
    """Side files together, and which of their rows were found.

    Parameters
    ----------
    files : sequence of Side
        The files.
    further : mapping of str to pyarrow.DataType, optional
        Columns that documents have, whether or not a file has something for them.
    """

    def __init__(self, files: Sequence[Side], further: Mapping[str, pa.DataType] | None = None) -> None:
        self.files, self._further = tuple(files), dict(further or {})
        self._seen = [np.zeros(0 if side.ids is None else len(side.ids), dtype=bool) for side in files]

    @property
    def columns(self) -> dict[str, pa.DataType]:
        """The columns of documents that they give, with their types."""
        found = dict(self._further)
        for side in self.files:
            found.update({name: LABELS if name == "labels" else pa.float64() for name in side.columns})
        return found

    @property
    def by_order(self) -> bool:
        """Whether a file's rows are of the documents in their order."""
        return any(side.ids is None for side in self.files)

    def of(self, ids: pa.Array, first: int) -> dict[str, pa.Array]:
        """Look up what the files say of documents, and remember which rows were found.

        Parameters
        ----------
        ids : pyarrow.Array of string
            The documents' ids.
        first : int
            Number of the first of them among all documents that are read.

        Returns
        -------
        dict of str to pyarrow.Array
            All of `columns`: no label is an empty list, no covariate null.
        """
        found: dict[str, pa.Array] = {name: pa.nulls(len(ids), kind) for name, kind in self.columns.items()}
        for side, seen in zip(self.files, self._seen, strict=True):
            places = side.places(ids, first)
            if side.ids is not None:
                seen[np.asarray(places.drop_null(), dtype=np.int64)] = True
            taken = {name: column.take(places) for name, column in side.columns.items()}
            found.update(merged({name: found[name] for name in taken}, taken))
        return merged(found, {})

    def judge(self, documents: int) -> int:
        """Compare the files with the documents, when all were looked up.

        Parameters
        ----------
        documents : int
            How many documents there were.

        Returns
        -------
        int
            Rows whose id no document has.

        Raises
        ------
        InputError
            A file does not have a line for each document, or none of its ids is a document's.
        """
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


def merged(own: Mapping[str, pa.Array], beside: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Put columns of the same documents together.

    Parameters
    ----------
    own, beside : mapping of str to pyarrow.Array
        Columns; of the same name are labels that are united, or covariates, of which that of `own` goes first.

    Returns
    -------
    dict of str to pyarrow.Array
        All columns.
    """
    found = dict(own)
    for name, column in beside.items():
        if name not in found:
            found[name] = column
        elif name == "labels":
            found[name] = union([found[name], column], len(column))
        else:
            found[name] = pc.coalesce(found[name], column)
    if "labels" in found and found["labels"].null_count:
        found["labels"] = union([found["labels"]], len(found["labels"]))
    return found
