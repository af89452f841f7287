"""Segments of documents, such as paragraphs or chapters.

On disk they are a column of lists: the number of pairs of each segment of a document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

from collapsium.storage.data_types import AnyArray, Arrays
from collapsium.storage.short_repr import ShortRepr

COLUMN = "segments"
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Segments(ShortRepr):
    """The segments of a shard's documents, in their order.

    Attributes
    ----------
    documents : numpy.ndarray of int64, shape (documents + 1,)
        Offsets of the documents, in segments.
    pairs : numpy.ndarray of int64, shape (segments + 1,)
        Offsets of the segments, in pairs; a segment may have no pair.
    """

    documents: Numbers
    pairs: Numbers

    def __len__(self) -> int:
        return self.pairs.size - 1

    def __sizeof__(self) -> int:
        return self.documents.nbytes + self.pairs.nbytes

    @staticmethod
    def of(offsets: Numbers, extras: Mapping[str, pa.Array]) -> Segments:
        """Return the segments in the further columns of documents.

        Parameters
        ----------
        offsets : numpy.ndarray of int64, shape (documents + 1,)
            Offsets of the documents, in pairs.
        extras : mapping of str to pyarrow.Array
            ``segments``, lists of numbers of pairs; without it each document is one segment.

        Returns
        -------
        Segments
            A document with an empty list, or null, has no segments and no pairs.
        """
        column = extras.get(COLUMN)
        if column is None:
            return Segments(np.arange(offsets.size, dtype=np.int64), np.ascontiguousarray(offsets))
        return Segments(running(segment_counts(column)), segment_bounds(column))

    def emptied(self) -> Segments:
        """Return the same segments without their words."""
        return Segments(self.documents, np.zeros_like(self.pairs))

    def arrays(self) -> dict[str, AnyArray]:
        """Return the segments as plain arrays, for spill files."""
        return {"segment_documents": self.documents, "segment_pairs": self.pairs}

    @staticmethod
    def from_arrays(arrays: Arrays) -> Segments:
        """Return segments from the result of `arrays`."""
        return Segments(arrays["segment_documents"], arrays["segment_pairs"])


def running(counts: AnyArray) -> Numbers:
    """Return the offsets of parts from their sizes; there is one more offset than parts."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])


def segment_counts(segments: pa.Array) -> Numbers:
    """Return the number of segments of each document."""
    import pyarrow.compute as pc

    from collapsium.storage.io.parquet.columns import numbers_of

    lengths = pc.list_value_length(segments)
    counts: Numbers = np.asarray(numbers_of(pc.fill_null(lengths, 0) if lengths.null_count else lengths), np.int64)
    return counts


def segment_bounds(segments: pa.Array) -> Numbers:
    """Return the offsets of all segments, in pairs."""
    from collapsium.storage.io.parquet.columns import numbers_of

    return running(numbers_of(segments.flatten()))


def segment_lists(counts: Numbers, lengths: Numbers) -> pa.Array:
    """Return the column of segments.

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
    import pyarrow as pa

    offsets = pa.array(running(counts).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(lengths.astype(np.int32)))
