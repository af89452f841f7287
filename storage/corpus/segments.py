"""Segments of documents, such as paragraphs or chapters.

On disk they are a column of lists: the number of pairs of each segment of a document.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import AnyArray, Arrays
from collapsium.storage.printable import ShortRepr

COLUMN = "segments"
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Segments(ShortRepr):
    """The segments of a shard's documents, in their order."""

    documents: Numbers  # Offsets of the documents, in segments; int64 (documents + 1,)
    pairs: Numbers  # Offsets of the segments, in pairs; a segment may have no pair; int64 (segments + 1,)

    def __len__(self) -> int:
        return self.pairs.size - 1

    def __sizeof__(self) -> int:
        return self.documents.nbytes + self.pairs.nbytes

    @staticmethod
    def of_documents(offsets: Numbers) -> Segments:
        """Return each document as one segment; `offsets` are the documents' offsets, in pairs."""
        return Segments(np.arange(offsets.size, dtype=np.int64), np.ascontiguousarray(offsets))

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
