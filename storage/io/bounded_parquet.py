"""Parquet that anyone may have written, decoded in bounded memory.

What a file's footer says of its size cannot be trusted, and a few bytes can stand for gigabytes: compressed pages,
runs of equal values, and strings that a dictionary holds once. So the headers of all pages are looked at before Arrow
decodes any of them, and strings are decoded by Arrow as a dictionary and places in it, whose size is known before they
are written out. The headers are in Thrift's compact protocol, and are read here: PyArrow shows none of pages, and
Arrow 26 ends the process over some damaged footers.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collapsium.storage.units import size as size_text

MAGIC = b"PAR1"
RATIO, LEAST_LIMIT = 200, 1 << 28  # text shrinks to a tenth, not to less than this; small files may hold 256 MB
MAX_FOOTER = 1 << 24  # bytes
MAX_ENTRIES = 1 << 20  # of a list in a footer: columns, groups of rows, schema elements
MAX_DEPTH = 32  # of structures in one another
BATCH_BYTES = LEAST_LIMIT >> 3  # that the strings of a batch may take at most
MAX_ROWS = 1024  # of a batch

# Physical types: bool, int32, int64, int96, float, double, byte arrays, byte arrays of one length.
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 6: 8}
_BYTE_ARRAY, _FIXED = 6, 7
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3  # kinds of pages
_DELTA_BYTE_ARRAY = 7  # encoding by what a string has in common with the one before
_LEVELS = 4  # bytes of the levels of a value


class SwollenError(ValueError):
    """More would come out of a file than is allowed.

    Parameters
    ----------
    limit : int
        The bytes that are allowed.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {size_text(limit)} come out of it, as of a file that is made to fill memory")


class Leaf(NamedTuple):
    """A column of values: its path in the schema, physical type, bytes of a value, and whether it is within a list."""

    path: tuple[str, ...]
    kind: int
    width: int
    nested: bool


class Chunk(NamedTuple):
    """The pages of a column in a group of rows: first byte, number of bytes, and of values."""

    first: int
    size: int
    values: int


@dataclass(frozen=True)
class Footer:
    """What the end of a file says: rows, columns, and each group's pages and bytes when it is decompressed."""

    rows: int
    leaves: tuple[Leaf, ...]
    groups: tuple[tuple[Chunk, ...], ...]
    sizes: tuple[int, ...]


def limit_of(size: int, limit: int | None = None) -> int:
    """Return the bytes that may come out of a file of a size, unless a limit is named."""
    return max(LEAST_LIMIT, RATIO * size) if limit is None else limit


