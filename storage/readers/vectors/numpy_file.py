"""Dense arrays of vectors x columns in NumPy's .npy and .npz, read as streams."""

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
from collapsium.storage.io.parquet.bounded_file import LEAST_LIMIT, RATIO
from collapsium.storage.readers.base import open_input, reading
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.vectors.base import CHUNK_VALUES, DenseFile, VectorChunk, layout_of
from collapsium.storage.units import size

NUMBERS = "biuf"  # kinds of plain numbers
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
        except Exception as error:  # what the parser of headers raises has no common kind
            raise InputError(path, f"expected an array in NumPy's format ({error})", where) from None
        if self.dtype.hasobject:
            raise InputError(path, "expected plain numbers, found a pickle", where)


class MatrixFile:
    """An array of vectors x columns in NumPy's format, some of whose columns may be ids or labels.

    Parameters
    ----------
    path : str
        A ``.npy`` file, plain or compressed.
    options : ReadOptions
        Which columns are ids and labels.

    Raises
    ------
    InputError
        It is no dense array of numbers.
    OptionError
        A column is not there.
    """

    def __init__(self, path: str, options: ReadOptions) -> None:
        self.name, self._limit = path, options.max_decompressed
        if options.values is not None:
            raise OptionError(f"`values` {options.values}: {path} is one array, which has no name")
        with reading(path), open_input(path, self._limit) as handle:
            header = _Header(path, handle)
        self.layout = layout_of(options, (), width_of(path, header.shape, header.dtype), path)
        self.fields = tuple(field for field, _ in self.layout.labels)

    def chunks(self) -> Iterator[VectorChunk]:
        """Read the vectors, in chunks of 4 million values.

        Yields
        ------
        VectorChunk
            Whole rows.
        """
        with reading(self.name), open_input(self.name, self._limit) as handle:
            for rows in _rows(self.name, handle, _Header(self.name, handle)):
                yield chunk_of(self, rows)


def chunk_of(file: DenseFile, rows: Values) -> VectorChunk:
    """Take the values, the ids and the labels out of rows of numbers.

    Parameters
    ----------
    file : DenseFile
        Whose layout says which columns are what.
    rows : numpy.ndarray, shape (vectors, columns)
        All columns.

    Returns
    -------
    VectorChunk
        The same rows.
    """
    layout = file.layout
    all_values = len(layout.values) == rows.shape[1]
    values = np.asarray(rows if all_values else rows[:, list(layout.values)], dtype=np.float64, order="C")
    ids = None if layout.id is None else _texts(rows[:, layout.id])
    return VectorChunk(values, ids, tuple(_texts(rows[:, place]) for _, place in layout.labels))


def _texts(column: Values) -> pa.Array:
    """Write numbers as texts, whole ones without a point; texts stay."""
    if column.dtype.kind == "S":
        column = np.char.decode(column, "utf-8", "replace")
    if column.dtype.kind != "f":
        return pa.array([str(value) for value in column.tolist()], pa.string())
    numbers = column.astype(np.float64).tolist()
    return pa.array([str(int(value)) if value.is_integer() else repr(value) for value in numbers], pa.string())


def width_of(path: str, shape: tuple[int, ...], dtype: DType) -> int:
    """Return the columns of an array, which must be one of vectors x columns.

    Parameters
    ----------
    path : str
        The file, for the error.
    shape, dtype
        The array's.

    Returns
    -------
    int
        The columns.

    Raises
    ------
    InputError
        It has other dims, no columns, or no numbers.
    """
    if len(shape) != 2 or not shape[1]:
        raise InputError(path, f"{EXPECTED}, found the shape {' x '.join(map(str, shape)) or '()'}")
    if dtype.kind not in NUMBERS:
        raise InputError(path, f"expected numbers, found values of type {dtype}")
    return shape[1]


def _rows(path: str, file: IO[bytes], header: _Header) -> Iterator[Values]:
    """Read an array's rows from where its header ends; one in column order is read whole."""
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
    """Read so many bytes, as many as there are at a time: a header may promise anything."""
    parts, left = [], count
    while left and (data := file.read(min(left, 1 << 26))):
        parts.append(data)
        left -= len(data)
    if left:
        raise InputError(path, f"expected {count} bytes more of numbers, as its header says, found {count - left}")
    return parts[0] if len(parts) == 1 else b"".join(parts)


class ArchiveFile:
    """An archive of dense arrays: one of values and, perhaps, one of ids and some of labels.

    Parameters
    ----------
    path : str
        A ``.npz`` file.
    options : ReadOptions
        ``values`` names the array of vectors, where there are several; ids and labels are arrays of one dimension by
        their names, or columns of the values by their numbers.

    Raises
    ------
    InputError
        It is no such archive.
    OptionError
        There is no such array.
    """

    def __init__(self, path: str, options: ReadOptions) -> None:
        self.name, self._limit = path, options.max_decompressed
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
        """Read the header of each array; refuse archives that decompress to far more than their size."""
        headers = {}
        with _archive(self.name, handle) as (archive, bytes_):
            limit = max(LEAST_LIMIT, RATIO * bytes_) if self._limit is None else self._limit
            members = [one for one in archive.infolist() if one.filename.endswith(".npy")]
            if sum(one.file_size for one in members) > limit:
                raise InputError(self.name, f"more than {size(limit)} come out of it (`max_decompressed`)")
            for one in members:
                with archive.open(one) as file:
                    name = one.filename.removesuffix(".npy")
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
        """Read the vectors, in chunks of 4 million values.

        Yields
        ------
        VectorChunk
            Whole rows.
        """
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
        """Read an array of one dimension as texts."""
        with archive.open(f"{name}.npy") as file:
            header = _Header(self.name, file, name)
            if header.dtype.kind not in f"{NUMBERS}US":
                raise InputError(self.name, f"expected texts or numbers, found {header.dtype}", f"array {name!r}")
            count = math.prod(header.shape)
            data = _exactly(self.name, file, count * header.dtype.itemsize)
        return _texts(np.frombuffer(data, dtype=header.dtype, count=count))


class _archive:  # noqa: N801 - used as a statement
    """Open a zip archive in a file, which is read whole where it cannot be searched; give it and its size."""

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
        if isinstance(error, damage) and not isinstance(error, InputError):
            raise InputError(self._path, f"the archive is damaged ({error})") from None
