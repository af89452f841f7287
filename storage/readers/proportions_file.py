"""Read proportions of documents from Parquet files, written by `infer` or any program, in bounded memory.

A file has a row for each document. Its topics are the columns ``topic_0``, ``topic_1`` and so on, a column of lists,
any columns of numbers, or sparse lists ``topics`` and ``proportions``. The column ``id`` names the documents; without
it, the rows follow the order of the corpus.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.corpus.parquet import FAULTS
from collapsium.storage.errors import InputError, reason_of
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.parquet import BoundedFile
from collapsium.storage.printable import ShortRepr
from collapsium.storage.readers.base import open_input, reading


@dataclass(frozen=True, repr=False)
class DocumentProportions(ShortRepr):
    """Proportions of documents, sparse."""

    # Offsets of the documents: document d has the entries ``offsets[d]`` to ``offsets[d + 1] - 1``, or none if its
    # proportions are unknown; int64 (documents + 1,)
    offsets: Ints
    topics: npt.NDArray[np.int32]  # Topic of each entry; int32 (entries,)
    # Proportion of each entry, positive; they sum to 1 in each document; float32 (entries,)
    shares: npt.NDArray[np.float32]
    width: int  # Number of topics: larger than each topic

    @property
    def documents(self) -> int:
        """Number of documents."""
        return self.offsets.size - 1

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Documents that have proportions, as true, shape (documents,)."""
        return np.diff(self.offsets) > 0

    def take(self, places: Ints) -> DocumentProportions:
        """Return the documents at some places; a place of -1 is a document without proportions."""
        lengths = np.where(places < 0, 0, np.diff(self.offsets)[places]) if self.documents else np.zeros_like(places)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        starts = self.offsets[:-1][places] if self.documents else offsets[:-1]
        entries = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - starts, lengths)
        return DocumentProportions(offsets, self.topics[entries], self.shares[entries], self.width)

    def totals(self) -> npt.NDArray[np.float64]:
        """Return the sum of each topic's proportions over the documents, shape (width,)."""
        sums = np.bincount(self.topics, weights=self.shares, minlength=self.width)
        totals: npt.NDArray[np.float64] = np.asarray(sums, dtype=np.float64)
        return totals

    def concentrations(self) -> npt.NDArray[np.float64]:
        """Return the sum of the squared proportions of each document, shape (documents,); 0 for none."""
        owner = np.repeat(np.arange(self.documents), np.diff(self.offsets))
        squares = self.shares.astype(np.float64) ** 2
        sums = np.bincount(owner, weights=squares, minlength=self.documents)
        concentrations: npt.NDArray[np.float64] = np.asarray(sums, dtype=np.float64)
        return concentrations

    def in_columns(self, columns: Ints) -> DocumentProportions:
        """Return the proportions with renumbered topics."""
        owner, topics = np.repeat(np.arange(self.documents), np.diff(self.offsets)), columns[self.topics]
        retained = topics >= 0
        return sparse_proportions(
            owner[retained], topics[retained], self.shares[retained], self.documents, int(columns.max(initial=-1)) + 1
        )


def sparse_proportions(
    owner: Ints, topics: npt.NDArray[np.integer], shares: npt.NDArray[np.floating], documents: int, width: int
) -> DocumentProportions:
    """Return proportions from the entries of documents, scaled to a sum of 1."""
    positive = shares > 0.0
    owner, topics, weights = owner[positive], topics[positive], shares[positive].astype(np.float64)
    totals = np.bincount(owner, weights=weights, minlength=documents)
    scaled = (weights / totals[owner]).astype(np.float32)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=documents))]).astype(np.int64)
    return DocumentProportions(offsets, topics.astype(np.int32), scaled, width)


Ints = npt.NDArray[np.int64]

