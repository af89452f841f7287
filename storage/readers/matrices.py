"""Read sparse matrices of counts in blocks of bounded memory: SciPy's .npz, Matrix Market and the folders of 10x.

A matrix yields its entries in blocks, in any order (`Matrix`). `MatrixSource` checks them, names rows and columns, and
makes documents of them; entries that do not arrive by documents are sorted in a temporary file.
"""

from __future__ import annotations

import io
import math
import re
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import scipy.sparse

from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.writer import numbered_ids
from collapsium.storage.data_types import AnyArray
from collapsium.storage.errors import CollapsiumError, InputError
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.base import (
    EXCESSIVE,
    INT32_MAX,
    open_input,
    open_text,
    read_npy_header,
    read_vocabulary_file,
    reading,
    require_bounded,
    require_plausible,
    vocabulary_near,
)
from collapsium.storage.readers.compression import PACKED
from collapsium.storage.readers.read_options import Guess, ReadOptions
from collapsium.storage.readers.texts.fields import clean

BLOCK_ENTRIES = 1 << 22  # Entries that are in memory at once; each takes about 60 bytes with all copies
BLOCK_BYTES = 1 << 25  # Bytes of a Matrix Market file that are parsed at once
EXPECTED = "expected a sparse matrix in Matrix Market or SciPy's .npz"
# Types of values in Matrix Market; SciPy writes `unsigned-integer` for uint32 and uint64
FIELDS = (b"integer", b"unsigned-integer", b"real", b"pattern")

# Files of Cell Ranger, STARsolo and their relatives, each optionally compressed and with a prefix
MATRIX = "matrix.mtx"
BARCODES = ("barcodes.tsv",)
FEATURES = ("features.tsv", "genes.tsv", "peaks.bed", "features.bed")

ENTRY = np.dtype([("document", np.int32), ("word", np.int32), ("count", np.int32)])


@dataclass(frozen=True)
class Entries:
    """Some entries of a matrix."""

    rows: AnyArray  # (entries,)
    columns: AnyArray  # (entries,)
    values: AnyArray  # (entries,)

    def __len__(self) -> int:
        return self.rows.size

    def transposed(self) -> Entries:
        """Return the entries of the transposed matrix."""
        return Entries(self.columns, self.rows, self.values)

    def joined(self, other: Entries) -> Entries:
        """Return the entries of both."""
        if not len(self):
            return other
        pairs = ((self.rows, other.rows), (self.columns, other.columns), (self.values, other.values))
        return Entries(*(np.concatenate(pair) for pair in pairs))

    def __getitem__(self, part: slice) -> Entries:
        return Entries(self.rows[part], self.columns[part], self.values[part])


NO_ENTRIES = Entries(*np.zeros((3, 0), dtype=np.int64))


Slices: TypeAlias = Any  # An array in memory or in a file, which is read in slices


class Matrix(Protocol):
    """A matrix that is read in blocks."""

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""

    @property
    def ascending(self) -> str:
        """``rows`` or ``columns`` if the entries arrive in the order of these, else ``""``."""

    def blocks(self) -> Iterator[Entries]:
        """Yield the entries in blocks of about `BLOCK_ENTRIES`; each call starts at the first."""


class StoredMatrix(Matrix, Protocol):
    """A matrix whose number of entries is known before they are read."""

    @property
    def stored(self) -> int:
        """Number of stored entries."""


