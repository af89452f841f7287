"""Readers of the formats of word counts: UCI bags of words, LDA-C, SVMlight, and sparse matrices.

A format is a class with `name`, `words` and `documents` (`Source`) in `READERS`, and a line in `FORMATS`.
"""

from __future__ import annotations

import io
import math
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import scipy.sparse

from collapsium.storage.corpus.shard import EXTRAS, Documents
from collapsium.storage.corpus.writer import numbered_ids
from collapsium.storage.errors import InputError
from collapsium.storage.io.encodings import NAME_IT
from collapsium.storage.io.parquet import LEAST_LIMIT, RATIO
from collapsium.storage.readers.base import (
    INT32_MAX,
    Source,
    as_utf8,
    open_input,
    open_text,
    reading,
    require_plausible,
    vocabulary_near,
)
from collapsium.storage.readers.compression import PACKED
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts.values import is_missing
from collapsium.storage.units import size

CHUNK_PAIRS = 1_000_000  # Pairs of the documents that are read at once
BLOCK = 1 << 23  # Bytes of a UCI file that are parsed at once
HEADER = ("the number of documents", "the number of words", "the number of pairs")
CHUNK_DOCUMENTS = 100_000  # documents
EXPECTED = "expected a sparse matrix in Matrix Market or SciPy's .npz"
_FAULTS = (ValueError, TypeError, IndexError, OverflowError)
FIELD = "label"
_ZERO = re.compile(rb"\s0+:")