ID, TOPICS, PROPORTIONS, SEGMENT = "id", "topics", "proportions", "segment"
FORMATS = (
    "expected `id` and the proportions of a document in each row: in columns topic_0, topic_1 and so on, in a column "
    "of lists, or in the lists `topics` and `proportions` that `infer` writes"
)
SUM_TOLERANCE = 0.01  # Largest distance of a row's sum from 1, which allows for rounded proportions
# Numbers of topics are smaller: sums over the documents have an entry for each, and a small file may name any
MAX_TOPIC = 1 << 20
HASHED = 1 << 22  # Bytes that are hashed at a time
TOPIC_COLUMN = re.compile("topic_([0-9]{1,9})")


@dataclass(frozen=True, repr=False)
class ProportionsFile(ShortRepr):
    """The contents of a file of proportions."""

    path: str  # The file
    ids: pa.Array | None  # Id of each row's document; None if the rows follow the order of the corpus
    proportions: DocumentProportions  # The rows

    def places(self, ids: pa.Array) -> Ints:
        """Return the row of each document by its id, -1 for none."""
        return np.asarray(pc.fill_null(pc.index_in(ids, value_set=self.ids), -1), dtype=np.int64)

    def require_documents(self, documents: int) -> None:
        """Raise `InputError` unless there are as many rows without ids as the corpus has documents."""
        rows = self.proportions.documents
        if self.ids is None and rows != documents:
            raise InputError(
                self.path,
                f"expected {documents:,} rows, one for each document of the corpus in its order, found {rows:,}; with "
                f"a column `{ID}`, rows may be fewer and in any order",
            )


