"""Parquet that anyone may have written, decoded in bounded memory.

What a file's footer says of its size cannot be trusted, and a few bytes can stand for gigabytes: compressed pages,
runs of equal values, and strings that a dictionary holds once. So the headers of all pages are looked at before Arrow
decodes any of them, and strings are decoded by Arrow as a dictionary and places in it, whose size is known before they
are written out.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from collapsium.storage.io.parquet.columns import plain_type, written_bytes
from collapsium.storage.io.parquet.footer import BYTE_ARRAY, Leaf, parse_footer
from collapsium.storage.io.parquet.thrift import Thrift, whole_number
from collapsium.storage.units import size as size_text

MAGIC = b"PAR1"
RATIO, LEAST_LIMIT = 200, 1 << 28  # text shrinks to a tenth, not to less than this; small files may hold 256 MB
MAX_FOOTER = 1 << 24  # bytes
BATCH_BYTES = LEAST_LIMIT >> 3  # that the strings of a batch may take at most
MAX_ROWS = 1024  # of a batch

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


def limit_of(size: int, limit: int | None = None) -> int:
    """Return the bytes that may come out of a file of a size, unless a limit is named."""
    return max(LEAST_LIMIT, RATIO * size) if limit is None else limit


@dataclass
class _Weight:
    """Bytes of pages when they are decompressed and their values decoded, but for strings."""

    limit: int
    bytes: int = 0
    largest: int = 0


def _weigh(pages: bytes, leaf: Leaf, values: int, weight: _Weight, *, shared: bool) -> None:
    """Look at the headers of a column's pages, as far as Arrow would read them."""
    reader, seen = Thrift(pages), 0
    while seen < values and reader.place < len(pages):
        header = reader.structure()
        kind, unpacked, packed = (whole_number(header.get(field), 1 << 31) for field in (1, 2, 3))
        said = header.get({_DATA: 5, _DICTIONARY: 7, _DATA_2: 8}.get(kind, 0), {})
        if not isinstance(said, dict) or packed > len(pages) - reader.place:
            raise ValueError("a page is damaged")
        count = whole_number(said.get(1, 0), 1 << 31)
        if kind == _DICTIONARY and count > unpacked:
            raise ValueError("a dictionary is damaged")
        if kind in (_DATA, _DATA_2):
            seen += count
            if not shared and leaf.kind == BYTE_ARRAY and said.get(2 if kind == _DATA else 4) == _DELTA_BYTE_ARRAY:
                raise ValueError("its strings are encoded by what they share (DELTABYTE_ARRAY); write them plainly")
        weight.bytes += unpacked + count * (leaf.width + _LEVELS)
        weight.largest = max(weight.largest, unpacked if leaf.kind == BYTE_ARRAY else 0)
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
        self.footer = parse_footer(handle.read(length), size - 8 - length)
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
            found = self._opened([leaf for leaf in self.footer.leaves if leaf.kind == BYTE_ARRAY]).read(columns=columns)
        except pa.ArrowNotImplementedError:  # see `_of_group`
            names = [name for name in self.schema.names if columns is None or name in columns]
            kept = pa.schema([self.schema.field(name) for name in names])
            return pa.Table.from_batches(list(self.batches(columns)), kept).combine_chunks()
        whole = {}
        for name, column in zip(found.column_names, found.columns, strict=True):
            kind = plain_type(column.type)
            left -= sum(written_bytes(chunk) for chunk in column.chunks)
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
                left -= sum(written_bytes(column) for column in batch.columns)
                if left >= 0:
                    written = [column.cast(plain_type(column.type)) for column in batch.columns]
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
            nested = [leaf for leaf in self.footer.leaves if leaf.kind == BYTE_ARRAY and leaf.nested]
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