class UCISource:
    """One UCI bag of words: three header lines (documents, words, pairs), then lines ``DOCUMENT WORD COUNT``.

    Ids begin at 1; pairs are sorted by document and word. Documents without a line are empty and are retained.
    """

    def __init__(self, path: str, options: ReadOptions, first_id: int = 1) -> None:
        self.name, self._first_id, self._options = path, first_id, options
        with reading(path), open_text(path, options) as handle:
            self._shape = tuple(self._header(handle.readline(), line) for line in range(3))
        if self._shape[0] > INT32_MAX or self._shape[1] > INT32_MAX:
            raise InputError(path, f"expected at most {INT32_MAX} documents and words", "header")
        require_plausible(path, self._shape[0], self._shape[2], "line 1")
        stem = path.rsplit("/", 1)[-1].removeprefix("docword.")
        for ending in (*PACKED, ".txt"):
            stem = stem.removesuffix(ending)
        names = [f"vocab.{'.'.join(stem.split('.')[:n])}.txt" for n in range(stem.count(".") + 1, 0, -1)]
        self._words = vocabulary_near(path, names, options)
        if len(self._words) != self._shape[1]:
            raise InputError(
                path, f"the header names {self._shape[1]} words, the vocabulary has {len(self._words)}", "line 2"
            )

    def _header(self, text: bytes, line: int) -> int:
        value = text.strip()
        if not value.isdigit() or len(value) > 18:
            raise InputError(
                self.name,
                f"expected {HEADER[line]}, found {_shown(text)}; is this a UCI bag of words?",
                f"line {line + 1}",
            )
        return int(value)

    def words(self) -> list[str]:
        """Return the vocabulary in the order of its ids."""
        return self._words

    def documents(self) -> Iterator[Documents]:
        """Yield chunks of documents, each from some megabytes of the file."""
        written, pairs = 0, 0  # documents yielded, pairs read
        rest: npt.NDArray[np.int64] = np.zeros((3, 0), dtype=np.int64)
        with reading(self.name), open_text(self.name, self._options) as handle:
            for _ in range(3):
                handle.readline()
            while block := handle.read(BLOCK):
                block += handle.readline()
                if len(block) < BLOCK:
                    # Empty lines at the end of the file are valid.
                    block = block.rstrip() + b"\n"
                    if block == b"\n":
                        break
                rows = self._parse(block, first_line=pairs + 4)
                previous = (int(rest[0, -1]), int(rest[1, -1])) if rest.size else (written, 0)
                self._check(rows, block, pairs + 4, previous)
                pairs += rows.shape[1]
                rest = np.concatenate([rest, rows], axis=1)
                # The last document may continue in the next block.
                done = int(rest[0, -1]) - 1 if rest.size else written
                cut = int(np.searchsorted(rest[0], done, side="right"))
                require_plausible(self.name, done, pairs, f"line {pairs + 3}")
                if done > written:
                    yield self._documents(rest[:, :cut], written, done)
                    rest, written = rest[:, cut:], done
        if pairs != self._shape[2]:
            raise InputError(self.name, f"expected {self._shape[2]} pairs as line 3 says, found {pairs}; cut short?")
        if self._shape[0] > written:
            yield self._documents(rest, written, self._shape[0])

    def _documents(self, rows: npt.NDArray[np.int64], after: int, last: int) -> Documents:
        offsets = np.searchsorted(rows[0], np.arange(after + 1, last + 2)).astype(np.int64)
        return Documents(
            numbered_ids(self._first_id + after, last - after),
            offsets,
            (rows[1] - 1).astype(np.int32),
            rows[2].astype(np.int32),
        )

    def _parse(self, block: bytes, first_line: int) -> npt.NDArray[np.int64]:
        """Parse a block at once; parse an invalid block again by lines, to find the line for the error."""
        try:
            table = pyarrow.csv.read_csv(
                io.BytesIO(block),
                pyarrow.csv.ReadOptions(column_names=["document", "word", "count"], use_threads=False),
                pyarrow.csv.ParseOptions(delimiter=" ", quote_char=False, ignore_empty_lines=False),
                pyarrow.csv.ConvertOptions(column_types={n: pa.int64() for n in ("document", "word", "count")}),
            )
        except (pa.ArrowException, ValueError):
            return self._parse_slowly(block, first_line)
        if any(column.null_count for column in table.columns):
            return self._parse_slowly(block, first_line)
        return np.stack([np.asarray(column, dtype=np.int64) for column in table.columns])

    def _parse_slowly(self, block: bytes, first_line: int) -> npt.NDArray[np.int64]:
        rows = []
        for line, text in enumerate(block.splitlines(), start=first_line):
            fields = text.split()
            try:
                document, word, count = map(int, fields)
            except ValueError:
                shown = _shown(text) if text else "an empty line"
                expected = f"expected three whole numbers, found {shown}"
                raise InputError(self.name, expected, f"line {line}") from None
            if max(document, word, count, -document, -word, -count) > 2**62:
                raise InputError(self.name, "the number is too large", f"line {line}")
            rows.append((document, word, count))
        return np.array(rows, dtype=np.int64).reshape(-1, 3).T

    def _check(self, rows: npt.NDArray[np.int64], block: bytes, first_line: int, previous: tuple[int, int]) -> None:
        document, word, count = rows
        before = np.concatenate([[previous[0]], document[:-1]])
        word_before = np.concatenate([[previous[1]], word[:-1]])
        faults = (
            ((document < 1) | (document > self._shape[0]), f"expected a document from 1 to {self._shape[0]}"),
            ((word < 1) | (word > self._shape[1]), f"expected a word from 1 to {self._shape[1]}"),
            ((count < 1) | (count > INT32_MAX), "expected a count of 1 or more"),
            (
                (document < before) | ((document == before) & (word <= word_before)),
                "out of order: expected pairs sorted by document, then word, each once",
            ),
        )
        wrong = np.stack([fault for fault, _ in faults])
        if wrong.any():
            row = int(np.flatnonzero(wrong.any(axis=0))[0])
            expected = next(text for fault, text in faults if fault[row])
            text = block.split(b"\n", row + 1)[row]
            raise InputError(self.name, f"{expected}, found {_shown(text)}", f"line {first_line + row}")


def _shown(text: bytes) -> str:
    shown = text.decode("utf-8", "replace").strip()
    if shown:
        return repr(shown[:40] + ("..." if len(shown) > 40 else ""))
    return "an empty line" if text else "the end of the file"


