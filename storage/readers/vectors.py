"""Dense vectors: the interface of their files, several files as one source, and the layout of columns.

Files are in NumPy's .npy and .npz, separated values (one vector per line) or Zarr arrays of vectors x columns from any
program, which are read in chunks of rows.
"""

from __future__ import annotations

import csv
import io
import math
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.corpus.vectors import MOST_COLUMNS, Vectors
from collapsium.storage.corpus.writer import numbered_ids
from collapsium.storage.data_types import AnyArray, DType
from collapsium.storage.errors import InputError, OptionError, suggestion
from collapsium.storage.io.arrays import MOST_CHUNK_BYTES
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.base import (
    head_of,
    open_input,
    open_text,
    read_npy_header,
    reading,
    require_bounded,
    required_names,
)
from collapsium.storage.readers.read_options import (
    Guess,
    ReadOptions,
    distinct_guesses,
    separator_line,
    separator_of,
    shown,
)
from collapsium.storage.readers.texts.fields import MISSING
from collapsium.storage.units import size

CHUNK_VALUES = 4_000_000  # Number of values in a chunk
_NUMBER = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True)
class VectorChunk:
    """Some vectors of a file."""

    values: npt.NDArray[np.float64]  # The vectors; float64 (vectors, columns)
    ids: pa.Array | None  # Ids; None if no column has ids
    labels: tuple[pa.Array, ...]  # Values of each label field; a text of `MISSING` means no label


@dataclass(frozen=True)
class Layout:
    """The columns of a file that are values, ids and labels, counted from 0."""

    values: tuple[int, ...]  # Columns of values
    id: int | None  # Column of the ids
    labels: tuple[tuple[str, int], ...]  # Field and column of each label
    names: tuple[str, ...] = ()  # Names of the values' columns; empty if the file has no names


class DenseFile(Protocol):
    """One file of dense vectors.

    ``name`` is its name in error messages, ``fields`` are the label fields, ``layout`` describes the columns, and
    ``guesses`` are the properties of the file that the reader guessed.
    """

    name: str
    guesses: tuple[Guess, ...]
    fields: tuple[str, ...]
    layout: Layout

    def chunks(self) -> Iterator[VectorChunk]:
        """Yield chunks of vectors; each call starts at the first."""


def place_of(text: str, names: Sequence[str], width: int, path: str, flag: str) -> int:
    """Return the index of a column from its name, or from its number from the left (1) or the right (-1)."""
    if text in names:
        return list(names).index(text)
    if _NUMBER.fullmatch(text):
        number = int(text)
        if 1 <= abs(number) <= width:
            return number - 1 if number > 0 else width + number
        raise OptionError(f"`{flag}` {text}: {path} has the columns 1 to {width}, or -1 to -{width} from the right")
    if names:
        raise OptionError(f"`{flag}` {text}: {path} has no such column{suggestion(text, names)}")
    raise OptionError(
        f"`{flag}` {text}: {path} names no columns; expected a number, from the left (1) or the right (-1)"
    )


def layout_of(options: ReadOptions, names: Sequence[str], width: int, path: str) -> Layout:
    """Return the columns of a file that are values, ids and labels."""
    if width > MOST_COLUMNS:
        raise InputError(path, f"expected at most {MOST_COLUMNS} columns, found {width}")
    identity = None if options.id is None else place_of(options.id, names, width, path, "id")
    labels: list[tuple[str, int]] = []
    for number, text in enumerate(options.labels, start=1):
        field, equals, column = text.partition("=")
        if text in names or not equals:
            column = text
            place = place_of(column, names, width, path, "labels")
            field = names[place] if names else "label" if len(options.labels) == 1 else f"label{number}"
        else:
            place = place_of(column, names, width, path, "labels")
        labels.append((field, place))
    taken = [place for place in (identity, *(place for _, place in labels)) if place is not None]
    if len(set(taken)) < len(taken):
        raise OptionError("a column is named twice, as a label or as the id", "labels")
    values = tuple(place for place in range(width) if place not in set(taken))
    if not values:
        raise InputError(path, "expected a column of values")
    value_names = tuple(names[place] for place in values) if names else ()
    if "" in value_names or len(set(value_names)) < len(value_names):
        again = next(name for place, name in enumerate(value_names) if not name or name in value_names[:place])
        fault = f"{again!r} twice" if again else "one without"
        if value_names[0] == "" and values[0] == 0:
            fault += f"; if the first column is an index, `id` -{width} makes ids of it"
        raise InputError(path, f"expected a distinct name for each column of values, found {fault}", "header")
    return Layout(values, identity, tuple(labels), value_names)


