"""Decode Parquet files, which may be untrusted, in bounded memory.

The sizes in a file's footer cannot be trusted, and a few bytes can decode to gigabytes: compressed pages, runs of equal
values, and strings that a dictionary holds once. The headers of all pages are therefore read before Arrow decodes a
page. Arrow decodes strings to dictionaries and indices, from which the size of the plain strings is known in advance.

Arrow's public interface cannot keep this bound, as it shows no header of a page: with `thrift_string_size_limit`,
`thrift_container_size_limit` and batches of 1,024 rows, a file of 33 KB whose footer promises 1 KB takes 2.1 GB and
4.9 s, and one of 302 bytes with a list of 200 million equal numbers 2.3 GB and 18 s. Here both are refused in 0.02 s,
without memory. Nor can Arrow 26 parse the footer, since a damaged one may abort the process: 54 of 20,000 with a
few changed bytes did as their columns were asked for (`RowGroupMetaData.column`).
"""

from __future__ import annotations

import functools
import io
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collapsium.storage.data_types import AnyArray
from collapsium.storage.io.file import ByteStream
from collapsium.storage.units import size as size_text


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


# Largest number of entries of a list or map, such as the columns, row groups or schema elements of a footer
MAX_ENTRIES = 1 << 20

MAX_DEPTH = 32  # Deepest nesting of structures
Structure: TypeAlias = "dict[int, Value]"  # A structure: the value of each field, by the field's number
Value: TypeAlias = "bool | int | bytes | list[Value] | list[tuple[Value, Value]] | Structure | None"  # A field's value