class CompressedMatrix:
    """A matrix of compressed rows (CSR) or columns (CSC), whose indices and values are read by slices."""

    def __init__(
        self, shape: tuple[int, int], offsets: npt.NDArray[np.int64], indices: Slices, values: Slices, *, by: str
    ) -> None:
        self.shape, self.ascending = shape, by
        self._offsets, self._indices, self._values = offsets, indices, values
        major, self._minor = shape if by == "rows" else shape[::-1]
        self.stored = int(offsets[-1]) if offsets.size else 0
        faults = (
            (offsets.size == major + 1 and offsets[0] == 0, f"expected {major + 1:,} offsets from 0"),
            (bool((np.diff(offsets) >= 0).all()), "expected offsets that do not descend"),
            (
                self.stored == indices.shape[0] == values.shape[0],
                "expected as many indices and values as the offsets say",
            ),
        )
        wrong = next((text for holds, text in faults if not holds), None)
        if wrong is not None:
            raise ValueError(wrong)

    def blocks(self) -> Iterator[Entries]:
        """Yield the entries in their stored order."""
        for first in range(0, self.stored, BLOCK_ENTRIES):
            last = min(first + BLOCK_ENTRIES, self.stored)
            low = int(np.searchsorted(self._offsets, first, side="right")) - 1
            high = int(np.searchsorted(self._offsets, last, side="left"))
            bounds: npt.NDArray[np.int64] = np.clip(self._offsets[low : high + 1], first, last)
            major = np.repeat(np.arange(low, high, dtype=np.int32), bounds[1:] - bounds[:-1])
            minor, values = np.asarray(self._indices[first:last]), np.asarray(self._values[first:last])
            if minor.dtype.kind not in "iu" or (minor.size and not 0 <= minor.min() <= minor.max() < self._minor):
                raise ValueError(f"expected indices from 0 to {self._minor - 1}")
            entries = Entries(major, minor, values)
            yield entries if self.ascending == "rows" else entries.transposed()


@dataclass(frozen=True)
class CoordinateMatrix:
    """A matrix of coordinates in any order, which are read by slices."""

    shape: tuple[int, int]
    rows: Slices
    columns: Slices
    values: Slices
    ascending = ""

    @property
    def stored(self) -> int:
        """Number of stored entries."""
        return int(self.values.shape[0])

    def blocks(self) -> Iterator[Entries]:
        """Yield the entries in their stored order."""
        if not self.rows.shape[0] == self.columns.shape[0] == self.stored:
            raise ValueError("expected as many rows and columns as values")
        for first in range(0, self.stored, BLOCK_ENTRIES):
            part = slice(first, first + BLOCK_ENTRIES)
            entries = Entries(*(np.asarray(array[part]) for array in (self.rows, self.columns, self.values)))
            for place, length in zip((entries.rows, entries.columns), self.shape, strict=True):
                if place.dtype.kind not in "iu" or not 0 <= place.min() <= place.max() < length:
                    raise ValueError(f"expected indices from 0 to {length - 1}")
            yield entries


