"""Encode and decode the Parquet files of shards, and check their columns.

Files may be untrusted, and kernels do not check bounds.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collapsium.storage.corpus.manifest import ShardRecord
from collapsium.storage.errors import DamagedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.parquet import BoundedFile, numbers_of

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
    names = file.names
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
    if chunked.num_chunks == 1:
        return chunked.chunk(0)
    return pa.concat_arrays(chunked.chunks) if chunked.num_chunks else pa.array([], type=chunked.type)


TEXTS = ("title", "date")
LABEL_COLUMN, SEGMENTS = "labels", "segments"
UNKNOWN_SHARE = "unknown_share"  # Share of a document's tokens that are not in the vocabulary; null without tokens
LABEL_FIELDS = ("field", "value")
# Largest number of tokens of a document, and so of a pair: kernels count in 32 bits
MAX_COUNT = int(np.iinfo(np.int32).max)

# Types of columns of lists, which are equal in all shards because columns of several shards are concatenated
LISTS = {
    LABEL_COLUMN: pa.list_(pa.field("element", pa.struct([(name, pa.string()) for name in LABEL_FIELDS]))),
    SEGMENTS: pa.list_(pa.field("element", pa.int32())),
}

Offsets = npt.NDArray[np.int64]


def ids_and_extras(table: pa.Table, path: str, excluded: Sequence[str] = ()) -> tuple[pa.Array, dict[str, pa.Array]]:
    """Return the ids and the further columns of a shard, each checked against the type of its name."""
    names = table.column_names
    _column(table, "id", path)
    columns = {name: column_of(table, name) for name in names if name not in excluded}
    for name, column in columns.items():
        _require_type(path, name, column)
        _require_well_formed(path, name, column)
        if name in LISTS and column.type != LISTS[name]:
            columns[name] = column.cast(LISTS[name])
    ids = columns.pop("id")
    if ids.null_count:
        raise DamagedError(path, "expected an id for each document, found none", _where("id", _first_null(ids)))
    return ids, columns


def _require_type(path: str, name: str, column: pa.Array) -> None:
    """Raise an error for a column whose type is not the one its name requires."""
    kind = column.type
    if name == "id" or name in TEXTS:
        expected, right = "strings", pa.types.is_string(kind)
    elif name == LABEL_COLUMN:
        expected, right = "lists of pairs of strings, 'field' and 'value'", False
        if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
            parts = [kind.value_type.field(place) for place in range(kind.value_type.num_fields)]
            right = [part.name for part in parts] == [*LABEL_FIELDS] and all(
                pa.types.is_string(part.type) for part in parts
            )
    elif name == SEGMENTS:
        expected, right = "lists of whole numbers", pa.types.is_list(kind) and pa.types.is_integer(kind.value_type)
    elif name == UNKNOWN_SHARE and pa.types.is_float32(kind):
        expected, right = "", True
    else:
        expected, right = "numbers (float64)", pa.types.is_float64(kind)
    if not right:
        raise DamagedError(path, f"expected {expected}, found {str(kind)[:100]}", _where(name))


def _require_well_formed(path: str, name: str, column: pa.Array) -> None:
    """Raise an error for texts other than UTF-8, incomplete labels, lengths that may overflow, or infinite numbers."""
    try:
        column.validate(full=True)
    except pa.ArrowException as error:
        fault = None
        for row in range(len(column)):
            try:
                column[row].as_py()
            except (ValueError, pa.ArrowException):
                fault = row
                break
        expected = f"expected UTF-8 text in well-formed columns ({error})"
        raise DamagedError(path, expected, _where(name, fault)) from None
    if name == LABEL_COLUMN:
        pairs = column.flatten()
        for part in (pairs, *pairs.flatten()):
            if part.null_count:
                row = row_of(_offsets(column), _first_null(part))
                raise DamagedError(path, "expected a field and a value of each label", _where(name, row))
    elif name == SEGMENTS:
        _require_range(path, name, _offsets(column), column.flatten(), 0, MAX_COUNT, "numbers of pairs")
    elif pa.types.is_floating(column.type) and len(column):
        infinite = np.isinf(numbers_of(pc.fill_null(column, 0.0) if column.null_count else column))
        if infinite.any():
            expected = "expected a finite number, or none where it is missing"
            raise DamagedError(path, expected, _where(name, int(infinite.argmax())))


def integer_lists(
    table: pa.Table, name: str, low: int, high: int, path: str, expected: str
) -> tuple[Offsets, npt.NDArray[np.int32]]:
    """Return a column of lists of integers as offsets and values."""
    column = _column(table, name, path)
    if not (pa.types.is_list(column.type) and pa.types.is_integer(column.type.value_type)):
        raise DamagedError(path, f"expected lists of whole numbers, found {str(column.type)[:100]}", _where(name))
    if column.null_count:
        raise DamagedError(path, "expected a list, found none", _where(name, _first_null(column)))
    _require_well_formed(path, name, column)
    offsets, values = _offsets(column), column.flatten()
    _require_range(path, name, offsets, values, low, high, expected)
    return offsets, np.asarray(numbers_of(values), dtype=np.int32)


def text_column(table: pa.Table, name: str, path: str) -> list[str]:
    """Return a column of texts; `DamagedError`, with the row, for a missing or invalid one."""
    column = _column(table, name, path)
    if not pa.types.is_string(column.type):
        raise DamagedError(path, f"expected strings, found {str(column.type)[:100]}", _where(name))
    _require_well_formed(path, name, column)
    if column.null_count:
        raise DamagedError(path, "expected a text, found none", _where(name, _first_null(column)))
    texts: list[str] = column.to_pylist()
    return texts


def number_column(table: pa.Table, name: str, high: int, path: str) -> npt.NDArray[np.int64]:
    """Return a column of integers from 0 to `high`; `DamagedError`, with the row, for any other value."""
    column = _column(table, name, path)
    if not pa.types.is_integer(column.type):
        raise DamagedError(path, f"expected whole numbers, found {str(column.type)[:100]}", _where(name))
    rows = np.arange(len(column) + 1, dtype=np.int64)
    _require_range(path, name, rows, column, 0, high, f"whole numbers from 0 to {high}")
    return np.asarray(numbers_of(column), dtype=np.int64)


def _column(table: pa.Table, name: str, path: str) -> pa.Array:
    if table.column_names.count(name) != 1:
        raise DamagedError(path, f"expected this column once, found {table.column_names.count(name)}", _where(name))
    return column_of(table, name)


def _require_range(
    path: str, name: str, offsets: Offsets, values: pa.Array, low: int, high: int, expected: str
) -> None:
    """Raise an error for values that are missing or out of range, before they are cast to fewer bits."""
    if values.null_count:
        raise DamagedError(path, f"expected {expected}, found none", _where(name, row_of(offsets, _first_null(values))))
    extremes = pc.min_max(values).as_py() if len(values) else {"min": low, "max": low}
    if low <= extremes["min"] and extremes["max"] <= high:
        return
    numbers = numbers_of(values)
    place = int(((numbers < low) | (numbers > high)).argmax())
    raise DamagedError(path, f"expected {expected}, found {numbers[place]}", _where(name, row_of(offsets, place)))


def require_segments(column: pa.Array, offsets: Offsets, path: str) -> None:
    """Raise an error for segments whose pairs differ from their documents' pairs."""
    _require_type(path, SEGMENTS, column)
    pairs, lists, lengths = int(offsets[-1]), _offsets(column), column.flatten()
    _require_range(path, SEGMENTS, lists, lengths, 0, pairs, "segments with as many pairs as their document")
    bounds = np.concatenate([[0], np.cumsum(numbers_of(lengths), dtype=np.int64)])
    wrong = bounds[lists] != offsets
    if wrong.any():
        row = max(int(wrong.argmax()) - 1, 0)
        counts = f"{bounds[lists[row + 1]] - bounds[lists[row]]} for {offsets[row + 1] - offsets[row]}"
        expected = f"expected segments with as many pairs as their document, found {counts}"
        raise DamagedError(path, expected, _where(SEGMENTS, row))


def too_long(counts: npt.NDArray[np.int32], offsets: Offsets) -> tuple[int, str] | None:
    """Return a document with more tokens than 32 bits can count."""
    if int(counts.sum(dtype=np.int64)) <= MAX_COUNT:
        return None
    running = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    tokens = running[offsets[1:]] - running[offsets[:-1]]
    row = int(tokens.argmax())
    if int(tokens[row]) <= MAX_COUNT:
        return None
    return row, f"expected documents of at most {MAX_COUNT:,} tokens, found {int(tokens[row]):,}"


def row_of(offsets: Offsets, place: int) -> int:
    """Return the row whose list has the value at a place."""
    return int(np.searchsorted(offsets, place, side="right")) - 1


def _offsets(column: pa.Array) -> Offsets:
    """Return the offsets of the rows in the flattened column."""
    lengths = pc.list_value_length(column)
    numbers = numbers_of(pc.fill_null(lengths, 0) if lengths.null_count else lengths)
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(numbers, dtype=np.int64)])


def _first_null(column: pa.Array) -> int:
    return int(np.asarray(column.is_null()).argmax())


def _where(name: str, row: int | None = None) -> str:
    return f"column {name[:100]!r}" + ("" if row is None else f", row {row + 1}")
