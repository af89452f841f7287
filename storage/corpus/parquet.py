"""Encode and decode the Parquet files of shards, which may be untrusted."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from collapsium.storage.corpus.manifest import ShardRecord
from collapsium.storage.errors import DamagedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.parquet import BoundedFile

LABELS = pa.list_(pa.struct([pa.field("field", pa.string()), pa.field("value", pa.string())]))

# Exceptions that Arrow raises for damaged files.
FAULTS = (
    pa.ArrowException,
    KeyError,
    ValueError,
    TypeError,
    OSError,
    OverflowError,
    MemoryError,
    RuntimeError,
    AttributeError,
)


def encode_columns(columns: Mapping[str, pa.Array]) -> bytes:
    """Return columns as the bytes of a Parquet file, equal for equal columns."""
    sink = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), sink, compression="zstd", store_schema=False)
    return sink.getvalue()


def read_part(folder: Folder, record: ShardRecord) -> tuple[str, bytes]:
    """Read the bytes of a shard's Parquet file and check their digest."""
    path = f"{folder.url}/{record.file}"
    data = folder.read(record.file)
    if hashlib.sha256(data).hexdigest() != record.sha256:
        raise DamagedError(path, "the bytes do not have the digest of the manifest; the file is damaged")
    return path, data


@contextmanager
def shard_damage(path: str, holds: str = "documents") -> Iterator[None]:
    """Raise `DamagedError` in place of Arrow's errors about a shard's bytes."""
    try:
        yield
    except DamagedError:
        raise
    except FAULTS as error:
        raise DamagedError(path, f"expected a shard of {holds} ({error})") from None


def decode_table(data: bytes, documents: int, path: str, without: Sequence[str] = ()) -> pa.Table:
    """Decode a Parquet file with a known number of rows."""
    file = BoundedFile(io.BytesIO(data))
    if file.rows != documents:
        raise DamagedError(path, f"expected {documents} rows, found {file.rows}")
    names = list(file.schema.names)
    again = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if again is not None:
        raise DamagedError(path, "expected each column once, found it twice", f"column {again[:100]!r}")
    columns = [name for name in names if name not in without] if without else None
    table = file.table(columns)
    if table.num_rows != documents:
        raise DamagedError(path, f"expected {documents} rows, found {table.num_rows}")
    return table


def column_of(table: pa.Table, name: str) -> pa.Array:
    """Return a column in one piece; raise `KeyError` if it does not exist."""
    chunked = table.column(name)
    return chunked.chunk(0) if chunked.num_chunks == 1 else pa.array([], type=chunked.type)