def digest_of_file(path: str) -> str:
    """Return the SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    for file in _files_of(path):
        with reading(file), open_input(file) as handle:
            while piece := handle.read(HASHED):
                digest.update(piece)
    return digest.hexdigest()


def _files_of(path: str) -> list[str]:
    """Return the Parquet files of a folder in the order of their names, or the path itself."""
    folder = Folder(path)
    names = [name for name in folder.names() if name.endswith(".parquet")] if folder.is_folder() else []
    return [f"{folder.url}/{name}" for name in names] or [path]


def read_proportions(path: str) -> ProportionsFile:
    """Read and check a Parquet file of proportions, or a folder of such files."""
    parts, ids, row, first_layout = list[DocumentProportions](), list[pa.Array](), 0, None
    for name in _files_of(path):
        with reading(name), open_input(name) as handle:
            try:
                file = BoundedFile(handle)
                layout = _Layout.of(name, file.schema)
                first_layout = first_layout or layout
                if layout.columns != first_layout.columns:
                    raise InputError(name, f"expected the columns of {first_layout.path}")
                for batch in file.batches(layout.columns):
                    if layout.has_ids:
                        ids.append(_ids(name, batch.column(batch.schema.get_field_index(ID)), row))
                    parts.append(layout.rows(batch, row))
                    if layout.kind == "lists" and parts[-1].width != parts[0].width:
                        text = f"expected {parts[0].width} proportions, as other rows have, found {parts[-1].width}"
                        raise InputError(name, text, _where(layout.names[0], row))
                    row += batch.num_rows
            except InputError:
                raise
            except FAULTS as error:
                raise InputError(name, f"expected a Parquet file of proportions ({reason_of(error)})") from None
    lengths = [np.diff(part.offsets) for part in parts]
    proportions = DocumentProportions(
        np.concatenate([[0], np.cumsum(np.concatenate([np.zeros(0, np.int64), *lengths]))]).astype(np.int64),
        np.concatenate([np.zeros(0, np.int32), *(part.topics for part in parts)]),
        np.concatenate([np.zeros(0, np.float32), *(part.shares for part in parts)]),
        max((part.width for part in parts), default=0),
    )
    if not proportions.known.any():
        raise InputError(path, "expected proportions of at least one document, found none")
    if not ids:
        return ProportionsFile(path, None, proportions)
    known = pa.concat_arrays(ids)
    codes = np.asarray(known.dictionary_encode().indices, dtype=np.int64)
    # Codes are assigned in the order of first occurrence, so the first repeated code is no larger than an earlier one.
    again = np.flatnonzero(np.diff(np.maximum.accumulate(codes)) == 0)
    if again.size:
        row = int(again[0]) + 1
        before = int(np.flatnonzero(codes == codes[row])[0])
        raise InputError(path, f"the id {known[row].as_py()!r} already occurs in row {before + 1:,}", _where(ID, row))
    return ProportionsFile(path, known, proportions)


def _ids(path: str, column: pa.Array, first: int) -> pa.Array:
    """Return a column of ids as strings."""
    if column.null_count:
        row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise InputError(path, "expected an id, found none", _where(ID, first + row))
    types = pa.types
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    if not (types.is_integer(column.type) or any(is_text(column.type) for is_text in texts)):
        raise InputError(path, f"expected texts or whole numbers, found {column.type}", f"column '{ID}'")
    return column.cast(pa.string())


def _where(column: str, row: int) -> str:
    return f"column {column!r}, row {row + 1:,}"


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


@dataclass(frozen=True)
class _Layout:
    """Columns of a file: sparse lists, a column of dense lists, or a column for each topic."""

    path: str  # The file
    names: tuple[str, ...]  # Columns of proportions; of sparse lists `TOPICS` first
    has_ids: bool  # Whether there is a column of ids
    kind: str  # The layout

    @classmethod
    def of(cls, path: str, schema: pa.Schema) -> _Layout:
        """Return the layout of a file."""
        names, has_ids = list(schema.names), ID in schema.names
        again = next((name for number, name in enumerate(names) if name in names[:number]), None)
        if again is not None:
            raise InputError(path, "expected each column once, found it twice", f"column {again[:100]!r}")
        if SEGMENT in names:
            raise InputError(
                path,
                "expected a row for each document, found segments; infer without `segments`",
                f"column '{SEGMENT}'",
            )
        if TOPICS in names and PROPORTIONS in names:
            for name in (TOPICS, PROPORTIONS):
                if not _is_list(schema.field(name).type):
                    raise InputError(path, f"expected lists, found {schema.field(name).type}", f"column '{name}'")
            return cls(path, (TOPICS, PROPORTIONS), has_ids, "sparse")
        numbered = {int(match[1]): match[0] for match in map(TOPIC_COLUMN.fullmatch, names) if match}
        if numbered:
            gap = next((number for number in range(len(numbered)) if number not in numbered), None)
            if gap is not None:
                raise InputError(path, f"expected a column topic_{gap}, as there is topic_{max(numbered)}")
            return cls(path, tuple(numbered[number] for number in range(len(numbered))), has_ids, "columns")
        lists = [name for name in names if name != ID and _is_list(schema.field(name).type)]
        if PROPORTIONS in lists or len(lists) == 1:
            return cls(path, (PROPORTIONS if PROPORTIONS in lists else lists[0],), has_ids, "lists")
        numbers = tuple(name for name in names if name != ID and _is_number(schema.field(name).type))
        if lists or not numbers:
            raise InputError(path, f"{FORMATS}; found the columns {', '.join(map(repr, names[:20])) or 'none'}")
        return cls(path, numbers, has_ids, "columns")

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        return [*((ID,) if self.has_ids else ()), *self.names]

    def rows(self, batch: pa.RecordBatch, first: int) -> DocumentProportions:
        """Return and check the rows of a batch; `first` is the number of its first row."""
        columns = [batch.column(batch.schema.get_field_index(name)) for name in self.names]
        if self.kind == "columns":
            rows, width = len(columns[0]), len(columns)
            values = np.empty((rows, width))
            for number, (name, column) in enumerate(zip(self.names, columns, strict=True)):
                values[:, number] = self._numbers(column, name)
                self._require_proportions(values[:, number], np.arange(rows), name, first)
            owner = np.repeat(np.arange(rows), width)
            self._require_sums(owner, values.ravel(), rows, first)
            return sparse_proportions(owner, np.tile(np.arange(width), rows), values.ravel(), rows, width)
        owner, values = self._flat(columns[-1], self.names[-1], first)
        self._require_proportions(values, owner, self.names[-1], first)
        if self.kind == "sparse":
            return self._of_pairs(columns[0], owner, values, first)
        lengths = np.bincount(owner, minlength=len(columns[0]))
        width = int(lengths.max(initial=0))
        short = np.flatnonzero(lengths != width)
        if short.size:
            row = int(short[0])
            raise InputError(
                self.path,
                f"expected {width} proportions, as other rows have, found {lengths[row]}",
                _where(self.names[0], first + row),
            )
        topics = np.arange(owner.size) - owner * width
        self._require_sums(owner, values, len(columns[0]), first)
        return sparse_proportions(owner, topics, values, len(columns[0]), width)

    def _of_pairs(
        self, column: pa.Array, owner: Ints, values: npt.NDArray[np.float64], first: int
    ) -> DocumentProportions:
        """Return sparse rows; small proportions may have been left out, so that their sum may be below 1."""
        topic_owner, numbers = self._flat(column, TOPICS, first)
        rows = len(column)
        differs = np.flatnonzero(np.bincount(topic_owner, minlength=rows) != np.bincount(owner, minlength=rows))
        if differs.size:
            raise InputError(
                self.path, f"expected as many topics as proportions in row {first + int(differs[0]) + 1:,}"
            )
        wrong = np.flatnonzero((numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= MAX_TOPIC))
        if wrong.size:
            at = int(wrong[0])
            raise InputError(
                self.path, f"expected numbers of topics, found {numbers[at]:g}", _where(TOPICS, first + int(owner[at]))
            )
        topics = numbers.astype(np.int64)
        order = np.lexsort((topics, owner))
        again = np.flatnonzero((np.diff(owner[order]) == 0) & (np.diff(topics[order]) == 0))
        if again.size:
            at = int(order[again[0]])
            raise InputError(self.path, f"the topic {topics[at]} occurs twice", _where(TOPICS, first + int(owner[at])))
        self._require_sums(owner, values, rows, first, complete=False)
        return sparse_proportions(owner[order], topics[order], values[order], rows, int(topics.max(initial=-1)) + 1)

    def _flat(self, column: pa.Array, name: str, first: int) -> tuple[Ints, npt.NDArray[np.float64]]:
        """Return the row of each value of a column of lists, and the values."""
        if column.null_count:
            row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
            raise InputError(self.path, "expected a list, found none", _where(name, first + row))
        owner = np.asarray(pc.list_parent_indices(column), dtype=np.int64)
        flat = pc.list_flatten(column)
        return owner, self._numbers(flat, name)

    def _numbers(self, column: pa.Array, name: str) -> npt.NDArray[np.float64]:
        """Return numbers as double precision; NaN where they are missing."""
        if not _is_number(column.type):
            raise InputError(self.path, f"expected numbers, found {column.type}", f"column {name!r}")
        return np.asarray(pc.fill_null(column.cast(pa.float64()), np.nan), dtype=np.float64)

    def _require_proportions(self, values: npt.NDArray[np.float64], owner: Ints, name: str, first: int) -> None:
        """Raise `InputError` for a value that is missing, not finite or negative."""
        wrong = np.flatnonzero(~((values >= 0.0) & (values < np.inf)))
        if wrong.size:
            at = int(wrong[0])
            value = "none" if np.isnan(values[at]) else f"{values[at]:g}"
            raise InputError(
                self.path, f"expected a proportion of 0 or more, found {value}", _where(name, first + int(owner[at]))
            )

    def _require_sums(
        self, owner: Ints, values: npt.NDArray[np.float64], rows: int, first: int, *, complete: bool = True
    ) -> None:
        """Raise `InputError` for a row that does not add up to 1; an incomplete row may add up to less."""
        sums = np.bincount(owner, weights=values, minlength=rows)
        wrong = sums > 1.0 + SUM_TOLERANCE
        if complete:
            wrong |= sums < 1.0 - SUM_TOLERANCE
        for row in np.flatnonzero(wrong)[:1]:
            raise InputError(
                self.path,
                f"expected proportions that add up to 1, found a sum of {sums[row]:.6g}; divide each row by its sum",
                f"row {first + int(row) + 1:,}",
            )
