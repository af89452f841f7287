"""Sparse matrices of documents x words: Matrix Market and SciPy's .npz, read by SciPy, whole, into memory."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from collapsar.storage.errors import InputError
from collapsar.storage.readers.source import INT32_MAX, ReadOptions, open_input, reading, vocabulary_beside
from collapsar.storage.shard import Documents
from collapsar.storage.writer import numbered_ids

PORTION = 100_000  # documents


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
        self.name, self._first_id = path, first_id
        with reading(path), open_input(path) as handle:
            data = handle.read()
        self._words = vocabulary_beside(path, ["vocab.txt"], options.vocabulary)
        self._matrix = self._check(self._load(data))

    def _load(self, data: bytes) -> Any:
        if not data:
            raise InputError(self.name, "expected a matrix, the file is empty")
        from scipy.io import mmread  # slow to import, and no other command needs it

        handle = io.BytesIO(data)
        try:
            return scipy.sparse.load_npz(handle) if data[:2] == b"PK" else mmread(handle)
        except (ValueError, TypeError, KeyError, OverflowError, EOFError, OSError, zipfile.BadZipFile) as error:
            text = str(error).replace(repr(handle), "the file")
            expected = "expected a sparse matrix in Matrix Market or SciPy's .npz"
            raise InputError(self.name, f"{expected} ({text})") from None

    def _check(self, matrix: Any) -> Any:
        if not scipy.sparse.issparse(matrix):
            raise InputError(self.name, "expected a sparse matrix (coordinate format), found a dense one")
        if matrix.ndim != 2 or matrix.shape[1] != len(self._words):
            raise InputError(
                self.name,
                f"expected a matrix of documents x {len(self._words)} words (the vocabulary's length), found "
                f"{' x '.join(map(str, matrix.shape))}",
            )
        coordinates = matrix.tocoo()
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