class DenseSource:
    """Files of dense vectors, read one after another.

    ``named`` is true if a file names its columns, ``numbered`` if the vectors of a file have no ids; ``file`` is the
    name of the file that is being read, and ``guesses`` are those about all files.
    """

    def __init__(self, files: list[DenseFile], stems: list[str], options: ReadOptions, *, tagged: bool = False) -> None:
        self.name = files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"
        self._files, self._stems, self._tagged = files, stems, tagged or len(files) > 1
        width = len(files[0].layout.values)
        names = next((file.layout.names for file in files if file.layout.names), ())
        for file in files:
            if len(file.layout.values) != width:
                raise InputError(
                    file.name,
                    f"expected {width} columns of values as in {files[0].name}, found {len(file.layout.values)}",
                )
            if file.layout.names and file.layout.names != names:
                other = next(pair for pair in zip(file.layout.names, names, strict=True) if pair[0] != pair[1])
                raise InputError(
                    file.name, f"expected the columns of {files[0].name}, found {other[0]!r} for {other[1]!r}"
                )
        self.file, self.named = self.name, bool(names)
        self.numbered = any(file.layout.id is None for file in files)
        self.guesses = distinct_guesses(*(file.guesses for file in files))
        self._columns = list(names) or [f"x{number}" for number in range(1, width + 1)]
        words = required_names(options)
        if words is not None:
            self._columns = words
            if len(self._columns) != width:
                raise InputError(
                    options.vocabulary if isinstance(options.vocabulary, str) else self.name,
                    f"expected names of the {width} columns of values, found {len(self._columns)}",
                )

    def columns(self) -> list[str]:
        """Return the names of the columns of values."""
        return self._columns

    def vectors(self) -> Iterator[Vectors]:
        """Yield the vectors of one file after another; each call starts at the first."""
        seen: set[str] = set()
        for number, file in enumerate(self._files):
            self.file, first = file.name, 0
            for chunk in file.chunks():
                values, ids = chunk.values, chunk.ids
                if values.size and not (np.isfinite(values.min()) and np.isfinite(values.max())):
                    row, column = np.argwhere(~np.isfinite(values))[0]
                    place = f"column {file.layout.values[column] + 1} ({self._columns[column]!r})"
                    expected = f"expected a finite number, found {values[row, column]}"
                    raise InputError(file.name, expected, f"row {first + row + 1}, {place}")
                if ids is None:
                    ids = numbered_ids(first + 1, len(chunk.values))
                    if self._tagged:
                        ids = pc.binary_join_element_wise(self._stems[number], ids, "/")
                else:
                    for row, name in enumerate(ids.to_pylist(), start=first + 1):
                        if not name or name in seen:
                            fault = f"the id {name!r} occurs twice" if name else "expected an id, found none"
                            raise InputError(file.name, fault, f"row {row}")
                        seen.add(name)
                extras = {"labels": labels_of(file.fields, chunk.labels)} if file.fields else {}
                yield Vectors(ids, chunk.values, extras)
                first += len(chunk.values)