class Thrift:
    """Parses structures of Thrift's compact protocol; raises `ValueError` for damaged bytes."""

    def __init__(self, data: bytes) -> None:
        self._data, self.place = data, 0

    def structure(self, depth: int = 0) -> Structure:
        """Parse a structure."""
        fields: Structure = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return fields

    def _byte(self) -> int:
        if self.place >= len(self._data):
            raise ValueError("the metadata is cut short")
        self.place += 1
        return self._data[self.place - 1]

    def _unsigned(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number of more than 64 bits")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def _bytes(self, count: int) -> bytes:
        if count > len(self._data) - self.place:
            raise ValueError("the metadata is cut short")
        self.place += count
        return self._data[self.place - count : self.place]

    def _value(self, kind: int, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise ValueError(f"expected structures nested at most {MAX_DEPTH} deep")
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 8:
            return self._bytes(self._unsigned())
        if kind in (9, 10):
            head = self._byte()
            count, inner = head >> 4 if head >> 4 < 15 else self._unsigned(), head & 15
            if count > min(MAX_ENTRIES, len(self._data) - self.place):
                raise ValueError(f"a list of {count} entries")
            return [self._value(3 if inner in (1, 2) else inner, depth + 1) for _ in range(count)]
        if kind == 12:
            return self.structure(depth + 1)
        fixed = {1: 1, 2: 1, 3: 1, 7: 8, 13: 16}
        if kind in fixed:
            return self._bytes(fixed[kind])
        if kind == 11:
            count = self._unsigned()
            if count > min(MAX_ENTRIES, len(self._data) - self.place):
                raise ValueError(f"a map of {count} entries")
            kinds = self._byte() if count else 0
            return [(self._value(kinds >> 4, depth + 1), self._value(kinds & 15, depth + 1)) for _ in range(count)]
        raise ValueError(f"a field of kind {kind}")


def natural_number(value: Value, limit: int = 1 << 62) -> int:
    """Return a field's value, an integer from 0 to `limit`; raise `ValueError` for other values."""
    if type(value) is not int or not 0 <= value <= limit:
        raise ValueError(f"expected a whole number in the metadata, found {str(value)[:40]}")
    return value


def structures(value: Value) -> list[Structure]:
    """Return a field's value, a list of structures; raise `ValueError` for other values."""
    entries = [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
    if not isinstance(value, list) or len(entries) < len(value):
        raise ValueError("expected a list of structures in the metadata")
    return entries


MAGIC = b"PAR1"
# Text compresses to about a tenth.
RATIO, LEAST_LIMIT = 200, 1 << 28  # Bounds of the decoded bytes of a file: a multiple of its size, and at least 256 MB
MAX_FOOTER = 1 << 24  # Largest footer, in bytes
MAX_SMALL_FOOTER = 1 << 14  # Largest footer, in bytes, of which many are kept in memory
BATCH_BYTES = LEAST_LIMIT >> 3  # Largest size of the strings of a batch
MAX_ROWS = 1024  # Largest number of rows of a batch

# Kinds of pages; the encoding of a string by the prefix that it shares with the one before.
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3
_DELTA_BYTE_ARRAY = 7
_LEVEL_BYTES = 4  # Bytes of the definition and repetition levels of a value


class SwollenError(ValueError):
    """More bytes would be decoded from a file than is allowed."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"decompresses to more than {size_text(limit)}; refusing a possible decompression bomb")


@dataclass
class _Weight:
    """Bytes of decompressed pages and decoded values, without strings."""

    limit: int
    bytes: int = 0
    largest: int = 0


def _weigh(pages: bytes, leaf: Leaf, values: int, weight: _Weight, *, shared: bool) -> None:
    """Add the bytes of a column's pages, from their headers, as far as Arrow would read them."""
    reader, seen = Thrift(pages), 0
    while seen < values and reader.place < len(pages):
        header = reader.structure()
        kind, unpacked, packed = (natural_number(header.get(field), 1 << 31) for field in (1, 2, 3))
        fields = header.get({_DATA: 5, _DICTIONARY: 7, _DATA_2: 8}.get(kind, 0), {})
        if not isinstance(fields, dict) or packed > len(pages) - reader.place:
            raise ValueError("a page is damaged")
        count = natural_number(fields.get(1, 0), 1 << 31)
        if kind == _DICTIONARY and count > unpacked:
            raise ValueError("a dictionary is damaged")
        if kind in (_DATA, _DATA_2):
            seen += count
            if not shared and leaf.kind == BYTE_ARRAY and fields.get(2 if kind == _DATA else 4) == _DELTA_BYTE_ARRAY:
                raise ValueError("the encoding DELTA_BYTE_ARRAY is not supported; write strings with another encoding")
        weight.bytes += unpacked + count * (leaf.width + _LEVEL_BYTES)
        weight.largest = max(weight.largest, unpacked if leaf.kind == BYTE_ARRAY else 0)
        if weight.bytes > weight.limit:
            raise SwollenError(weight.limit)
        reader.place += packed


class BoundedFile:
    """A Parquet file that is decoded in bounded memory."""

    def __init__(self, handle: IO[bytes], limit: int | None = None) -> None:
        size = handle.seek(0, io.SEEK_END)
        handle.seek(max(size - 8, 0))
        tail = handle.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != MAGIC or length > size - 12:
            raise ValueError("it does not end with Parquet's magic bytes")
        if length > MAX_FOOTER:
            raise ValueError(f"its footer has {length:,} bytes, more than the limit of {MAX_FOOTER:,}")
        handle.seek(size - 8 - length)
        # A fit reads each shard several times, and all shards in turn.
        parse = _parse_small_footer if length <= MAX_SMALL_FOOTER else _parse_large_footer
        self.footer = parse(handle.read(length), size - 8 - length)
        self.rows, self.groups = self.footer.rows, len(self.footer.groups)
        self.limit = max(LEAST_LIMIT, RATIO * size) if limit is None else limit
        self._handle = _Ahead(handle, size)

    @functools.cached_property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self._all_coded.schema_arrow.names)

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """Columns and their types."""
        return self._plain.schema_arrow

    @functools.cached_property
    def _plain(self) -> pq.ParquetFile:
        """The file, opened once: Arrow reads the footer each time, which has a part for every row group."""
        return self._open(())

    @functools.cached_property
    def _all_coded(self) -> pq.ParquetFile:
        """The same with dictionaries of all strings."""
        return self._open([leaf for leaf in self.footer.leaves if leaf.kind == BYTE_ARRAY])

    @functools.cached_property
    def _coded(self) -> pq.ParquetFile:
        """The same with dictionaries of the strings within lists, of which a row may have many."""
        return self._open([leaf for leaf in self.footer.leaves if leaf.kind == BYTE_ARRAY and leaf.nested])

    def _open(self, coded: Sequence[Leaf]) -> pq.ParquetFile:
        """Open the file with Arrow, which reads the `coded` columns as dictionaries.

        It is read without Arrow's threads, which also read ahead: one that lets go of the Python file or of its bytes
        while the interpreter ends aborts the process (apache/arrow, issue 34314; 19 of 450 runs of `collapsium topics`
        on a busy machine). Shards take as long without.
        """
        source = pa.PythonFile(self._handle, mode="r")
        return pq.ParquetFile(source, read_dictionary=[".".join(leaf.path) for leaf in coded], pre_buffer=False)

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Read all rows."""
        weight = _Weight(self.limit)
        for group in range(self.groups):
            self._weigh(group, columns, weight, shared=False)
        left = self.limit - weight.bytes
        self._handle.forget()
        try:
            table = self._all_coded.read(columns=columns, use_threads=False)
        except pa.ArrowNotImplementedError:  # see `_group_batches`
            names = [name for name in self.schema.names if columns is None or name in columns]
            schema = pa.schema([self.schema.field(name) for name in names])
            return pa.Table.from_batches(list(self.batches(columns)), schema).combine_chunks()
        plain = {}
        for name, column in zip(table.column_names, table.columns, strict=True):
            kind = plain_type(column.type)
            left -= sum(written_bytes(chunk) for chunk in column.chunks)
            if left < 0:
                raise SwollenError(self.limit)
            plain[name] = column if kind == column.type else column.cast(kind)
        return pa.table(plain, schema=None).combine_chunks()

    def batches(
        self, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches."""
        left = self.limit
        for group in range(self.groups) if groups is None else groups:
            weight = self._weigh(group, columns, shared=True)
            rows = max(min(BATCH_BYTES // max(weight.largest, 1), MAX_ROWS), 1)
            for batch in self._group_batches(group, columns, rows):
                left -= sum(written_bytes(column) for column in batch.columns)
                if left >= 0:
                    written = [column.cast(plain_type(column.type)) for column in batch.columns]
                    left -= sum(column.nbytes for column in written)
                if left < 0:
                    raise SwollenError(self.limit)
                yield pa.RecordBatch.from_arrays(written, names=batch.schema.names)

    def _group_batches(self, group: int, columns: Sequence[str] | None, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a row group; strings within lists are dictionaries if possible.

        Arrow cannot do so if the writer has stopped using its dictionary because most strings are distinct.
        """
        done = 0
        try:
            for batch in self._coded.iter_batches(rows, [group], columns, use_threads=False):
                yield batch
                done += batch.num_rows
            return
        except pa.ArrowNotImplementedError:
            pass
        for batch in self._plain.iter_batches(rows, [group], columns, use_threads=False):
            if done < batch.num_rows:
                yield batch.slice(done)
            done = max(done - batch.num_rows, 0)

    def _weigh(
        self, group: int, columns: Collection[str] | None, weight: _Weight | None = None, *, shared: bool
    ) -> _Weight:
        """Add the bytes of a row group's pages, and read them ahead.

        With ``shared``, strings outside of lists may be encoded by the prefix that they share with the one before.
        """
        weight = weight or _Weight(self.limit)
        self._handle.forget()
        for leaf, chunk in zip(self.footer.leaves, self.footer.groups[group], strict=True):
            if columns is None or leaf.path[0] in columns:
                pages = self._handle.ahead(chunk.first, chunk.size)
                _weigh(pages, leaf, chunk.values, weight, shared=shared and not leaf.nested)
        return weight


class _Ahead(ByteStream):
    """A file with read-ahead, so that bytes come over a network once."""

    def __init__(self, handle: IO[bytes], size: int) -> None:
        self._inner, self._size, self._place = handle, size, 0
        self._pieces: list[tuple[int, bytes]] = []

    def close(self) -> None:
        """Leave the file open for other readers, although Arrow closes its source."""

    def forget(self) -> None:
        self._pieces = []

    def ahead(self, first: int, size: int) -> bytes:
        self._inner.seek(first)
        data = self._inner.read(size)
        self._pieces.append((first, data))
        return data

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def take(self, count: int) -> bytes:
        first = self._place
        overlapping = [(at, piece) for at, piece in self._pieces if at <= first and first + count <= at + len(piece)]
        if overlapping:
            at, piece = overlapping[0]
            data = piece[first - at : first - at + count]
        else:
            self._inner.seek(first)
            data = self._inner.read(count)
        self._place += len(data)
        return data


# Bytes of a value by physical type: bool, int32, int64, int96, float, double, byte arrays
WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 6: 8}

BYTE_ARRAY, FIXED_LENGTH = 6, 7  # Physical types of byte arrays, of any length and of one


class Leaf(NamedTuple):
    """A column of values: its path in the schema, physical type, bytes of a value, and True if it is within a list."""

    path: tuple[str, ...]
    kind: int
    width: int
    nested: bool


class Chunk(NamedTuple):
    """The pages of a column in a row group: first byte, number of bytes, and number of values."""

    first: int
    size: int
    values: int


@dataclass(frozen=True)
class Footer:
    """The metadata of a file: rows, columns, and each row group's pages and decompressed bytes."""

    rows: int
    leaves: tuple[Leaf, ...]
    groups: tuple[tuple[Chunk, ...], ...]
    sizes: tuple[int, ...]


def _parse_footer(footer: bytes, size: int) -> Footer:
    """Parse a footer with `size` bytes of the file before it."""
    fields = Thrift(footer).structure()
    leaves = tuple(_leaves(structures(fields.get(2))))
    groups, sizes = [], []
    for group in structures(fields.get(4, [])):
        columns = structures(group.get(1))
        if len(columns) != len(leaves):
            raise ValueError(f"expected {len(leaves)} columns in each group of rows, found {len(columns)}")
        sizes.append(natural_number(group.get(2)))
        chunks = []
        for column in columns:
            pages = column.get(3)
            if not isinstance(pages, dict):
                raise ValueError("expected the metadata of a column")
            data, dictionary = natural_number(pages.get(9)), natural_number(pages.get(11) or 0)
            first = dictionary if 0 < dictionary < data else data
            length = natural_number(pages.get(7))
            if first + length > size:
                raise ValueError("expected the pages of a column within the file")
            chunks.append(Chunk(first, length, natural_number(pages.get(5))))
        groups.append(tuple(chunks))
    return Footer(natural_number(fields.get(3)), leaves, tuple(groups), tuple(sizes))


_parse_small_footer = functools.lru_cache(maxsize=64)(_parse_footer)
_parse_large_footer = functools.lru_cache(maxsize=4)(_parse_footer)


def _leaves(schema: list[Structure]) -> Iterator[Leaf]:
    """Yield the columns of values of a schema, which is a tree in depth-first order."""
    if not schema:
        raise ValueError("expected a schema")
    above: list[tuple[tuple[str, ...], bool, int]] = [((), False, natural_number(schema[0].get(5, 0), MAX_ENTRIES))]
    for element in schema[1:]:
        while above and not above[-1][2]:
            above.pop()
        if not above or len(above) > MAX_DEPTH:
            raise ValueError("expected a schema that is a tree")
        path, nested, left = above[-1]
        above[-1] = (path, nested, left - 1)
        name = element.get(4, b"")
        path = (*path, name.decode("utf-8", "replace") if isinstance(name, bytes) else "")
        nested = nested or element.get(3) == 2
        children = natural_number(element.get(5) or 0, MAX_ENTRIES)
        if children:
            above.append((path, nested, children))
            continue
        kind = natural_number(element.get(1), FIXED_LENGTH)
        width = natural_number(element.get(2), 1 << 31) if kind == FIXED_LENGTH else WIDTHS[kind]
        yield Leaf(path, kind, width, nested)
