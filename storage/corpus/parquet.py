"""The Parquet files of shards: their bytes, and what Arrow makes of bytes that may be anybody's."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from collapsium.storage.corpus.manifest import ShardRecord
from collapsium.storage.errors import DamagedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.parquet.bounded_file import BoundedFile

LABELS = pa.list_(pa.struct([pa.field("field", pa.string()), pa.field("value", pa.string())]))

# What Arrow raises for bytes that are no Parquet file of ours.
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
    """Write columns as the bytes of a Parquet file, the same bytes for the same columns."""
    sink = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), sink, compression="zstd", store_schema=False)
    return sink.getvalue()


def read_part(folder: Folder, record: ShardRecord) -> tuple[str, bytes]:
    """Read the bytes of a shard's Parquet file, and check their digest.

    Parameters
    ----------
    folder, record
        As for `read_documents`.

    Returns
    -------
    path : str
        The file's name, for errors.
    data : bytes
        All of the file.

    Raises
    ------
    AbsentError
        The file is not there.
    DamagedError
        The bytes are not those that the manifest names.
    """
    path = f"{folder.url}/{record.file}"
    data = folder.read(record.file)
    if hashlib.sha256(data).hexdigest() != record.sha256:
        raise DamagedError(path, "the bytes do not have the digest of the manifest; the file is damaged")
    return path, data


@contextmanager
def shard_damage(path: str, holds: str = "documents") -> Iterator[None]:
    """Raise `DamagedError` for whatever Arrow raises on the bytes of a shard that are none of ours.

    Parameters
    ----------
    path : str
        The file's name, for errors.
    holds : str, optional
        What the shard is of, for errors.

    Yields
    ------
    None
        While the bytes are decoded.
    """
    try:
        yield
    except DamagedError:
        raise
    except FAULTS as error:
        raise DamagedError(path, f"expected a shard of {holds} ({error})") from None


def decode_table(data: bytes, documents: int, path: str, without: Sequence[str] = ()) -> pa.Table:
    """Read the bytes of a Parquet file of so many rows.

    Parameters
    ----------
    data : bytes
        All of the file, which may be anybody's: Arrow raises any of `FAULTS` for what is damaged.
    documents : int
        How many rows the manifest has.
    path : str
        The file's name, for errors.
    without : sequence of str, optional
        Columns that are not wanted.

    Returns
    -------
    pyarrow.Table
        All other columns, each in one piece.

    Raises
    ------
    DamagedError
        It has another number of rows, or is too large.
    """
    file = BoundedFile(io.BytesIO(data))
    if file.rows != documents:
        raise DamagedError(path, f"expected {documents} rows, found {file.rows}")
    names = list(file.schema.names)
    again = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if again is not None:
        raise DamagedError(path, "expected each column once, found it twice", f"column {again[:100]!r}")
    wanted = [name for name in names if name not in without] if without else None
    table = file.table(wanted)
    if table.num_rows != documents:
        raise DamagedError(path, f"expected {documents} rows, found {table.num_rows}")
    return table


def column_of(table: pa.Table, name: str) -> Any:
    """Return a column in one piece; `KeyError` where there is none."""
    chunked = table.column(name)
    return chunked.chunk(0) if chunked.num_chunks == 1 else pa.array([], type=chunked.type)
