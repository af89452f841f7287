"""Segments of documents: the parts, such as paragraphs or chapters, that a corpus may tell apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

COLUMN = "segments"


@dataclass(frozen=True)
class Segments:
    """The segments of a shard's documents, in their order.

    Attributes
    ----------
    documents : numpy.ndarray of int64, shape (documents + 1,)
        Where each document's segments begin.
    pairs : numpy.ndarray of int64, shape (segments + 1,)
        Where each segment's pairs begin; of a segment without a word, where the next one's do.
    """

    documents: npt.NDArray[np.int64]
    pairs: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return self.pairs.size - 1

    def __sizeof__(self) -> int:
        return self.documents.nbytes + self.pairs.nbytes

    @staticmethod
    def of(offsets: npt.NDArray[np.int64], extras: Mapping[str, pa.Array]) -> Segments:
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
        numbers = np.asarray(pc.fill_null(pc.list_value_length(column), 0), dtype=np.int64)
        lengths = np.asarray(pc.list_flatten(column), dtype=np.int64)
        return Segments(_running(numbers), _running(lengths))

    def emptied(self) -> Segments:
        """Return the same segments without their words."""
        return Segments(self.documents, np.zeros_like(self.pairs))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the same as plain arrays, for scratch files."""
        return {"segment_documents": self.documents, "segment_pairs": self.pairs}

    @staticmethod
    def from_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> Segments:
        """Take them back from what `arrays` gave."""
        return Segments(arrays["segment_documents"], arrays["segment_pairs"])


def _running(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
