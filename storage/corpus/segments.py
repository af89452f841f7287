"""Segments of documents: the parts, such as paragraphs or chapters, that a corpus may tell apart.

On disk they are a column of lists, which hold the number of pairs of each segment of a document.
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
        Where each document's segments begin.
    pairs : numpy.ndarray of int64, shape (segments + 1,)
        Where each segment's pairs begin; of a segment without a word, where the next one's do.
    """

    documents: Numbers
    pairs: Numbers

    def __len__(self) -> int:
        return self.pairs.size - 1

    def __sizeof__(self) -> int:
        return self.documents.nbytes + self.pairs.nbytes

    @staticmethod
    def of(offsets: Numbers, extras: Mapping[str, pa.Array]) -> Segments:
        """Take them from the further columns of documents.

        Parameters
        ----------
        offsets : numpy.ndarray of int64, shape (documents + 1,)
            Where each document's pairs begin.
        extras : mapping of str to pyarrow.Array
            ``segments``, lists of numbers of pairs; without it each document is one segment.

        Returns
        -------
        Segments
            A document whose list is null or empty has none, and no pairs.
        """
        column = extras.get(COLUMN)
        if column is None:
            return Segments(np.arange(offsets.size, dtype=np.int64), np.ascontiguousarray(offsets))
        return Segments(running(segment_counts(column)), segment_bounds(column))

    def emptied(self) -> Segments:
        """Return the same segments without their words."""
        return Segments(self.documents, np.zeros_like(self.pairs))

    def arrays(self) -> dict[str, AnyArray]:
        """Return the same as plain arrays, for scratch files."""
        return {"segment_documents": self.documents, "segment_pairs": self.pairs}

    @staticmethod
    def from_arrays(arrays: Arrays) -> Segments:
        """Take them back from what `arrays` gave."""
        return Segments(arrays["segment_documents"], arrays["segment_pairs"])


def running(counts: AnyArray) -> Numbers:
    """Return where each of some parts begins, and behind them where the last one ends."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])


def segment_counts(segments: pa.Array) -> Numbers:
    """Count the segments of each document; a list that is null has none."""
    import pyarrow.compute as pc

    from collapsium.storage.io.parquet.columns import numbers_of

    lengths = pc.list_value_length(segments)
    counts: Numbers = np.asarray(numbers_of(pc.fill_null(lengths, 0) if lengths.null_count else lengths), np.int64)
    return counts


def segment_bounds(segments: pa.Array) -> Numbers:
    """Return where the pairs of each segment of all documents begin, and behind them where the last one ends."""
    from collapsium.storage.io.parquet.columns import numbers_of

    return running(numbers_of(segments.flatten()))


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
    import pyarrow as pa

    offsets = pa.array(running(counts).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(lengths.astype(np.int32)))