class LDACSource:
    """One LDA-C file: a line a document, ``PAIRS WORD:COUNT WORD:COUNT ...``, words numbered from 0.

    A line ``0`` is an empty document, which is retained.
    """

    def __init__(self, path: str, options: ReadOptions, first_id: int = 1) -> None:
        self.name, self._first_id, self._options = path, first_id, options
        with reading(path), open_text(path, options) as handle:
            handle.read(1)
        self._words = vocabulary_near(path, ["vocab.txt"], options)

    def words(self) -> list[str]:
        """Return the vocabulary in the order of its ids."""
        return self._words

    def documents(self) -> Iterator[Documents]:
        """Yield chunks of documents with about a million pairs each."""
        rows: list[npt.NDArray[np.int64]] = []
        waiting, written = 0, 0
        with reading(self.name), open_text(self.name, self._options) as handle:
            for line, text in enumerate(handle, start=1):
                rows.append(self._parse(text, line))
                waiting += rows[-1].shape[1]
                if waiting >= CHUNK_PAIRS:
                    yield self._documents(rows, written)
                    written, rows, waiting = written + len(rows), [], 0
        if rows:
            yield self._documents(rows, written)

    def _documents(self, rows: list[npt.NDArray[np.int64]], after: int) -> Documents:
        offsets = np.cumsum([0, *(row.shape[1] for row in rows)], dtype=np.int64)
        words, counts = np.concatenate(rows, axis=1).astype(np.int32)
        return Documents(numbered_ids(self._first_id + after, len(rows)), offsets, words, counts)

    def _parse(self, text: bytes, line: int) -> npt.NDArray[np.int64]:
        head, *fields = text.split() or [b""]
        try:
            pairs = int(head)
        except ValueError:
            raise self._error(line, "expected a document's number of pairs first, 0 if it is empty", head) from None
        if pairs != len(fields):
            raise self._error(line, f"expected {pairs} pairs as its first number says, found {len(fields)}")
        row = np.empty((2, pairs), dtype=np.int64)
        for place, field in enumerate(fields):
            word, _, count = field.partition(b":")
            try:
                row[:, place] = int(word), int(count)
            except (ValueError, OverflowError):
                raise self._error(line, "expected WORD:COUNT in whole numbers", field) from None
            if not 0 <= row[0, place] < len(self._words):
                raise self._error(line, f"expected a word from 0 to {len(self._words) - 1}", field)
            if not 1 <= row[1, place] <= INT32_MAX:
                raise self._error(line, "expected a count of 1 or more", field)
        row = row[:, np.argsort(row[0], kind="stable")]
        again = np.flatnonzero(np.diff(row[0]) == 0)
        if again.size:
            raise self._error(line, "expected each word once", str(int(row[0, again[0]])).encode())
        return row

    def _error(self, line: int, expected: str, text: bytes | None = None) -> InputError:
        shown = "" if text is None else f", found {text[:40].decode('utf-8', 'replace')!r}"
        return InputError(self.name, expected + shown, f"line {line}")


def index_base(paths: Sequence[str], options: ReadOptions) -> int:
    """Return the first index of files that share a vocabulary."""
    if options.index_base is not None:
        return options.index_base
    for path in paths:
        with reading(path), open_text(path, options) as handle:
            if any(_ZERO.search(line.partition(b"#")[0]) for line in handle):
                return 0
    return 1


class SVMlightSource:
    """One SVMlight file: a line a document, ``LABEL[,LABEL ...] INDEX:COUNT INDEX:COUNT ... # comment``.

    Indices begin at 1, or at 0 if any of the files read together has the index 0. A ``qid`` is ignored.
    """

    def __init__(self, path: str, options: ReadOptions) -> None:
        self.name, self._options = path, options
        self._first = index_base([path], options)
        self._words = vocabulary_near(path, ["vocab.txt"], options)

    def words(self) -> list[str]:
        """Return the vocabulary in the order of its ids."""
        return self._words

    def documents(self) -> Iterator[Documents]:
        """Yield chunks of documents with about a million pairs each."""
        rows: list[dict[int, int]] = []
        labels: list[list[str]] = []
        waiting, written = 0, 0
        with reading(self.name), open_text(self.name, self._options) as handle:
            for line, data in enumerate(handle, start=1):
                text = data.partition(b"#")[0].split()
                if not text:
                    continue
                labels.append(self._decoded(text[0], line).split(","))
                rows.append(self._parse(text[1:], line))
                waiting += len(rows[-1])
                if waiting >= CHUNK_PAIRS:
                    yield _labelled_documents(rows, labels, written)
                    written, rows, labels, waiting = written + len(rows), [], [], 0
        if rows:
            yield _labelled_documents(rows, labels, written)

    def _decoded(self, label: bytes, line: int) -> str:
        try:
            return label.decode()
        except UnicodeDecodeError as error:
            raise InputError(self.name, f"expected UTF-8 text ({error}); {NAME_IT}", f"line {line}") from None

    def _parse(self, pairs: list[bytes], line: int) -> dict[int, int]:
        row: dict[int, int] = {}
        for pair in pairs:
            index, colon, value = pair.partition(b":")
            if index == b"qid":
                continue
            try:
                word, count = int(index) - self._first, float(value)
            except ValueError:
                raise self._error(line, "expected INDEX:COUNT", pair) from None
            if not colon or not 0 <= word < len(self._words):
                last = self._first + len(self._words) - 1
                raise self._error(line, f"expected an index from {self._first} to {last}", pair)
            if not 0 <= count <= INT32_MAX or count != int(count):
                raise self._error(line, "expected a count, a whole number", pair)
            if word in row:
                raise self._error(line, "expected each index once", pair)
            row[word] = int(count)
        return {word: row[word] for word in sorted(row) if row[word]}

    def _error(self, line: int, expected: str, text: bytes) -> InputError:
        return InputError(self.name, f"{expected}, found {text[:40].decode('utf-8', 'replace')!r}", f"line {line}")


