"""Reader of dense arrays of vectors x columns in NumPy's .npy and .npz, in chunks of rows."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator
from typing import IO

import numpy as np
import pyarrow as pa

from collapsium.storage.data_types import AnyArray, DType
from collapsium.storage.errors import InputError, OptionError, suggestion
from collapsium.storage.io.parquet import LEAST_LIMIT, RATIO
from collapsium.storage.readers.base import open_input, reading
from collapsium.storage.readers.read_options import Guess, ReadOptions
from collapsium.storage.readers.vectors.base import CHUNK_VALUES, DenseFile, VectorChunk, layout_of
from collapsium.storage.units import size

NUMBERS = "biuf"  # dtype kinds of plain numbers
EXPECTED = "expected a dense array of vectors x columns"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
Values = AnyArray


class _Header:
    """The header of an array in NumPy's format: shape, order and dtype."""

    def __init__(self, path: str, file: IO[bytes], what: str = "") -> None:
        where = f"array {what!r}" if what else ""
        try:
            version = np.lib.format.read_magic(file)
            if version not in _HEADERS:
                raise ValueError(f"version {version}")
            self.shape, self.fortran, self.dtype = _HEADERS[version](file)
        except InputError:
            raise
        # NumPy's parser of headers raises exceptions that have no common base class.
        except Exception as error:
            raise InputError(path, f"expected an array in NumPy's format ({error})", where) from None
        if self.dtype.hasobject:
            raise InputError(path, "expected plain numbers, found a pickle", where)


class MatrixFile:
    """An array of vectors x columns in NumPy's format, where some columns may be ids or labels."""

    guesses: tuple[Guess, ...] = ()

    def __init__(self, path: str, options: ReadOptions) -> None:
        self.name, self._limit = path, options.max_decompressed
        if options.values is not None:
            raise OptionError(f"`values` {options.values}: {path} is one array, which has no name")
        with reading(path), open_input(path, self._limit) as handle:
            header = _Header(path, handle)
        self.layout = layout_of(options, (), width_of(path, header.shape, header.dtype), path)
        self.fields = tuple(field for field, _ in self.layout.labels)

    def chunks(self) -> Iterator[VectorChunk]:
        """Yield the vectors in chunks of 4 million values."""
        with reading(self.name), open_input(self.name, self._limit) as handle:
            for rows in _rows(self.name, handle, _Header(self.name, handle)):
                yield chunk_of(self, rows)


def chunk_of(file: DenseFile, rows: Values) -> VectorChunk:
    """Return the values, ids and labels in rows of numbers."""
    layout = file.layout
    all_values = len(layout.values) == rows.shape[1]
    values = np.asarray(rows if all_values else rows[:, list(layout.values)], dtype=np.float64, order="C")
    ids = None if layout.id is None else _texts(rows[:, layout.id])
    return VectorChunk(values, ids, tuple(_texts(rows[:, place]) for _, place in layout.labels))


def _texts(column: Values, encoding: str | None = None) -> pa.Array:
    """Return numbers as texts, integers without a point and NaN as an empty text; texts are unchanged."""
    if column.dtype.kind == "S":
        column = np.char.decode(column, encoding or "utf-8")
    if column.dtype.kind != "f":
        return pa.array([str(value) for value in column.tolist()], pa.string())
    numbers = column.astype(np.float64).tolist()
    texts = ["" if value != value else str(int(value)) if value.is_integer() else repr(value) for value in numbers]
    return pa.array(texts, pa.string())


def width_of(path: str, shape: tuple[int, ...], dtype: DType) -> int:
    """Return the number of columns of an array of vectors x columns."""
    if len(shape) != 2 or not shape[1]:
        raise InputError(path, f"{EXPECTED}, found the shape {' x '.join(map(str, shape)) or '()'}")
    if dtype.kind not in NUMBERS:
        raise InputError(path, f"expected numbers, found values of type {dtype}")
    return shape[1]