class _Member:
    """An array in an archive, read in ascending slices without the rest."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._archive, self._name = archive, name
        with archive.open(name) as file:
            self.shape, _, self.dtype = read_npy_header(file)
        self._file: IO[bytes] | None = None
        self._place = 0

    def __getitem__(self, part: slice) -> AnyArray:
        first, last, _ = part.indices(self.shape[0])
        if self._file is None or first != self._place:
            self._file = self._archive.open(self._name)
            read_npy_header(self._file)
            for start in range(0, first, BLOCK_ENTRIES):
                self._file.read((min(start + BLOCK_ENTRIES, first) - start) * self.dtype.itemsize)
        data = self._file.read((last - first) * self.dtype.itemsize)
        self._place = last
        return np.frombuffer(data, dtype=self.dtype)

    def read(self) -> AnyArray:
        """Return the complete array."""
        with self._archive.open(self._name) as file:
            return np.lib.format.read_array(file, allow_pickle=False)


def archived_matrix(path: str, limit: int | None) -> StoredMatrix:
    """Open a matrix that `scipy.sparse.save_npz` wrote."""
    try:
        handle = open_input(path, limit)
        if not handle.seekable():
            # Archives are read from the end, so the content of a compressed file goes to a temporary one.
            spooled = tempfile.TemporaryFile()  # noqa: SIM115 - the archive reads it
            with handle:
                while block := handle.read(BLOCK_BYTES):
                    spooled.write(block)
            handle = cast(IO[bytes], spooled)
        archive = zipfile.ZipFile(handle)
        # Pickles, decompression bombs and headers that promise too much are refused.
        files = archive.infolist()
        packed = sum(member.compress_size for member in files)
        require_bounded(path, sum(member.file_size for member in files), lambda: packed, limit)
        members = {}
        for member in files:
            array = _Member(archive, member.filename)
            if array.dtype.hasobject:
                raise InputError(path, f"expected a sparse matrix of numbers; {member.filename} holds a pickle")
            if math.prod(array.shape) * array.dtype.itemsize > member.file_size:
                raise InputError(path, f"expected as many numbers in {member.filename} as its header says")
            members[member.filename.removesuffix(".npy")] = array
        kind = members["format"].read().item() if "format" in members else "none"
        kind = kind.decode() if isinstance(kind, bytes) else str(kind)
        if kind in ("bsr", "dia"):
            archive.fp.seek(0)  # type: ignore[union-attr]
            return sparse_matrix(scipy.sparse.load_npz(archive.fp).tocsr())
        shape = tuple(map(int, members["shape"].read().tolist()))
        if len(shape) != 2 or min(shape) < 0 or max(shape) > INT32_MAX:
            shown = " x ".join(map(str, shape))
            raise InputError(path, f"expected a matrix of at most {INT32_MAX} documents and words, found {shown}")
        if kind == "coo":
            return CoordinateMatrix(shape, members["row"], members["col"], members["data"])
        if kind in ("csr", "csc"):
            offsets = members["indptr"].read().astype(np.int64)
            by = "rows" if kind == "csr" else "columns"
            return CompressedMatrix(shape, offsets, members["indices"], members["data"], by=by)
        raise InputError(path, f"{EXPECTED}, found the format {kind!r}")
    except CollapsiumError:
        raise
    # The parsers of archives, headers and arrays raise exceptions that have no common base class.
    except Exception as error:
        raise InputError(path, f"{EXPECTED} ({error})") from None


def sparse_matrix(matrix: Any) -> StoredMatrix:
    """Return a matrix of SciPy in memory as one that is read in blocks."""
    if matrix.format not in ("csr", "csc"):
        matrix = matrix.tocsr()
    offsets = np.asarray(matrix.indptr, dtype=np.int64)
    by = "rows" if matrix.format == "csr" else "columns"
    return CompressedMatrix(matrix.shape, offsets, matrix.indices[: offsets[-1]], matrix.data[: offsets[-1]], by=by)


class MarketMatrix:
    """A Matrix Market file of coordinates, parsed a block of lines at a time."""

    ascending = ""

    def __init__(self, path: str, options: ReadOptions) -> None:
        self._path, self._options, self._header_lines = path, options, 1
        with open_text(path, options) as handle:
            first, line = handle.readline(1000), b""
            if not first:
                raise InputError(path, "expected a matrix, the file is empty")
            banner = first.lower().split()
            if len(banner) != 5 or banner[:2] != [b"%%matrixmarket", b"matrix"]:
                raise InputError(path, f"{EXPECTED} ('%%MatrixMarket matrix coordinate ...')", "line 1")
            if banner[2] != b"coordinate":
                raise InputError(path, "expected a sparse matrix (coordinate format), found a dense one", "line 1")
            if banner[3] not in FIELDS or banner[4] not in (b"general", b"symmetric"):
                kind = b" ".join(banner[3:]).decode("utf-8", "replace")[:40]
                raise InputError(path, f"expected counts, found values of type '{kind}'", "line 1")
            for line in iter(handle.readline, b""):
                self._header_lines += 1
                if line.strip() and not line.startswith(b"%"):
                    break
        sizes = line.split()
        if len(sizes) != 3 or not all(number.isdigit() and len(number) < 19 for number in sizes):
            raise InputError(path, "expected the numbers of rows, columns and entries", "header")
        rows, columns, self.stored = map(int, sizes)
        if max(rows, columns) > INT32_MAX:
            raise InputError(path, f"expected at most {INT32_MAX} documents and words", "header")
        self._field, self._symmetric, self.shape = banner[3], banner[4] == b"symmetric", (rows, columns)
        if self._symmetric and rows != columns:
            raise InputError(path, "expected as many rows as columns, as it is symmetric", "header")

    def blocks(self) -> Iterator[Entries]:
        """Yield the entries in the order of the lines; a symmetric matrix's also mirrored."""
        count = 0
        with reading(self._path), open_text(self._path, self._options) as handle:
            for _ in range(self._header_lines):
                handle.readline()
            while block := handle.read(BLOCK_BYTES):
                block += handle.readline()
                entries = self._parsed(block)
                count += len(entries)
                if count > self.stored:
                    break
                if self._symmetric:
                    entries = entries.joined(entries[entries.rows != entries.columns].transposed())
                yield entries
        if count != self.stored:
            more = "more" if count > self.stored else f"{count:,}; is the file cut short?"
            raise InputError(self._path, f"expected {self.stored:,} entries as its header says, found {more}")

    def _parsed(self, block: bytes) -> Entries:
        names = ("row", "column") if self._field == b"pattern" else ("row", "column", "value")
        kinds = {name: pa.float64() if name == "value" and self._field == b"real" else pa.int64() for name in names}
        try:
            table = pyarrow.csv.read_csv(
                io.BytesIO(block),
                pyarrow.csv.ReadOptions(column_names=names, use_threads=False),
                pyarrow.csv.ParseOptions(delimiter=" ", quote_char=False),
                pyarrow.csv.ConvertOptions(column_types=kinds, null_values=[]),
            )
            arrays = [column.to_numpy() for column in table.columns]
        except (pa.ArrowException, ValueError):
            arrays = self._parsed_slowly(block, len(names))
        places = [array - 1 for array in arrays[:2]]
        if places[0].size and any(
            place.min() < 0 or place.max() >= length for place, length in zip(places, self.shape, strict=True)
        ):
            rows, columns = self.shape
            raise InputError(self._path, f"{EXPECTED} (rows from 1 to {rows}, columns from 1 to {columns})")
        return Entries(places[0], places[1], arrays[2] if len(arrays) == 3 else np.ones(places[0].size, dtype=np.int64))

    def _parsed_slowly(self, block: bytes, width: int) -> list[AnyArray]:
        """Parse lines with tabs or several spaces between numbers, or with whole numbers written as 1.0."""
        expected = f"expected numbers, {'three' if width == 3 else 'two'} a line"
        if block.translate(None, b"0123456789+-.eE \t\r\n"):
            raise InputError(self._path, expected)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                numbers = np.fromstring(block.decode("ascii"), sep=" ")
            except (ValueError, DeprecationWarning) as error:
                raise InputError(self._path, f"{expected} ({error})") from None
        if numbers.size % width:
            raise InputError(self._path, f"{expected}; is the file cut short?")
        table = numbers.reshape(-1, width).T
        if (table[:2] != np.floor(table[:2])).any():
            raise InputError(self._path, f"{expected}, and rows and columns in whole numbers")
        return [table[0].astype(np.int64), table[1].astype(np.int64), *table[2:]]


