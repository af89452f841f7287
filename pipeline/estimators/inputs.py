"""Check matrices of documents x words, and convert them to chunks of documents or to a corpus."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.validation import check_array, validate_data

from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import DOCUMENTS
from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.writer import CorpusWriter, numbered_ids
from collapsium.storage.errors import InputError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.transactions import created
from collapsium.storage.readers.base import INT32_MAX

# Number of documents in a chunk when a corpus is written.
WRITTEN = 100_000
# Number of entries of a dense array that are converted to sparse ones at a time.
CELLS = 1 << 24
FRACTIONAL = ("error", "round")


def as_corpus(X: Any) -> Corpus | None:
    """Return the corpus of documents that X is, or is the path of; None for a matrix."""
    if not isinstance(X, (Corpus, str, os.PathLike)):
        return None
    corpus = X if isinstance(X, Corpus) else Corpus(X)
    corpus.require(DOCUMENTS, "an estimator of topics")
    return corpus


def validated(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return a checked matrix, and set or compare the columns of the estimator."""
    if not is_dask(X):
        _require_matrix(X)
        if hasattr(X, "to_dask_array"):
            raise InputError("X", "expected a Dask array rather than a Dask frame: X.to_dask_array(lengths=True)")
        return validate_data(
            estimator, X, reset=reset, accept_sparse="csr", accept_large_sparse=True, ensure_non_negative=True
        )
    if X.ndim != 2 or not np.isfinite(X.shape[1]):
        raise InputError("X", f"expected a Dask array of documents x words, found the shape {X.shape}")
    return validate_data(estimator, X, reset=reset, skip_check_array=True)


def _require_matrix(X: Any) -> None:
    """Refuse containers of matrices, which NumPy would take apart item by item without end."""
    if all(hasattr(X, name) for name in ("X", "obs_names", "var_names")):
        raise InputError(
            "X", f"expected counts, found an {type(X).__name__} object; pass its matrix of counts, such as X.X"
        )
    if type(X).__name__ == "LazyFrame":
        raise InputError("X", f"expected a frame in memory, found a {type(X).__name__}; pass X.collect()")
    protocols = ("__array__", "__array_interface__", "__dataframe__")
    plain = isinstance(X, (list, tuple)) or scipy.sparse.issparse(X) or not hasattr(X, "__getitem__")
    if not plain and not any(hasattr(X, name) for name in protocols):
        raise InputError("X", f"expected an array, a sparse matrix, a frame or a corpus, found {type(X).__name__}")


def is_dask(X: Any) -> bool:
    """Return True for a Dask array, without importing Dask."""
    return type(X).__module__.partition(".")[0] == "dask" and hasattr(X, "blocks")


def document_chunks(X: Any, most: int, fractional: str, name: str) -> Iterator[Documents]:
    """Yield the rows of a checked matrix as chunks of documents."""
    if fractional not in FRACTIONAL:
        raise OptionError(f"fractional: expected {' or '.join(map(repr, FRACTIONAL))}, found {fractional!r}")
    waiting: list[Documents] = []
    count = first = 0
    for part in _parts(X, most, name):
        documents = _documents(part, first, fractional)
        first += len(documents)
        waiting.append(documents)
        count += len(documents)
        while count >= most:
            joined = Documents.join(waiting)
            yield joined.slice(0, most)
            waiting, count = [joined.slice(most, count)], count - most
    if count:
        yield Documents.join(waiting)


def written(X: Any, folder: str, words: list[str], shard_tokens: int | None, fractional: str, name: str) -> Corpus:
    """Return a corpus that is written from a checked matrix."""
    if shard_tokens is not None and shard_tokens < 1:
        raise OptionError(f"shard_tokens: expected 1 or more, found {shard_tokens}")
    with created(Folder(folder)) as made:
        writer = CorpusWriter(made, len(words), shard_tokens)
        for documents in document_chunks(X, WRITTEN, fractional, name):
            writer.add(documents)
        try:
            writer.finish(words)
        except InputError as error:
            raise InputError("X", error.expected) from None
    return Corpus(folder)


def _parts(X: Any, most: int, name: str) -> Iterator[Any]:
    """Yield a matrix in parts of rows; blocks of a Dask array are computed one after another."""
    if not is_dask(X):
        rows = most if scipy.sparse.issparse(X) else min(most, max(CELLS // X.shape[1], 1))
        for first in range(0, X.shape[0], rows):
            yield X[first : first + rows]
        return
    for number in range(X.numblocks[0]):
        block = X.blocks[number].compute()
        if not block.shape[0]:
            continue
        checked = check_array(
            block,
            accept_sparse="csr",
            accept_large_sparse=True,
            ensure_non_negative=True,
            estimator=name,
            input_name="X",
        )
        yield from _parts(checked, most, name)


def _documents(part: Any, first: int, fractional: str) -> Documents:
    """Return rows as documents, without changing the rows."""
    counts = scipy.sparse.csr_array(part, copy=True)
    counts.check_format(full_check=True)
    if counts.dtype.kind != "f":
        counts = counts.astype(np.int64)
    counts.sum_duplicates()
    values = counts.data
    if fractional == "round" and values.dtype.kind == "f":
        np.rint(values, out=values)
    wrong = (values > INT32_MAX) | ((values != np.floor(values)) if values.dtype.kind == "f" else False)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        row = int(np.searchsorted(counts.indptr, at, side="right")) - 1
        raise InputError(
            "X",
            f"expected whole counts of words from 0 to {INT32_MAX}, found {values[at].item()!r}; fractional='round' "
            "takes the nearest whole number",
            f"row {first + row}, column {counts.indices[at]}",
        )
    counts.eliminate_zeros()
    return Documents(
        numbered_ids(first + 1, counts.shape[0]),
        counts.indptr.astype(np.int64),
        counts.indices.astype(np.int32),
        counts.data.astype(np.int32),
    )
