"""Convert draws from a generative model to documents and vectors, as they are written to a corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.storage.corpus.labels import Name
from collapsium.storage.corpus.list_columns import segment_lists
from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.corpus.shard import EXTRAS, Documents
from collapsium.storage.corpus.vectors import Vectors

Ints = npt.NDArray[np.int64]
Pairs = npt.NDArray[np.int32]


def drawn_documents(
    offsets: Ints, words: Pairs, counts: Pairs, extras: Mapping[str, pa.Array] | None = None
) -> Documents:
    """Return documents without ids, which depend on their position in the corpus; arguments as of `Documents`."""
    return Documents(pa.nulls(offsets.size - 1, pa.string()), offsets, words, counts, extras or {})


def drawn_vectors(values: npt.NDArray[np.float64]) -> Vectors:
    """Return vectors without ids; `values` has the shape (vectors, columns)."""
    return Vectors(pa.nulls(len(values), pa.string()), values)


def label_column(has: npt.NDArray[np.bool_], names: Sequence[Name]) -> pa.Array:
    """Return the column of labels; `has` has the shape (documents, labels)."""
    label = np.nonzero(has)[1]
    parts = [pa.array([names[value][place] for value in label.tolist()], pa.string()) for place in (0, 1)]
    flat = pa.StructArray.from_arrays(parts, fields=list(LABELS.value_type))
    offsets = pa.array(np.concatenate([[0], np.cumsum(has.sum(axis=1))]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, flat, type=LABELS)


def segment_column(counts: Ints, lengths: Ints) -> pa.Array:
    """Return the column of segments: `counts` of each document, `lengths` of each segment in pairs."""
    return segment_lists(counts, lengths).cast(EXTRAS["segments"])