class MatrixSource:
    """The documents of a matrix of documents x words, or of words x documents."""

    def __init__(
        self,
        name: str,
        matrix: Matrix,
        words: list[str],
        ids: pa.Array,
        *,
        transpose: bool = False,
        binarise: bool = False,
        extras: dict[str, pa.Array] | None = None,
        guesses: tuple[Guess, ...] = (),
        advice: str = "",
    ) -> None:
        self.name, self.guesses, self.ids = name, guesses, ids
        self._matrix, self._words, self._advice = matrix, words, advice
        self._transpose, self._binarise, self._extras = transpose, binarise, extras or {}

    def words(self) -> list[str]:
        """Return the vocabulary in the order of its ids."""
        return self._words

    def documents(self) -> Iterator[Documents]:
        """Yield chunks of documents with some million entries each."""
        blocks = self._entries() if self._is_by_document else self._sorted()
        written, rest = 0, NO_ENTRIES
        for block in blocks:
            entries = rest.joined(block)
            # The last document may continue in the next block.
            last = int(entries.rows[-1])
            cut = int(np.searchsorted(entries.rows, last))
            if last > written:
                yield self._documents(entries[:cut], written, last)
                written = last
            rest = entries[cut:]
        if len(self.ids) > written:
            yield self._documents(rest, written, len(self.ids))

    def _entries(self) -> Iterator[Entries]:
        """Yield checked entries, whose rows are documents, in the order of the matrix."""
        try:
            for block in self._matrix.blocks():
                if len(block):
                    checked = Entries(block.rows, block.columns, self._checked(block))
                    yield checked.transposed() if self._transpose else checked
        except (CollapsiumError, MemoryError):
            raise
        except Exception as error:
            raise InputError(self.name, f"its entries cannot be read ({type(error).__name__}: {error})") from None

    def _checked(self, block: Entries) -> npt.NDArray[np.int64]:
        """Return whole counts; raise an error with the position of the first other value."""
        values = block.values
        if values.dtype.kind not in "iufb":
            raise InputError(self.name, f"expected counts, found values of type {values.dtype}")
        if values.dtype == np.float16:
            values = values.astype(np.float32)  # The largest count is infinite as a half
        right = (values >= 0) & (values <= INT32_MAX)
        if self._binarise:
            if right.all():
                return (values > 0).astype(np.int64)
        elif values.dtype.kind == "f":
            right &= values == np.floor(values)
        if not right.all():
            at = int(np.flatnonzero(~right)[0])
            value, row, column = values[at].item(), int(block.rows[at]) + 1, int(block.columns[at]) + 1
            fraction = value > 0 and value != math.floor(value) if math.isfinite(value) else False
            advice = f"; normalised values are no counts{self._advice}" if fraction else ""
            expected = EXCESSIVE if INT32_MAX < value < math.inf else "expected a whole count of 0 or more"
            raise InputError(
                self.name,
                f"{expected}, found {value!r}{advice}",
                f"row {row}, column {column}",
            )
        return values.astype(np.int64)

    @cached_property
    def _is_by_document(self) -> bool:
        """True if the entries arrive in the order of the documents; they are read once if the format does not say."""
        if self._matrix.ascending:
            return self._matrix.ascending == ("columns" if self._transpose else "rows")
        last = 0
        for block in self._entries():
            if block.rows[0] < last or (np.diff(block.rows) < 0).any():
                return False
            last = int(block.rows[-1])
        return True

    @cached_property
    def _bounds(self) -> npt.NDArray[np.int64]:
        """Number of entries before each document; int64 (documents + 1,)."""
        lengths = np.zeros(len(self.ids), dtype=np.int64)
        for block in self._entries():
            lengths += np.bincount(block.rows, minlength=lengths.size)
        return np.concatenate([[0], np.cumsum(lengths)])

    def _sorted(self) -> Iterator[Entries]:
        """Yield the entries in the order of the documents; a temporary file gathers them by batches of documents."""
        bounds = self._bounds
        # First document of each batch of about `BLOCK_ENTRIES` entries, and the end of the last one
        targets = np.arange(0, bounds[-1], BLOCK_ENTRIES)
        firsts = np.searchsorted(bounds, targets, side="right") - 1
        batches = np.concatenate([[0], np.unique(firsts[1:]), [len(self.ids)]])
        batch_of = np.repeat(np.arange(batches.size - 1), np.diff(batches)).astype(np.int32)
        starts = bounds[batches]
        ends = starts[:-1].copy()  # Entries before the next entry of each batch
        with tempfile.TemporaryFile() as file:
            for block in self._entries():
                batch = batch_of[block.rows]
                order = np.argsort(batch, kind="stable")
                records = np.empty(len(block), ENTRY)
                for name, values in (("document", block.rows), ("word", block.columns), ("count", block.values)):
                    records[name] = values[order]
                filled, places = np.unique(batch[order], return_index=True)
                for number, part in zip(filled.tolist(), np.split(records, places[1:]), strict=True):
                    file.seek(int(ends[number]) * ENTRY.itemsize)
                    file.write(part.tobytes())
                    ends[number] += part.size
            file.seek(0)
            for length in np.diff(starts).tolist():
                records = np.frombuffer(file.read(length * ENTRY.itemsize), ENTRY)
                records = records[np.argsort(records["document"], kind="stable")]
                if length:
                    yield Entries(records["document"], records["word"], records["count"].astype(np.int64))

    def _documents(self, entries: Entries, first: int, last: int) -> Documents:
        shape = last - first, len(self._words)
        counts = scipy.sparse.csr_array((entries.values, (entries.rows - first, entries.columns)), shape=shape)
        # At most 2^31 entries of less than 2^31 each are added, which 64 bits can represent.
        counts.sum_duplicates()
        counts.eliminate_zeros()
        if self._binarise:
            counts.data[:] = 1
        if counts.nnz and int(counts.data.max()) > INT32_MAX:
            at = int(counts.data.argmax())
            row, column = first + int(np.searchsorted(counts.indptr, at, side="right")), int(counts.indices[at]) + 1
            where = f"row {column}, column {row}" if self._transpose else f"row {row}, column {column}"
            raise InputError(
                self.name, f"expected entries of at most {INT32_MAX} in all, found {counts.data[at]}", where
            )
        return Documents(
            self.ids.slice(first, last - first),
            counts.indptr.astype(np.int64),
            counts.indices.astype(np.int32),
            counts.data.astype(np.int32),
            {name: column.slice(first, last - first) for name, column in self._extras.items()},
        )


