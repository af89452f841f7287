"""Write files of topic proportions, sparse or dense, in the format of their name: streamed, and atomically.

Tables have the columns ``id``, ``segment`` if rows are segments, and further columns of lists. Sparse proportions are
lists ``topics`` and ``proportions`` of the largest ones; dense ones are lists ``proportions`` of all topics.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from collapsium.storage.data_types import AnyArray
from collapsium.storage.errors import OptionError
from collapsium.storage.io.file import File, require_free, scratch_folder

SHARES = [pa.field("topics", pa.list_(pa.int32())), pa.field("proportions", pa.list_(pa.float32()))]
SCHEMA = pa.schema([("id", pa.string()), *SHARES])
SEGMENT_SCHEMA = pa.schema([("id", pa.string()), ("segment", pa.int32()), *SHARES])

ENDINGS = (".parquet", ".csv", ".npy", ".npz")
MATRICES = (".npy", ".npz")
TOPICS, PROPORTIONS, TOPIC = "topics", "proportions", "topic_"
LEADING = ("id", "segment")


def ending_of(out: str | os.PathLike[str], known: tuple[str, ...] = ENDINGS) -> str:
    """Return the format of a file, by its name."""
    ending = PurePosixPath(os.fspath(out)).suffix.lower()
    if ending and ending not in known:
        raise OptionError(f"{os.fspath(out)}: expected a name that ends in {', '.join(known)}, found {ending}")
    return ending or ".parquet"


def ids_file(out: str | os.PathLike[str]) -> str | None:
    """Return the path of the separate file of ids; None if the proportions' file contains the ids."""
    path = os.fspath(out)
    return f"{path[: -len('.npy')]}.ids.csv" if ending_of(path) == ".npy" else None


class Writer(Protocol):
    """Writes tables one after another, to files that are complete after `close`."""

    def write(self, table: pa.Table) -> None:
        """Write the next rows."""

    def close(self) -> None:
        """Finish the files."""


class TableWriter:
    """Writes tables to a Parquet or CSV file, with the columns of the first table, or of a schema without tables.

    Each table is written in the shape that a function gives it. In CSV, the numbers of a list are separated by spaces;
    all texts are keys (ids and labels) and are written unchanged.
    """

    def __init__(self, path: Path, schema: pa.Schema, shape: Callable[[pa.Table], pa.Table] | None = None) -> None:
        self._path, self._schema, self._shape = path, schema, shape
        self._file: Any = None

    def write(self, table: pa.Table) -> None:
        """Write the next rows."""
        table = table if self._shape is None else self._shape(table)
        if self._path.suffix == ".csv":
            for place, field in enumerate(table.schema):
                if pa.types.is_list(field.type):
                    text = [" ".join(map(str, values)) for values in table.column(place).to_pylist()]
                    table = table.set_column(place, field.name, pa.array(text, pa.string()))
        if self._file is None:
            self._begin(table.schema)
        self._file.write_table(table)

    def _begin(self, schema: pa.Schema) -> None:
        if self._path.suffix == ".csv":
            self._file = pacsv.CSVWriter(self._path, schema)
        else:
            self._file = pq.ParquetWriter(self._path, schema, compression="zstd")

    def close(self) -> None:
        """Finish the file."""
        if self._file is None and self._path.suffix == ".csv":
            self._shape = None
            self.write(self._schema.empty_table())
        elif self._file is None:
            self._begin(self._schema)
        self._file.close()


