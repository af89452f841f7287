"""Dense vectors: in memory, and as chunks of a Zarr array beside the Parquet files of a corpus's shards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.storage.corpus.manifest import ShardRecord, VectorsRecord
from collapsium.storage.corpus.parquet import decode_table, ids_and_extras, read_part, shard_damage
from collapsium.storage.corpus.shard import Documents, Shard, digest_of_ids
from collapsium.storage.errors import DamagedError
from collapsium.storage.io.arrays import (
    LEAST_LIMIT,
    METADATA,
    NESTED,
    RATIO,
    Layout,
    StoredRows,
    encode_chunk,
    metadata_of,
    parse_metadata,
    read_digested,
)
from collapsium.storage.io.folder import Folder
from collapsium.storage.printable import ShortRepr

ARRAY = "vectors.zarr"
MOST_COLUMNS = 1 << 24


@dataclass(frozen=True, repr=False)
class Vectors(ShortRepr):
    """Vectors as arrays, as they are written to and read from a corpus."""

    ids: pa.Array  # One id a vector
    values: npt.NDArray[np.float64]  # The vectors, a row each; float64 (vectors, columns)
    # Further columns, such as ``labels`` as (field, value) lists
    extras: Mapping[str, pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def ids_sha256(self) -> str:
        """Return the SHA-256 of the ids, in their order."""
        return digest_of_ids(self.ids)

    def slice(self, first: int, last: int) -> Vectors:
        """Return the vectors `first` to `last` - 1."""
        extras = {name: column.slice(first, last - first) for name, column in self.extras.items()}
        return Vectors(self.ids.slice(first, last - first), self.values[first:last], extras)

    def take(self, keep: npt.NDArray[np.bool_]) -> Vectors:
        """Return the vectors for which `keep` is true."""
        chosen = pa.array(keep)
        extras = {name: column.filter(chosen) for name, column in self.extras.items()}
        return Vectors(self.ids.filter(chosen), self.values[keep], extras)

    @staticmethod
    def join(parts: list[Vectors]) -> Vectors:
        """Return the concatenation of vectors with the same columns."""
        if len(parts) == 1:
            return parts[0]
        return Vectors(
            ids=pa.concat_arrays([part.ids for part in parts]),
            values=np.concatenate([part.values for part in parts]),
            extras={name: pa.concat_arrays([part.extras[name] for part in parts]) for name in parts[0].extras},
        )


@dataclass(frozen=True, repr=False)
class VectorShard(ShortRepr):
    """One shard of vectors for sweeping; the words of the vocabulary are the columns, and each shard has all."""

    number: int  # Number of the shard in the corpus
    words: npt.NDArray[np.int32]  # The columns, 0 to `columns` - 1; int32 (columns,)
    values: npt.NDArray[np.float64]  # The vectors, a row each; all finite; float64 (vectors, columns)
    of_vectors: ClassVar[Literal[True]] = True  # True; see `AnyShard`

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays, which Dask uses to place tasks near their data."""
        return self.words.nbytes + self.values.nbytes

    @property
    def documents(self) -> int:
        """Number of vectors."""
        return int(self.values.shape[0])

    @property
    def pairs(self) -> int:
        """Number of values."""
        return self.values.size

    @property
    def tokens(self) -> int:
        """Number of values."""
        return self.values.size

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Values of each vector."""
        return np.full(self.values.shape[0], self.values.shape[1], dtype=np.int64)

    @staticmethod
    def of(number: int, values: npt.NDArray[np.float64]) -> VectorShard:
        """Return a shard of vectors."""
        return VectorShard(number, np.arange(values.shape[1], dtype=np.int32), np.ascontiguousarray(values))


# A shard of either kind. ``of_vectors`` distinguishes them without importing their classes, which import PyArrow.
AnyShard: TypeAlias = Shard | VectorShard


class ArrayWriter:
    """Writes the Zarr array of a corpus of vectors chunk by chunk."""

    def __init__(self, folder: Folder, rows: int, columns: int) -> None:
        self._folder, self.rows, self._columns = folder, rows, columns
        self._chunks, self._written = 0, 0

    def add(self, values: npt.NDArray[np.float64]) -> str:
        """Write the next chunk and return the SHA-256 of its file."""
        layout = self._layout()
        self._chunks, self._written = self._chunks + 1, self._written + values.shape[0]
        return self._folder.write(layout.key(self._chunks - 1), encode_chunk(layout, values))

    def finish(self) -> str:
        """Write the metadata of the array and return its SHA-256."""
        return self._folder.write(METADATA, metadata_of(self._layout()))

    def _layout(self) -> Layout:
        shape, chunks = (self._written, self._columns), (self.rows, self._columns)
        return Layout(shape, np.dtype("<f8"), chunks, compressed=True, separator=NESTED)


def read_columns(folder: Folder, record: ShardRecord) -> tuple[pa.Array, dict[str, pa.Array]]:
    """Read the ids and further columns of a shard of vectors."""
    path, data = read_part(folder, record)
    return decode_columns(data, record, path)


def without_pairs(ids: pa.Array, extras: Mapping[str, pa.Array]) -> Documents:
    """Return the ids and further columns of vectors as documents without pairs."""
    nothing = np.zeros(0, dtype=np.int32)
    return Documents(ids, np.zeros(len(ids) + 1, dtype=np.int64), nothing, nothing, extras)


def decode_columns(data: bytes, record: ShardRecord, path: str) -> tuple[pa.Array, dict[str, pa.Array]]:
    """Decode a file of ids and further columns, which may be untrusted; see `read_columns`."""
    with shard_damage(path, "vectors"):
        return ids_and_extras(decode_table(data, record.documents, path), path)


def read_values(
    folder: Folder, vectors: VectorsRecord, number: int, record: ShardRecord, columns: int
) -> npt.NDArray[np.float64]:
    """Read the vectors of a shard, one chunk of an array, and check them against the manifest."""
    stored, chunk = vectors.place(number)
    place, first = folder / stored.file, chunk * stored.rows
    layout = parse_metadata(read_digested(place, METADATA, stored.sha256), f"{place.url}/{METADATA}")
    path = f"{place.url}/{layout.key(chunk)}"
    if stored.rows * columns * 8 > max(LEAST_LIMIT, RATIO * place.size()):
        raise DamagedError(path, f"expected {stored.rows} rows of {columns} columns, and the file is far too small")
    expected = (stored.rows, columns)
    if layout.dtype != np.float64 or layout.chunks != expected:
        raise DamagedError(
            place.url, f"expected float64 in chunks of {expected}, found {layout.dtype}, {layout.chunks}"
        )
    if layout.shape[1] != columns or layout.shape[0] < first + record.documents:
        raise DamagedError(place.url, f"expected {first + record.documents} rows of {columns}, found {layout.shape}")
    rows = StoredRows(place.url, layout, lambda key: read_digested(place, key, str(record.vectors_sha256)))
    values = np.ascontiguousarray(rows[first : first + record.documents], dtype=np.float64)
    if not np.isfinite(values).all():
        raise DamagedError(path, "expected finite numbers")
    return values
