"""Segments of documents as arrays: a column of lists, which hold the number of pairs of each segment of a document."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

COLUMN = "segments"
Numbers = npt.NDArray[np.int64]


def running(counts: npt.NDArray[Any]) -> Numbers:
    """Return where each of some parts begins, and behind them where the last one ends."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])


def segment_counts(segments: pa.Array) -> Numbers:
    """Count the segments of each document; a list that is null has none."""
    counts: Numbers = np.asarray(pc.fill_null(pc.list_value_length(segments), 0), dtype=np.int64)
    return counts


def segment_bounds(segments: pa.Array) -> Numbers:
    """Return where the pairs of each segment of all documents begin, and behind them where the last one ends."""
    return running(np.asarray(segments.flatten(), dtype=np.int64))


def segment_lists(counts: Numbers, lengths: Numbers) -> pa.Array:
    """Make the column.

    Parameters
    ----------
    counts : numpy.ndarray of int64, shape (documents,)
        Segments of each document.
    lengths : numpy.ndarray of int64, shape (segments,)
        Pairs of each segment.

    Returns
    -------
    pyarrow.Array of list of int32
        A list a document.
    """
    offsets = pa.array(running(counts).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(lengths.astype(np.int32)))


def segments_agree(segments: pa.Array, offsets: Numbers) -> bool:
    """Tell whether the segments of each document have as many pairs as it has itself.

    Parameters
    ----------
    segments : pyarrow.Array
        The column, which may be anything.
    offsets : numpy.ndarray of int64, shape (documents + 1,)
        Where each document's pairs begin.

    Returns
    -------
    bool
        False also where it is no column of lists of whole numbers, none of them negative or missing.
    """
    if not (pa.types.is_list(segments.type) and pa.types.is_integer(segments.type.value_type)):
        return False
    lengths = segments.flatten()
    if lengths.null_count or (len(lengths) and pc.min(lengths).as_py() < 0):
        return False
    return np.array_equal(segment_bounds(segments)[running(segment_counts(segments))], offsets)