def open_matrix(path: str, options: ReadOptions) -> MatrixSource:
    """Open a file of a matrix, with the names of its rows and columns from the files beside it."""
    path = matrix_inside(path) or path
    with reading(path), open_input(path, options.max_decompressed) as handle:
        head = handle.read(2)
    is_archive = head == b"PK"
    matrix = archived_matrix(path, options.max_decompressed) if is_archive else MarketMatrix(path, options)
    words = vocabulary_near(path, [*_named_like(path, FEATURES), "vocab.txt"], options)
    folder, slash, _ = path.rpartition("/")
    barcodes = (name for name in _named_like(path, BARCODES) if Folder(folder or ".").exists(name))
    file = options.id or next((f"{folder}{slash}{name}" for name in barcodes), None)
    ids = None
    if file is not None:
        ids = distinct_ids(file, read_vocabulary_file(file, options.max_decompressed, options.encoding))
    transpose, guesses = _orientation(path, matrix.shape, words, ids, options)
    documents = matrix.shape[1] if transpose else matrix.shape[0]
    require_plausible(path, documents, matrix.stored, "its shape")
    return MatrixSource(
        path,
        matrix,
        words,
        numbered_ids(1, documents) if ids is None else ids,
        transpose=transpose,
        binarise=options.binarise,
        guesses=guesses,
    )


