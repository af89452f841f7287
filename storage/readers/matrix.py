"""Sparse matrices of documents x words: Matrix Market and SciPy's .npz, read by SciPy, whole, into memory."""

from __future__ import annotations

import io
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from collapsar.storage.errors import InputError
from collapsar.storage.readers.source import (
    INT32_MAX,
    LEAST_LIMIT,
    RATIO,
    ReadOptions,
    open_input,
    reading,
    require_plausible,
    vocabulary_beside,
)
from collapsar.storage.shard import Documents
from collapsar.storage.sizes import size
from collapsar.storage.writer import numbered_ids

PORTION = 100_000  # documents
LEAST_ENTRY = 4  # bytes of a line of a Matrix Market file
_FAULTS = (ValueError, TypeError, KeyError, IndexError, OverflowError, EOFError, OSError, zipfile.BadZipFile)


class MatrixSource:
    """One matrix file whose rows are documents and whose columns are words.

    Parameters
    ----------
    path : str
        A ``.mtx`` (plain or compressed) or ``.npz`` file.
    options : ReadOptions
        Its ``vocabulary`` defaults to ``vocab.txt`` beside the file.
    first_id : int, optional
        Id of the first document.

    Raises
    ------
    InputError
        The file is no such matrix, or the vocabulary has another length.
    """

    def __init__(self, path: str, options: ReadOptions, first_id: int = 1) -> None:
        self.name, self._first_id, self._limit = path, first_id, options.max_decompressed
        with reading(path), open_input(path, options.max_decompressed) as handle:
            data = handle.read()
        self._words = vocabulary_beside(path, ["vocab.txt"], options)
        self._matrix = self._check(self._load(data))

    def _load(self, data: bytes) -> Any:
        if not data:
            raise InputError(self.name, "expected a matrix, the file is empty")
        from scipy.io import mmread  # slow to import, and no other command needs it

        handle = io.BytesIO(data)
        try:
            if data[:2] == b"PK":
                self._require_sound_archive(data)
                matrix = scipy.sparse.load_npz(handle)
            else:
                self._require_sound_header(data)
                # SciPy reads beyond a last line that ends in a blank (segmentation fault, SciPy 1.17).
                matrix = mmread(io.BytesIO(data.rstrip() + b"\n"))
            if hasattr(matrix, "check_format"):
                matrix.check_format(full_check=True)  # what indexes memory is looked at first
        except (zlib.error, struct.error, MemoryError, NotImplementedError, RuntimeError, *_FAULTS) as error:
            if isinstance(error, InputError):
                raise
            text = str(error).replace(repr(handle), "the file")
            expected = "expected a sparse matrix in Matrix Market or SciPy's .npz"
            raise InputError(self.name, f"{expected} ({text})") from None
        return matrix

    def _require_sound_header(self, data: bytes) -> None:
        """Refuse a Matrix Market file whose header promises more than the file can hold."""
        lines = io.BytesIO(data)
        banner = lines.readline().split()
        if len(banner) < 3 or banner[0].lower() != b"%%matrixmarket":
            expected = "expected a sparse matrix in Matrix Market or SciPy's .npz"
            raise InputError(self.name, f"{expected} ('%%MatrixMarket matrix coordinate ...')", "line 1")
        if banner[2].lower() == b"array":
            raise InputError(self.name, "expected a sparse matrix (coordinate format), found a dense one", "line 1")
        sizes = next((line.split() for line in lines if line.strip() and not line.startswith(b"%")), [])
        if len(sizes) != 3 or not all(size.isdigit() and len(size) < 19 for size in sizes):
            raise InputError(self.name, "expected the numbers of rows, columns and entries", "header")
        rows, _, entries = map(int, sizes)
        if entries > len(data) // LEAST_ENTRY:
            raise InputError(self.name, f"expected {entries} entries as its header says; cut short?")
        require_plausible(self.name, rows, entries, "header")

    def _require_sound_archive(self, data: bytes) -> None:
        """Refuse an archive that holds far more than its size, or arrays that promise more than it holds."""
        limit = max(LEAST_LIMIT, RATIO * len(data)) if self._limit is None else self._limit
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > limit:
                raise InputError(self.name, f"more than {size(limit)} come out of it (--max-decompressed)")
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
        counts.sum_duplicates()
        counts.eliminate_zeros()
        counts.sort_indices()
        return counts

    def words(self) -> list[str]:
        """Return the vocabulary in the order of its ids."""
        return self._words

    def documents(self) -> Iterator[Documents]:
        """Give the documents, in portions of 100,000."""
        for first in range(0, self._matrix.shape[0], PORTION):
            part = self._matrix[first : first + PORTION]
            yield Documents(
                numbered_ids(self._first_id + first, part.shape[0]),
                part.indptr.astype(np.int64),
                part.indices.astype(np.int32),
                part.data.astype(np.int32),
            )
