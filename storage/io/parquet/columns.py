"""Numbers of Arrow columns, and the size of their strings when they are decoded from dictionaries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.data_types import AnyArray


def numbers_of(column: pa.Array | pa.ChunkedArray) -> AnyArray:
    """Return the numbers of a column as an array."""
    # PyArrow's other conversions to NumPy import pandas if it is installed.
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    plain = len(column) and not column.null_count and (pa.types.is_integer(column.type) or column.type == pa.float64())
    return np.from_dlpack(column) if plain else np.asarray(column)


def number_array(values: AnyArray) -> pa.Array:
    """Return numbers as an Arrow array without a copy; `pyarrow.array` imports pandas if it is installed."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [None, pa.py_buffer(values)], 0)


def string_array(texts: Sequence[str]) -> pa.Array:
    """Return texts as an Arrow array; `pyarrow.array` imports pandas if it is installed."""
    data = [text.encode() for text in texts]
    offsets = np.zeros(len(data) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, data), dtype=np.int64, count=len(data)), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(data))]
    return pa.Array.from_buffers(pa.large_string(), len(data), buffers, 0).cast(pa.string())


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with dictionaries of strings replaced by strings."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        field = kind.value_field.with_type(plain_type(kind.value_type))
        return pa.list_(field) if pa.types.is_list(kind) else pa.large_list(field)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    return kind


def written_bytes(column: pa.Array) -> int:
    """Return the bytes of an array's strings when they are decoded from dictionaries."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        lengths = pc.binary_length(column.dictionary)
        sizes = numbers_of(pc.fill_null(lengths, 0) if lengths.null_count else lengths).astype(np.int64)
        indices = column.indices
        places = numbers_of(indices.drop_null() if indices.null_count else indices).astype(np.int64)
        # Arrow does not check the indices.
        if places.size and not 0 <= int(places.min()) <= int(places.max()) < sizes.size:
            raise ValueError("a string is not in its dictionary")
        return int(sizes[places].sum())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return written_bytes(column.values)
    if pa.types.is_struct(kind):
        return sum(written_bytes(column.field(place)) for place in range(kind.num_fields))
    return 0
