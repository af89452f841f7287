"""Reader of sparse matrices of documents x words in Matrix Market and SciPy's .npz, which are loaded into memory."""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.writer import numbered_ids
from collapsium.storage.errors import InputError
from collapsium.storage.io.parquet import LEAST_LIMIT, RATIO
from collapsium.storage.readers.base import INT32_MAX, as_utf8, open_input, reading, require_plausible, vocabulary_near
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.units import size

CHUNK_DOCUMENTS = 100_000  # documents
EXPECTED = "expected a sparse matrix in Matrix Market or SciPy's .npz"
_FAULTS = (ValueError, TypeError, IndexError, OverflowError)


class MatrixSource:
    """One matrix file whose rows are documents and whose columns are words."""

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