class _Thrift:
    """Reads structures of Thrift's compact protocol as dicts by field number; `ValueError` for what is none."""

    def __init__(self, data: bytes, place: int = 0) -> None:
        self._data, self.place = data, place

    def structure(self, depth: int = 0) -> dict[int, Any]:
        """Read a structure."""
        found: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            found[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return found

    def _byte(self) -> int:
        if self.place >= len(self._data):
            raise ValueError("the metadata is cut short")
        self.place += 1
        return self._data[self.place - 1]

    def _unsigned(self) -> int:
        found = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
        raise ValueError("a number of more than 64 bits")

    def _signed(self) -> int:
        found = self._unsigned()
        return (found >> 1) ^ -(found & 1)

    def _bytes(self, count: int) -> bytes:
        if count > len(self._data) - self.place:
            raise ValueError("the metadata is cut short")
        self.place += count
        return self._data[self.place - count : self.place]

    def _value(self, kind: int, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError("structures within one another, too deep")
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


def _whole(value: Any, most: int = 1 << 62) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"expected a whole number in the metadata, found {str(value)[:40]}")
    return value


def _structures(value: Any) -> list[dict[int, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError("expected a list of structures in the metadata")
    return value


@functools.lru_cache(maxsize=4)
def _parsed(footer: bytes, size: int) -> Footer:
    """Read a footer of a file that has so many bytes before it."""
    found = _Thrift(footer).structure()
    leaves = tuple(_leaves(_structures(found.get(2))))
    groups, sizes = [], []
    for group in _structures(found.get(4, [])):
        columns = _structures(group.get(1))
        if len(columns) != len(leaves):
            raise ValueError(f"expected {len(leaves)} columns in each group of rows, found {len(columns)}")
        sizes.append(_whole(group.get(2)))
        groups.append(tuple(_chunk(column.get(3), size) for column in columns))
    return Footer(_whole(found.get(3)), leaves, tuple(groups), tuple(sizes))


def _chunk(said: Any, size: int) -> Chunk:
    if not isinstance(said, dict):
        raise ValueError("expected the metadata of a column")
    data, dictionary = _whole(said.get(9)), _whole(said.get(11) or 0)
    first = dictionary if 0 < dictionary < data else data
    length = _whole(said.get(7))
    if first + length > size:
        raise ValueError("expected the pages of a column within the file")
    return Chunk(first, length, _whole(said.get(5)))


def _leaves(schema: list[dict[int, Any]]) -> Iterator[Leaf]:
    """Give the columns of values of a schema, which is a tree in its depth-first order."""
    if not schema:
        raise ValueError("expected a schema")
    above: list[tuple[tuple[str, ...], bool, int]] = [((), False, _whole(schema[0].get(5, 0), MAX_ENTRIES))]
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
        children = _whole(element.get(5) or 0, MAX_ENTRIES)
        if children:
            above.append((path, nested, children))
            continue
        kind = _whole(element.get(1), _FIXED)
        width = _whole(element.get(2), 1 << 31) if kind == _FIXED else _WIDTHS[kind]
        yield Leaf(path, kind, width, nested)


@dataclass
class _Weight:
    """What pages come to: bytes when they are decompressed and their values decoded, but for strings."""

    limit: int
    bytes: int = 0
    largest: int = 0


def _weigh(pages: bytes, leaf: Leaf, values: int, weight: _Weight, *, shared: bool) -> None:
    """Look at the headers of a column's pages, as far as Arrow would read them."""
    reader, seen = _Thrift(pages), 0
    while seen < values and reader.place < len(pages):
        header = reader.structure()
        kind, unpacked, packed = (_whole(header.get(field), 1 << 31) for field in (1, 2, 3))
        said = header.get({_DATA: 5, _DICTIONARY: 7, _DATA_2: 8}.get(kind, 0), {})
        if not isinstance(said, dict) or packed > len(pages) - reader.place:
            raise ValueError("a page is damaged")
        count = _whole(said.get(1, 0), 1 << 31)
        if kind == _DICTIONARY and count > unpacked:
            raise ValueError("a dictionary is damaged")
        if kind in (_DATA, _DATA_2):
            seen += count
            if not shared and leaf.kind == _BYTE_ARRAY and said.get(2 if kind == _DATA else 4) == _DELTA_BYTE_ARRAY:
                raise ValueError("its strings are encoded by what they share (DELTA_BYTE_ARRAY); write them plainly")
        weight.bytes += unpacked + count * (leaf.width + _LEVELS)
        weight.largest = max(weight.largest, unpacked if leaf.kind == _BYTE_ARRAY else 0)
        if weight.bytes > weight.limit:
            raise SwollenError(weight.limit)
        reader.place += packed


class BoundedFile:
    """A Parquet file that is decoded in bounded memory.

    Parameters
    ----------
    handle : file
        Binary, and can be searched.
    limit : int, optional
        Bytes that may come out of it; by default `RATIO` times its size, and at least `LEAST_LIMIT`.

    Raises
    ------
    ValueError
        It is no Parquet file; all that Arrow raises may come besides.
    """

    def __init__(self, handle: IO[bytes], limit: int | None = None) -> None:
        size = handle.seek(0, io.SEEK_END)
        handle.seek(max(size - 8, 0))
        tail = handle.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != MAGIC or length > size - 12:
            raise ValueError("it does not end as Parquet does")
        if length > MAX_FOOTER:
            raise ValueError(f"its footer has {length:,} bytes, where {MAX_FOOTER:,} are the most")
        handle.seek(size - 8 - length)
        self.footer = _parsed(handle.read(length), size - 8 - length)
        self.limit = limit_of(size, limit)
        self._handle = _Ahead(handle, size)

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return self._opened(()).schema_arrow

    @property
    def rows(self) -> int:
        """How many rows the footer says there are."""
        return self.footer.rows

    @property
    def groups(self) -> int:
        """How many groups of rows there are."""
        return len(self.footer.groups)

    def _opened(self, coded: Sequence[Leaf]) -> Any:
        """Open it with Arrow, some of whose columns are to be read as dictionaries."""
        source = pa.PythonFile(self._handle, mode="r")
        return pq.ParquetFile(source, read_dictionary=[".".join(leaf.path) for leaf in coded])

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Read all rows, of a file that is held in memory whole.

        Parameters
        ----------
        columns : sequence of str, optional
            Which columns; by default all.

        Returns
        -------
        pyarrow.Table
            Each column in one piece, its strings written out.

        Raises
        ------
        SwollenError
            More would come out of the file than is allowed.
        """
        weight = _Weight(self.limit)
        for group in range(self.groups):
            self._weigh(group, columns, weight, shared=False)
        left = self.limit - weight.bytes
        self._handle.forget()
        try:
            found = self._opened([leaf for leaf in self.footer.leaves if leaf.kind == _BYTE_ARRAY]).read(
                columns=columns
            )
        except pa.ArrowNotImplementedError:  # see `_of_group`
            names = [name for name in self.schema.names if columns is None or name in columns]
            kept = pa.schema([self.schema.field(name) for name in names])
            return pa.Table.from_batches(list(self.batches(columns)), kept).combine_chunks()
        whole = {}
        for name, column in zip(found.column_names, found.columns, strict=True):
            kind = _plain_type(column.type)
            left -= sum(_written_bytes(chunk) for chunk in column.chunks)
            if left < 0:
                raise SwollenError(self.limit)
            whole[name] = column if kind == column.type else column.cast(kind)
        return pa.table(whole, schema=None).combine_chunks()

    def batches(self, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None) -> Iterator[Any]:
        """Read rows, some at a time.

        Parameters
        ----------
        columns : sequence of str, optional
            Which columns; by default all.
        groups : sequence of int, optional
            Which groups of rows; by default all.

        Yields
        ------
        pyarrow.RecordBatch
            Rows whose strings are written out.

        Raises
        ------
        SwollenError
            More would come out of the file than is allowed.
        """
        left = self.limit
        for group in range(self.groups) if groups is None else groups:
            weight = self._weigh(group, columns, shared=True)
            rows = max(min(BATCH_BYTES // max(weight.largest, 1), MAX_ROWS), 1)
            for batch in self._of_group(group, columns, rows):
                left -= sum(_written_bytes(column) for column in batch.columns)
                if left >= 0:
                    written = [column.cast(_plain_type(column.type)) for column in batch.columns]
                    left -= sum(column.nbytes for column in written)
                if left < 0:
                    raise SwollenError(self.limit)
                yield pa.RecordBatch.from_arrays(written, names=batch.schema.names)

    def _of_group(self, group: int, columns: Sequence[str] | None, rows: int) -> Iterator[Any]:
        """Read a group of rows; strings within lists, of which a row may have any number, as dictionaries if it goes.

        Arrow cannot read them so where a writer has given its dictionary up, as most strings are different.
        """
        how: dict[str, Any] = {"batch_size": rows, "row_groups": [group], "columns": columns}
        done = 0
        try:
            nested = [leaf for leaf in self.footer.leaves if leaf.kind == _BYTE_ARRAY and leaf.nested]
            for batch in self._opened(nested).iter_batches(**how):
                yield batch
                done += batch.num_rows
            return
        except pa.ArrowNotImplementedError:
            pass
        for batch in self._opened(()).iter_batches(**how):
            if done < batch.num_rows:
                yield batch.slice(done)
            done = max(done - batch.num_rows, 0)

    def _weigh(
        self, group: int, columns: Collection[str] | None, weight: _Weight | None = None, *, shared: bool
    ) -> _Weight:
        """Look at the pages of a group of rows, and read them ahead.

        ``shared`` says that strings outside of lists may be encoded by what they share with the ones before.
        """
        weight = weight or _Weight(self.limit)
        self._handle.forget()
        for leaf, chunk in zip(self.footer.leaves, self.footer.groups[group], strict=True):
            if columns is None or leaf.path[0] in columns:
                pages = self._handle.ahead(chunk.first, chunk.size)
                _weigh(pages, leaf, chunk.values, weight, shared=shared and not leaf.nested)
        return weight


class _Ahead(io.RawIOBase):
    """A file some of whose bytes have been read already: they come over a network once."""

    def __init__(self, handle: IO[bytes], size: int) -> None:
        self._inner, self._size, self._place = handle, size, 0
        self._pieces: list[tuple[int, bytes]] = []

    def close(self) -> None:
        """Leave the file open: Arrow closes what it was given, and others read on."""

    def forget(self) -> None:
        self._pieces = []

    def ahead(self, first: int, size: int) -> bytes:
        self._inner.seek(first)
        data = self._inner.read(size)
        self._pieces.append((first, data))
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def readinto(self, buffer: Any, /) -> int:
        first, count = self._place, len(buffer)
        there = [(at, piece) for at, piece in self._pieces if at <= first and first + count <= at + len(piece)]
        if there:
            at, piece = there[0]
            data = piece[first - at : first - at + count]
        else:
            self._inner.seek(first)
            data = self._inner.read(count)
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with strings in the place of dictionaries of strings, as Arrow reads them when nothing is said."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        field = kind.value_field.with_type(_plain_type(kind.value_type))
        return pa.list_(field) if pa.types.is_list(kind) else pa.large_list(field)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    return kind


def _written_bytes(column: pa.Array) -> int:
    """Return the bytes that the strings of dictionaries in an array take when they are written out."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        sizes = np.asarray(pc.fill_null(pc.binary_length(column.dictionary), 0), dtype=np.int64)
        places = np.asarray(column.indices.drop_null(), dtype=np.int64)
        if places.size and not 0 <= int(places.min()) <= int(places.max()) < sizes.size:  # Arrow does not look
            raise ValueError("a string is not in its dictionary")
        return int(sizes[places].sum())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _written_bytes(column.values)
    if pa.types.is_struct(kind):
        return sum(_written_bytes(column.field(place)) for place in range(kind.num_fields))
    return 0