class NpyStream:
    """A ``.npy`` file that is written in blocks of rows."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows, self.width = path, 0, 0
        self._empty: AnyArray = np.zeros((0, 0), np.float32)

    def add(self, block: AnyArray) -> None:
        """Write the next rows, with the dtype and width of the first."""
        if not self.rows:
            self._empty, self.width = block[:0], block.shape[1] if block.ndim > 1 else 0
            self._write_header("wb")
        if block.dtype != self._empty.dtype or block.shape[1:] != self._empty.shape[1:]:
            raise ValueError(f"expected rows as {self._empty.dtype}{self._empty.shape[1:]}, found {block.shape[1:]}")
        with self.path.open("ab") as file:
            file.write(np.ascontiguousarray(block).tobytes())
        self.rows += len(block)

    def _write_header(self, mode: str) -> None:
        header = np.lib.format.header_data_from_array_1_0(self._empty)
        # NumPy pads a header so that the number of rows can grow in place.
        with self.path.open(mode) as file:
            np.lib.format.write_array_header_1_0(file, {**header, "shape": (self.rows, *self._empty.shape[1:])})

    def close(self) -> None:
        """Write the number of rows into the header."""
        self._write_header("r+b" if self.path.exists() else "wb")


class NpyWriter:
    """Writes dense proportions as a matrix, and ids to a separate CSV file."""

    def __init__(self, path: Path, ids: Path, schema: pa.Schema) -> None:
        self._matrix = NpyStream(path)
        self._ids = TableWriter(ids, pa.schema([column for column in schema if column.name in LEADING]))

    def write(self, table: pa.Table) -> None:
        """Write the next rows."""
        self._matrix.add(_matrix(table, PROPORTIONS))
        self._ids.write(table.select([name for name in LEADING if name in table.column_names]))

    def close(self) -> None:
        """Finish the files."""
        self._matrix.close()
        self._ids.close()


class NpzWriter:
    """Writes dense proportions as an archive: ``ids``, ``segments``, ``topics``, ``proportions`` and others."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids: list[pa.Array] = []
        self._streams: dict[str, NpyStream] = {}

    def write(self, table: pa.Table) -> None:
        """Write the next rows."""
        self._ids += table.column("id").chunks
        for name in table.column_names:
            if name == "id":
                continue
            block = np.asarray(table.column(name)) if name == "segment" else _matrix(table, name)
            self._stream("segments" if name == "segment" else name).add(block)

    def _stream(self, name: str) -> NpyStream:
        if name not in self._streams:
            self._streams[name] = NpyStream(self._path.with_name(f"{self._path.name}.{name}.npy"))
        return self._streams[name]

    def close(self) -> None:
        """Finish the arrays and write them to the archive."""
        longest = max((pc.max(pc.utf8_length(ids)).as_py() or 1 for ids in self._ids if len(ids)), default=1)
        for ids in self._ids or [pa.array([], pa.string())]:
            self._stream("ids").add(np.array(ids.to_pylist(), dtype=f"<U{max(longest, 1)}"))
        self._stream(TOPICS).add(np.arange(self._stream(PROPORTIONS).width, dtype=np.int32))
        with zipfile.ZipFile(self._path, "w") as archive:
            for name, stream in self._streams.items():
                stream.close()
                archive.write(stream.path, f"{name}.npy")
                stream.path.unlink()


@contextmanager
def written_to(out: str | os.PathLike[str], schema: pa.Schema, *, dense: bool = False) -> Iterator[Writer]:
    """Write proportions to a temporary file, in the format of the name, and move it into place once complete."""
    ending, ids_path = ending_of(out), ids_file(out)
    with scratch_folder() as place:
        part, ids = Path(place) / f"part{ending}", Path(place) / "ids.csv"
        writer: Writer
        if ending == ".npy":
            writer = NpyWriter(part, ids, schema)
        elif ending == ".npz":
            writer = NpzWriter(part)
        else:
            by_rows = ending == ".csv" and TOPICS in schema.names
            writer = TableWriter(part, schema, by_topic if dense else by_pair if by_rows else None)
        yield writer
        writer.close()
        # Another process may have written the file since this one began.
        require_free(out, ids_path)
        if ids_path is not None:
            File(ids_path).put(ids)
        try:
            File(out).put(part)
        except BaseException:
            if ids_path is not None:
                File(ids_path).remove()
            raise


def by_topic(table: pa.Table) -> pa.Table:
    """Return dense proportions with a column for each topic, ``topic_0`` and so on."""
    shares = np.ascontiguousarray(_matrix(table, PROPORTIONS).T)
    place = table.column_names.index(PROPORTIONS)
    before, after = table.select(table.column_names[:place]), table.select(table.column_names[place + 1 :])
    names = [*before.column_names, *(f"{TOPIC}{number}" for number in range(len(shares))), *after.column_names]
    return pa.table([*before.columns, *(pa.array(row) for row in shares), *after.columns], names=names)


def by_pair(table: pa.Table) -> pa.Table:
    """Return sparse proportions with a row for each document, or segment, and topic; further lists are repeated."""
    topics, shares = (table.column(name).combine_chunks() for name in (TOPICS, PROPORTIONS))
    owner = pc.list_parent_indices(topics)
    pairs = table.drop_columns([TOPICS, PROPORTIONS]).take(owner)
    place = sum(name in pairs.column_names for name in LEADING)
    pairs = pairs.add_column(place, "topic", pc.list_flatten(topics))
    return pairs.add_column(place + 1, "proportion", pc.list_flatten(shares))


def _matrix(table: pa.Table, name: str) -> AnyArray:
    """Return a column of lists of equal length as a matrix."""
    column = table.column(name).combine_chunks()
    values = np.asarray(pc.list_flatten(column))
    if isinstance(column.type, pa.FixedSizeListType):
        return values.reshape(len(column), column.type.list_size)
    return values.reshape(len(column), -1 if values.size else 0)