def _labelled_documents(rows: list[dict[int, int]], labels: list[list[str]], after: int) -> Documents:
    pairs_of_labels = [[{"field": FIELD, "value": value} for value in one if not is_missing(value)] for one in labels]
    return Documents(
        numbered_ids(1 + after, len(rows)),
        np.cumsum([0, *map(len, rows)], dtype=np.int64),
        np.array([word for row in rows for word in row], dtype=np.int32),
        np.array([count for row in rows for count in row.values()], dtype=np.int32),
        {"labels": pa.array(pairs_of_labels, EXTRAS["labels"])},
    )


class MatrixSource:
    """One matrix in Matrix Market or SciPy's .npz, which is loaded into memory; rows are documents, columns words."""

    def __init__(self, path: str, options: ReadOptions, first_id: int = 1) -> None:
        self.name, self._first_id, self._limit = path, first_id, options.max_decompressed
        self._encoding = options.encoding
        with reading(path), open_input(path, options.max_decompressed) as handle:
            data = handle.read()
        self._words = vocabulary_near(path, ["vocab.txt"], options)
        self._matrix = self._check(self._load(data))

    def _load(self, data: bytes) -> Any:
        if not data:
            raise InputError(self.name, "expected a matrix, the file is empty")
        if data[:2] != b"PK":
            return self._parse(as_utf8(self.name, data, self._encoding))
        try:
            self._require_sound_archive(data)
            matrix = scipy.sparse.load_npz(io.BytesIO(data))
            if hasattr(matrix, "check_format"):
                # Its arrays are used as memory indices later, so they are checked first.
                matrix.check_format(full_check=True)
        except InputError:
            raise
        # The parsers of archives, headers and arrays raise exceptions that have no common base class.
        except Exception as error:
            raise InputError(self.name, f"{EXPECTED} ({error})") from None
        return matrix

    def _parse(self, data: bytes) -> Any:
        """Parse a Matrix Market file without SciPy, whose reader overruns some damaged files (SciPy 1.17)."""
        lines = io.BytesIO(data)
        banner = lines.readline().lower().split()
        if len(banner) != 5 or banner[:2] != [b"%%matrixmarket", b"matrix"]:
            raise InputError(self.name, f"{EXPECTED} ('%%MatrixMarket matrix coordinate ...')", "line 1")
        if banner[2] != b"coordinate":
            raise InputError(self.name, "expected a sparse matrix (coordinate format), found a dense one", "line 1")
        if banner[3] not in (b"integer", b"real", b"pattern") or banner[4] not in (b"general", b"symmetric"):
            kind = b" ".join(banner[3:]).decode("utf-8", "replace")[:40]
            raise InputError(self.name, f"expected counts, found values of type '{kind}'", "line 1")
        sizes = next((line.split() for line in lines if line.strip() and not line.startswith(b"%")), [])
        if len(sizes) != 3 or not all(size.isdigit() and len(size) < 19 for size in sizes):
            raise InputError(self.name, "expected the numbers of rows, columns and entries", "header")
        rows, columns, entries = map(int, sizes)
        if max(rows, columns) > INT32_MAX:
            raise InputError(self.name, f"expected at most {INT32_MAX} documents and words", "header")
        require_plausible(self.name, rows, entries, "header")
        values = self._numbers(lines.read(), entries, 2 if banner[3] == b"pattern" else 3)
        places = values[:2].astype(np.int64) - 1
        if entries and not ((places >= 0).all() and (places.max(axis=1) < [rows, columns]).all()):
            raise InputError(self.name, f"{EXPECTED} (rows from 1 to {rows}, columns from 1 to {columns})")
        counts = values[2] if len(values) == 3 else np.ones(entries)
        # A symmetric file contains only one triangle.
        if banner[4] == b"symmetric":
            other = places[0] != places[1]
            places = np.concatenate([places, places[::-1, other]], axis=1)
            counts = np.concatenate([counts, counts[other]])
            if entries and places.max() >= min(rows, columns):
                raise InputError(self.name, "expected as many rows as columns, as it is symmetric", "header")
        return scipy.sparse.coo_matrix((counts, (places[0], places[1])), shape=(rows, columns))

    def _numbers(self, body: bytes, entries: int, width: int) -> npt.NDArray[np.float64]:
        """Return the numbers of a body as an array of shape (width, entries)."""
        if body.translate(None, b"0123456789+-.eE \t\r\n"):
            raise InputError(self.name, "expected numbers, three a line")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                numbers = np.fromstring(body.decode("ascii"), sep=" ")
            except (ValueError, DeprecationWarning) as error:
                raise InputError(self.name, f"expected numbers, three a line ({error})") from None
        if numbers.size != entries * width:
            count = numbers.size / width
            raise InputError(self.name, f"expected {entries} entries as its header says, found {count:g}")
        return numbers.reshape(entries, width).T

    def _require_sound_archive(self, data: bytes) -> None:
        """Raise an error if an archive expands to far more than its size, or an array header exceeds its data."""
        limit = max(LEAST_LIMIT, RATIO * len(data)) if self._limit is None else self._limit
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > limit:
                raise InputError(self.name, f"more than {size(limit)} come out of it (`max_decompressed`)")
            for member in members:
                with archive.open(member) as file:
                    version = np.lib.format.read_magic(file)
                    header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
                    shape, _, dtype = header[version](file)
                if dtype.hasobject:
                    raise InputError(
                        self.name, f"expected a sparse matrix of numbers; {member.filename} holds a pickle"
                    )
                if math.prod(shape) * dtype.itemsize > member.file_size:
                    raise InputError(self.name, f"expected {member.filename} to hold the numbers that it promises")

    def _check(self, matrix: Any) -> Any:
        if not scipy.sparse.issparse(matrix):
            raise InputError(self.name, "expected a sparse matrix (coordinate format), found a dense one")
        if matrix.ndim != 2 or matrix.shape[1] != len(self._words):
            raise InputError(
                self.name,
                f"expected a matrix of documents x {len(self._words)} words (the vocabulary's length), found "
                f"{' x '.join(map(str, matrix.shape))}",
            )
        require_plausible(self.name, int(matrix.shape[0]), int(matrix.nnz), "its shape")
        try:
            coordinates = matrix.tocoo()
        except _FAULTS as error:
            raise InputError(self.name, f"expected a sparse matrix ({error})") from None
        if coordinates.data.dtype.kind not in "iuf":
            raise InputError(self.name, f"expected counts, found values of type {coordinates.data.dtype}")
        rows, columns, values = coordinates.row, coordinates.col, coordinates.data
        wrong = ~((values >= 0) & (values <= INT32_MAX) & (values == np.floor(values)))
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise InputError(
                self.name,
                f"expected a whole count of 0 or more, found {values[at].item()!r}",
                f"row {rows[at] + 1}, column {columns[at] + 1}",
            )
        counts = scipy.sparse.csr_matrix(coordinates.astype(np.int64))
        # At most 2^31 entries of less than 2^31 each are added, which 64 bits can represent.
        counts.sum_duplicates()
        counts.eliminate_zeros()
        counts.sort_indices()
        if counts.nnz and int(counts.data.max()) > INT32_MAX:
            at = int(counts.data.argmax())
            row = int(np.searchsorted(counts.indptr, at, side="right"))
            where = f"row {row}, column {int(counts.indices[at]) + 1}"
            raise InputError(
                self.name, f"expected entries of at most {INT32_MAX} in all, found {counts.data[at]}", where
            )
        return counts

    def words(self) -> list[str]:
        """Return the vocabulary in the order of its ids."""
        return self._words

    def documents(self) -> Iterator[Documents]:
        """Yield chunks of 100,000 documents."""
        for first in range(0, self._matrix.shape[0], CHUNK_DOCUMENTS):
            part = self._matrix[first : first + CHUNK_DOCUMENTS]
            yield Documents(
                numbered_ids(self._first_id + first, part.shape[0]),
                part.indptr.astype(np.int64),
                part.indices.astype(np.int32),
                part.data.astype(np.int32),
            )


# The reader of each format
READERS: dict[str, Callable[[str, ReadOptions], Source]] = {
    "uci": UCISource,
    "ldac": LDACSource,
    "mtx": MatrixSource,
    "npz": MatrixSource,
    "svmlight": SVMlightSource,
}