def labels_of(fields: Sequence[str], labels: Sequence[pa.Array]) -> pa.Array:
    """Return the labels of vectors as (field, value) lists."""
    count = len(labels[0])
    every = np.stack([label.to_numpy(zero_copy_only=False) for label in labels], axis=1)
    signs = pa.array(sorted(MISSING), pa.string())
    keep = np.stack([~np.asarray(pc.is_in(label, value_set=signs)) for label in labels], axis=1)
    names = np.tile(np.array(fields, dtype=object), (count, 1))
    pairs = pa.StructArray.from_arrays(
        [pa.array(names[keep], pa.string()), pa.array(every[keep], pa.string())], fields=list(LABELS.value_type)
    )
    offsets = np.concatenate([[0], np.cumsum(keep.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pairs).cast(LABELS)


NUMBERS = "biuf"  # dtype kinds of plain numbers
EXPECTED = "expected a dense array of vectors x columns"
Values = AnyArray


class _Header:
    """The header of an array in NumPy's format: shape, order and dtype."""

    def __init__(self, path: str, file: IO[bytes], what: str = "") -> None:
        where = f"array {what!r}" if what else ""
        try:
            self.shape, self.fortran, self.dtype = read_npy_header(file)
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
    """Yield the rows after an array's header; an array in column order is loaded into memory first."""
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


def _chosen_array(path: str, name: str | None, names: list[str]) -> str:
    """Return the array of the option `values`, or the only one."""
    if name is not None and name not in names:
        raise OptionError(f"`values` {name}: {path} has no such array{suggestion(name, names)}")
    if name is None and len(names) != 1:
        raise InputError(path, f"expected one array of vectors, found {', '.join(names) or 'none'} (`values` NAME)")
    return names[0] if name is None else name


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
        separate_arrays = {self._id_array, *(name for _, name in separate)}
        self._array = _chosen_array(path, options.values, [name for name in headers if name not in separate_arrays])
        shape, dtype = headers[self._array]
        inside = ReadOptions(id=None if self._id_array else options.id, labels=columns)
        self.layout = layout_of(inside, (), width_of(path, shape, dtype), path)
        self._label_arrays = tuple(name for _, name in separate)
        self.fields = (*(field for field, _ in self.layout.labels), *(field for field, _ in separate))
        for name in separate_arrays - {None}:
            if headers[str(name)][0] != shape[:1]:
                size_text = " x ".join(map(str, headers[str(name)][0]))
                raise InputError(
                    path, f"expected one value for each of {shape[0]} vectors, found {size_text}", f"array {name!r}"
                )

    def _headers(self, handle: IO[bytes]) -> dict[str, tuple[tuple[int, ...], DType]]:
        """Return the shape and dtype of each array; raise an error if the archive expands to far more than its size."""
        headers = {}
        with _archive(self.name, handle) as (archive, bytes_):
            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            require_bounded(self.name, sum(member.file_size for member in members), lambda: bytes_, self._limit)
            for member in members:
                with archive.open(member) as file:
                    name = member.filename.removesuffix(".npy")
                    header = _Header(self.name, file, name)
                    headers[name] = header.shape, header.dtype
        return headers

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
                    chunk_ids = chunk.ids if ids is None else ids.slice(first, last - first)
                    yield VectorChunk(chunk.values, chunk_ids, (*chunk.labels, *more))
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


@contextmanager
def _archive(path: str, handle: IO[bytes]) -> Iterator[tuple[zipfile.ZipFile, int]]:
    """Open a zip archive and return it with its size; a file without random access is loaded into memory."""
    handle = handle if handle.seekable() else io.BytesIO(handle.read())
    bytes_ = handle.seek(0, io.SEEK_END)
    try:
        archive = zipfile.ZipFile(handle)
    except (zipfile.BadZipFile, ValueError, OverflowError, NotImplementedError) as error:
        raise InputError(path, f"{EXPECTED} in NumPy's .npz ({error})") from None
    try:
        with archive:
            yield archive, bytes_
    except (InputError, UnicodeDecodeError):
        raise
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OverflowError) as error:
        raise InputError(path, f"the archive is damaged ({error})") from None


# An array may claim `MISSING_CHUNKS` chunks for each existing chunk, after `FEW_CHUNKS` is added to the existing ones.
FEW_CHUNKS, MISSING_CHUNKS = 1000, 20
# Only codecs that move and compress numbers are accepted, because others could unpickle objects.
_CODECS = ("BytesCodec", "ZstdCodec", "GzipCodec", "BloscCodec", "Crc32cCodec", "TransposeCodec")  # of zarr.codecs
_OLD_CODECS = ("zstd", "blosc", "gzip", "zlib", "lz4", "bz2", "lzma")  # of Zarr's format 2

# Exceptions that Zarr raises for damaged files
FAULTS = (OSError, ValueError, LookupError, TypeError, RuntimeError, AttributeError, ArithmeticError)


class ZarrFile:
    """A Zarr array of vectors x columns, of format 2 or 3."""

    guesses: tuple[Guess, ...] = ()

    def __init__(self, path: str, options: ReadOptions) -> None:
        self.name = path
        with _reading_zarr(path):
            self._array = self._opened(options.values)
            _require_plain(path, self._array)
            _require_there(path, self._array, options.max_decompressed)
        self.layout = layout_of(options, (), width_of(path, self._array.shape, self._array.dtype), path)
        self.fields = tuple(field for field, _ in self.layout.labels)

    def _opened(self, name: str | None) -> Any:
        import zarr.storage

        folder = Folder(self.name)
        store: Any = (
            zarr.storage.LocalStore(folder.path, read_only=True)
            if folder.local
            else zarr.storage.FsspecStore.from_url(self.name, read_only=True)
        )
        node = zarr.open(store, mode="r")
        if not isinstance(node, zarr.Group):
            if name is not None:
                raise OptionError(f"`values` {name}: {self.name} is one array, which has no name")
            return node
        arrays = dict(node.arrays())
        return arrays[_chosen_array(self.name, name, sorted(arrays))]

    def chunks(self) -> Iterator[VectorChunk]:
        """Yield the vectors in complete Zarr chunks, about 4 million values at a time."""
        count, width = self._array.shape
        chunk = self._array.chunks[0]
        step = max(CHUNK_VALUES // (width * chunk), 1) * chunk
        for first in range(0, count, step):
            with _reading_zarr(self.name):
                rows = np.asarray(self._array[first : first + step])
            for part in chunks_of(rows):
                yield chunk_of(self, part)


def _require_plain(path: str, array: Any) -> None:
    """Raise an error if reading an array could execute code or exhaust memory."""
    metadata = array.metadata
    if metadata.zarr_format == 2:
        compressor = metadata.compressor
        plain = not metadata.filters and (compressor is None or compressor.codec_id in _OLD_CODECS)
    else:
        plain = all(_is_plain(codec) for codec in metadata.codecs)
    if not plain:
        raise InputError(path, "expected an array of plain numbers, compressed at most")
    if len(array.shape) != 2:
        return
    if min(array.chunks) < 1:
        raise InputError(path, f"expected chunks of one value or more, found {array.chunks}")
    if math.prod(array.chunks) * array.dtype.itemsize > MOST_CHUNK_BYTES:
        raise InputError(path, f"expected chunks of at most {size(MOST_CHUNK_BYTES)}")


def _require_there(path: str, array: Any, limit: int | None) -> None:
    """Raise an error if an array expands to far more than its files, or if most of its chunks are missing.

    Zarr reads missing chunks as zeros, so an empty folder could claim any size.
    """
    expected = math.prod(-(-length // chunk) for length, chunk in zip(array.shape, array.chunks, strict=True))
    folder = Folder(path) / array.path if array.path else Folder(path)
    if expected > FEW_CHUNKS:
        # Zarr would look up each chunk, for minutes if the metadata claims millions, so files are counted instead.
        names = (name.rsplit("/", 1)[-1] for name in folder.files())
        chunks_per_file = math.prod(array.shards) // math.prod(array.chunks) if array.shards else 1
        present = chunks_per_file * sum(not name.startswith(".") and name != "zarr.json" for name in names)
        if expected > MISSING_CHUNKS * (present + FEW_CHUNKS):
            raise InputError(path, f"expected most of its {expected} chunks, found {present}")
    require_bounded(path, expected * math.prod(array.chunks) * array.dtype.itemsize, folder.size, limit)


def _is_plain(codec: Any) -> bool:
    import zarr.codecs

    if isinstance(codec, zarr.codecs.ShardingCodec):
        return all(_is_plain(codec_record) for codec_record in (*codec.codecs, *codec.index_codecs))
    return isinstance(codec, tuple(getattr(zarr.codecs, name) for name in _CODECS))


@contextmanager
def _reading_zarr(path: str) -> Iterator[None]:
    """Replace Zarr's exceptions about a damaged array by an error that names the array."""
    try:
        yield
    except (InputError, OptionError):
        raise
    except FAULTS as error:
        raise InputError(path, f"expected a Zarr array ({str(error)[:200]})") from None


BLOCK = 1 << 23
MOST_LINE = 1 << 28  # bytes
HEADERS = ("yes", "no")
MIN_NUMBERED = 3  # Fewest columns whose numbers are a header, because 0 and 1 alone are as likely to be values

_INTEGER = re.compile(r"[0-9]{1,9}")
_CONVERSION = re.compile(
    r"column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+): invalid (?:value )?(.*)", re.S
)
_LENGTH = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")


class TableFile:
    """One file of separated values, plain or compressed."""

    def __init__(self, path: str, options: ReadOptions) -> None:
        self.name, self._options = path, options
        guesses: dict[Guess, None] = {}
        with reading(path), open_text(path, options, guesses) as handle:
            named, self._above = separator_line(head_of(handle))
            handle.read(self._above)
            line = self._first_line(handle)
            second = next(self._lines(handle), b"")
        columns = {text.partition("=")[2] or text for text in (*options.labels, options.id or "")}
        self._separator, guess = separator_of(path, line.decode("utf-8", "replace"), options.separator, columns)
        if named is not None and options.separator is None:
            self._separator, guess = named, Guess("separator", shown(named), "separator")
        if guess is not None:
            guesses[guess] = None
        try:
            first = [field.strip() for field in next(csv.reader([line.decode()], delimiter=self._separator))]
        except (UnicodeDecodeError, csv.Error, StopIteration) as error:
            expected = f"expected UTF-8 text with {self._separator!r} between values ({error})"
            raise InputError(path, expected) from None
        self._header = self._is_header(first, second, options)
        if options.header is None and not _named(first, options):
            guesses[Guess("header", HEADERS[not self._header], "header")] = None
        self._width = len(first)
        self.layout = layout_of(options, first if self._header else (), self._width, path)
        if options.id is None and (named_id := next((name for name in self.layout.names if name.lower() == "id"), "")):
            guesses[Guess(f"column {named_id}", "one of the values", "id")] = None
        self.guesses = tuple(guesses)
        self.fields = tuple(field for field, _ in self.layout.labels)
        text = {self.layout.id, *(place for _, place in self.layout.labels)}
        self._types = {str(n): pa.string() if n in text else pa.float64() for n in range(self._width)}

    def _first_line(self, handle: IO[bytes]) -> bytes:
        """Return the first line that is not empty."""
        for line in self._lines(handle):
            return line
        raise InputError(self.name, "expected lines of numbers, the file is empty")

    def _lines(self, handle: IO[bytes]) -> Iterator[bytes]:
        """Yield the lines that are not empty."""
        while line := handle.readline(MOST_LINE):
            if line.strip():
                self._require_line(line)
                yield line

    def _require_line(self, line: bytes) -> None:
        if len(line) >= MOST_LINE and not line.endswith(b"\n"):
            raise InputError(self.name, f"expected lines of at most {MOST_LINE} bytes")

    def _is_header(self, first: list[str], second: bytes, options: ReadOptions) -> bool:
        if options.header is not None:
            return options.header == "yes"
        if _named(first, options):
            return True
        layout = layout_of(options, (), len(first), self.name)
        if not any(_is_number(first[place]) for place in layout.values):
            return True
        # Invalid lines are refused when they are read.
        fields = next(csv.reader([second.decode("utf-8", "replace")], delimiter=self._separator), [])
        # A header may number the columns from 0 or 1, as in files of pandas and R, if the second line has fractions. A
        # row index before the columns is not counted, and its name may be empty.
        named = [place for place in layout.values if first[place]]
        numbered = len(named) >= MIN_NUMBERED and all(_INTEGER.fullmatch(first[place]) for place in named)
        if len(fields) != len(first) or not numbered:
            return False
        shifts = {int(first[place]) - place for place in named}
        fractions = any(_is_number(fields[place]) and not _INTEGER.fullmatch(fields[place].strip()) for place in named)
        return len(shifts) == 1 and shifts <= {-1, 0, 1} and fractions

    def chunks(self) -> Iterator[VectorChunk]:
        """Yield the vectors in chunks of some megabytes of text."""
        rows = 0
        with reading(self.name), open_text(self.name, self._options) as handle:
            handle.read(self._above)
            rest = b"" if self._header else self._first_line(handle)
            if self._header:
                self._first_line(handle)
            while block := rest + handle.read(BLOCK):
                if not block.endswith(b"\n"):
                    line = handle.readline(MOST_LINE)
                    self._require_line(line)
                    block += line
                rest = b""
                if block.strip():
                    chunk = self._parsed(block, rows)
                    rows += len(chunk.values)
                    yield chunk

    def _parsed(self, block: bytes, rows: int) -> VectorChunk:
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(block),
                # Arrow's errors name the row only if one thread reads.
                pyarrow.csv.ReadOptions(
                    use_threads=False, block_size=len(block) + 1, column_names=[str(n) for n in range(self._width)]
                ),
                pyarrow.csv.ParseOptions(delimiter=self._separator),
                pyarrow.csv.ConvertOptions(column_types=self._types, null_values=[], strings_can_be_null=False),
            )
        except (pa.ArrowException, ValueError) as error:
            raise self._fault(str(error), rows) from None
        values = np.empty((table.num_rows, len(self.layout.values)))
        for number, place in enumerate(self.layout.values):
            values[:, number] = table.column(place).to_numpy()
        ids = None if self.layout.id is None else _text(table, self.layout.id)
        return VectorChunk(values, ids, tuple(_text(table, place) for _, place in self.layout.labels))

    def _fault(self, message: str, rows: int) -> InputError:
        """Return the error for Arrow's message about a block that begins after `rows` rows."""
        if match := _LENGTH.search(message):
            row, expected, actual = match.groups()
            where = f"row {rows + int(row)}" if row else ""
            return InputError(self.name, f"expected {expected} columns as in the first line, found {actual}", where)
        if match := _CONVERSION.search(message):
            column, row, kind, value = match.groups()
            where = f"row {rows + int(row)}, " if row else ""
            expected = "a number" if kind == "double" else "UTF-8 text"
            value = " ".join(value[:60].split())
            return InputError(self.name, f"expected {expected}, found {value}", f"{where}column {int(column) + 1}")
        return InputError(
            self.name, f"expected lines of numbers with {self._separator!r} between ({' '.join(message[:200].split())})"
        )


def _text(table: pa.Table, place: int) -> pa.Array:
    chunks = pc.utf8_trim_whitespace(table.column(place)).combine_chunks()
    return chunks.chunk(0) if isinstance(chunks, pa.ChunkedArray) else chunks


def _named(first: list[str], options: ReadOptions) -> bool:
    """Return True if an option refers to a column by name, which requires a header."""
    columns = [text if text in first else text.partition("=")[2] or text for text in options.labels]
    return any(not text.lstrip("-").isdigit() for text in [*columns, options.id or "1"])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