def _rows(path: str, file: IO[bytes], header: _Header) -> Iterator[Values]:
    """Yield the rows behind an array's header; an array in column order is loaded into memory first."""
    count, width = header.shape
    if header.fortran:
        values = np.frombuffer(_exactly(path, file, count * width * header.dtype.itemsize), dtype=header.dtype)
        yield from chunks_of(values.reshape(width, count).T)
        return
    step = max(CHUNK_VALUES // width, 1)
    for first in range(0, count, step):
        rows = min(step, count - first)
        data = _exactly(path, file, rows * width * header.dtype.itemsize)
        yield np.frombuffer(data, dtype=header.dtype).reshape(rows, width)


def chunks_of(rows: Values) -> Iterator[Values]:
    """Yield rows in chunks of 4 million values."""
    step = max(CHUNK_VALUES // rows.shape[1], 1)
    for first in range(0, rows.shape[0], step):
        yield np.asarray(rows[first : first + step])


def _exactly(path: str, file: IO[bytes], count: int) -> bytes:
    """Return `count` bytes, read in steps because the count of a damaged header may exceed memory."""
    parts, left = [], count
    while left and (data := file.read(min(left, 1 << 26))):
        parts.append(data)
        left -= len(data)
    if left:
        raise InputError(path, f"expected {count} bytes more of numbers, as its header says, found {count - left}")
    return parts[0] if len(parts) == 1 else b"".join(parts)


class ArchiveFile:
    """An archive of dense arrays: one of values and optionally others of ids and labels."""

    guesses: tuple[Guess, ...] = ()

    def __init__(self, path: str, options: ReadOptions) -> None:
        self.name, self._limit, self._encoding = path, options.max_decompressed, options.encoding
        with reading(path), open_input(path, self._limit) as handle:
            headers = self._headers(handle)
        named = {"format", "shape", "data"}
        if named <= set(headers):
            raise InputError(path, f"{EXPECTED}, found a sparse matrix; see `format` npz")
        split = [text.partition("=") for text in options.labels]
        labels = [(field, name if equals else field) for field, equals, name in split]
        self._id_array = options.id if options.id in headers else None
        separate = [(field, name) for field, name in labels if name in headers]
        columns = tuple(text for text, (_, name) in zip(options.labels, labels, strict=True) if name not in headers)
        others = {self._id_array, *(name for _, name in separate)}
        self._array = self._chosen(options.values, [name for name in headers if name not in others])
        shape, dtype = headers[self._array]
        inside = ReadOptions(id=None if self._id_array else options.id, labels=columns)
        self.layout = layout_of(inside, (), width_of(path, shape, dtype), path)
        self._label_arrays = tuple(name for _, name in separate)
        self.fields = (*(field for field, _ in self.layout.labels), *(field for field, _ in separate))
        for name in others - {None}:
            if headers[str(name)][0] != shape[:1]:
                size_text = " x ".join(map(str, headers[str(name)][0]))
                raise InputError(
                    path, f"expected one value for each of {shape[0]} vectors, found {size_text}", f"array {name!r}"
                )

    def _headers(self, handle: IO[bytes]) -> dict[str, tuple[tuple[int, ...], DType]]:
        """Return the shape and dtype of each array; raise an error if the archive expands to far more than its size."""
        headers = {}
        with _archive(self.name, handle) as (archive, bytes_):
            limit = max(LEAST_LIMIT, RATIO * bytes_) if self._limit is None else self._limit
            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            if sum(member.file_size for member in members) > limit:
                raise InputError(self.name, f"more than {size(limit)} come out of it (`max_decompressed`)")
            for member in members:
                with archive.open(member) as file:
                    name = member.filename.removesuffix(".npy")
                    header = _Header(self.name, file, name)
                    headers[name] = header.shape, header.dtype
        return headers

    def _chosen(self, name: str | None, names: list[str]) -> str:
        if name is not None:
            if name not in names:
                raise OptionError(f"`values` {name}: {self.name} has no such array{suggestion(name, names)}")
            return name
        if len(names) != 1:
            raise InputError(
                self.name, f"expected one array of vectors, found {', '.join(names) or 'none'} (`values` NAME)"
            )
        return names[0]

    def chunks(self) -> Iterator[VectorChunk]:
        """Yield the vectors in chunks of 4 million values."""
        with (
            reading(self.name),
            open_input(self.name, self._limit) as handle,
            _archive(self.name, handle) as (archive, _),
        ):
            ids = None if self._id_array is None else self._column(archive, self._id_array)
            labels = [self._column(archive, name) for name in self._label_arrays]
            first = 0
            with archive.open(f"{self._array}.npy") as file:
                for rows in _rows(self.name, file, _Header(self.name, file, self._array)):
                    chunk, last = chunk_of(self, rows), first + len(rows)
                    more = tuple(label.slice(first, last - first) for label in labels)
                    own = chunk.ids if ids is None else ids.slice(first, last - first)
                    yield VectorChunk(chunk.values, own, (*chunk.labels, *more))
                    first = last

    def _column(self, archive: zipfile.ZipFile, name: str) -> pa.Array:
        """Return a one-dimensional array as texts."""
        with archive.open(f"{name}.npy") as file:
            header = _Header(self.name, file, name)
            if header.dtype.kind not in f"{NUMBERS}US":
                raise InputError(self.name, f"expected texts or numbers, found {header.dtype}", f"array {name!r}")
            count = math.prod(header.shape)
            data = _exactly(self.name, file, count * header.dtype.itemsize)
        return _texts(np.frombuffer(data, dtype=header.dtype, count=count), self._encoding)


class _archive:  # noqa: N801 - used as a statement
    """Open a zip archive and return it with its size; a file without random access is loaded into memory."""

    def __init__(self, path: str, handle: IO[bytes]) -> None:
        self._path, self._handle = path, handle

    def __enter__(self) -> tuple[zipfile.ZipFile, int]:
        handle = self._handle if self._handle.seekable() else io.BytesIO(self._handle.read())
        bytes_ = handle.seek(0, io.SEEK_END)
        try:
            self._archive = zipfile.ZipFile(handle)
        except (zipfile.BadZipFile, ValueError, OverflowError, NotImplementedError) as error:
            raise InputError(self._path, f"{EXPECTED} in NumPy's .npz ({error})") from None
        return self._archive, bytes_

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._archive.close()
        damage = (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OverflowError)
        if isinstance(error, damage) and not isinstance(error, (InputError, UnicodeDecodeError)):
            raise InputError(self._path, f"the archive is damaged ({error})") from None