def _orientation(
    path: str, shape: tuple[int, int], words: list[str], ids: pa.Array | None, options: ReadOptions
) -> tuple[bool, tuple[Guess, ...]]:
    """Return whether rows are words, by the option or else by the numbers of words and ids."""
    rows, columns = shape
    lengths = (rows if ids is None else len(ids), len(words)), (columns if ids is None else len(ids), len(words))
    fits = (lengths[0] == (rows, columns), lengths[1] == (columns, rows))
    if options.transpose is not None:
        if fits[options.transpose]:
            return options.transpose, ()
    elif ids is not None and fits == (True, True):
        raise InputError(
            path,
            f"its {rows:,} rows may be documents or words, as there are equally many ids; `transpose` yes says that "
            "rows are words, as Cell Ranger writes them, and `transpose` no that they are documents",
        )
    elif ids is not None and any(fits):
        kind = "words x documents" if fits[1] else "documents x words"
        return fits[1], (Guess("orientation", kind, "transpose"),)
    elif fits[0]:
        return False, ()
    elif fits[1]:
        raise InputError(
            path,
            f"expected a matrix of documents x {len(words)} words (the vocabulary's length), found {rows} x {columns}; "
            "if its rows are words, set `transpose` yes",
        )
    expected = f"{'documents' if ids is None else f'{len(ids)} documents'} x {len(words)} words"
    turned = " (transposed)" if options.transpose else ""
    raise InputError(
        path, f"expected a matrix of {expected} (the vocabulary's length), found {rows} x {columns}{turned}"
    )


def matrix_inside(folder: str) -> str | None:
    """Return the path of the matrix in a folder as Cell Ranger writes it; None for other folders, and for files."""
    place = Folder(folder)
    name = next(
        (f"{MATRIX}{ending}" for ending in ("", ".gz") if place.is_folder() and place.exists(MATRIX + ending)), None
    )
    return None if name is None else f"{folder.rstrip('/')}/{name}"


def _named_like(path: str, names: Sequence[str]) -> list[str]:
    """Return the names that files beside a 10x matrix may have, compressed or not."""
    match = re.fullmatch(rf"(.*?){re.escape(MATRIX)}({'|'.join(map(re.escape, PACKED))})?", path)
    start = "" if match is None else match[1].rpartition("/")[2]
    return [] if match is None else [f"{start}{name}{ending}" for name in names for ending in ("", ".gz")]


def distinct_ids(name: str, ids: Sequence[str], advice: str = "") -> pa.Array:
    """Return ids as an array; raise an error if one occurs twice."""
    array = pa.array([clean(text) for text in ids], pa.string())
    if len(set(ids)) < len(ids):
        raise InputError(name, f"expected distinct ids of documents, found {repeated(ids)!r} twice{advice}")
    return array


def repeated(names: Sequence[str]) -> str:
    """Return the first name that occurs a second time."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    raise ValueError("all names are distinct")
