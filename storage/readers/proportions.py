"""Proportions of topics in documents, as sparse rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.storage.short_repr import ShortRepr

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class DocumentProportions(ShortRepr):
    """Proportions of documents, sparse."""

    # Offsets of the documents: document d has the entries ``offsets[d]`` to ``offsets[d + 1] - 1``; none if nothing is
    # known of it; int64 (documents + 1,)
    offsets: Ints
    topics: npt.NDArray[np.int32]  # Topic of each entry; int32 (entries,)
    # Proportion of each entry, positive; those of a document add up to 1; float32 (entries,)
    shares: npt.NDArray[np.float32]
    width: int  # Number of topics: larger than each topic

    @property
    def documents(self) -> int:
        """Number of documents."""
        return self.offsets.size - 1

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Documents that have proportions, as true, shape (documents,)."""
        return np.diff(self.offsets) > 0

    def take(self, places: Ints) -> DocumentProportions:
        """Return the documents at some places; a place of -1 is a document without proportions."""
        lengths = np.where(places < 0, 0, np.diff(self.offsets)[places]) if self.documents else np.zeros_like(places)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        starts = self.offsets[:-1][places] if self.documents else offsets[:-1]
        entries = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - starts, lengths)
        return DocumentProportions(offsets, self.topics[entries], self.shares[entries], self.width)

    def totals(self) -> npt.NDArray[np.float64]:
        """Return the sum of each topic's proportions over the documents, shape (width,)."""
        sums = np.bincount(self.topics, weights=self.shares, minlength=self.width)
        totals: npt.NDArray[np.float64] = np.asarray(sums, dtype=np.float64)
        return totals

    def concentrations(self) -> npt.NDArray[np.float64]:
        """Return the sum of the squared proportions of each document, shape (documents,); 0 for none."""
        owner = np.repeat(np.arange(self.documents), np.diff(self.offsets))
        squares = self.shares.astype(np.float64) ** 2
        sums = np.bincount(owner, weights=squares, minlength=self.documents)
        concentrations: npt.NDArray[np.float64] = np.asarray(sums, dtype=np.float64)
        return concentrations

    def in_columns(self, columns: Ints) -> DocumentProportions:
        """Return the proportions with renumbered topics."""
        owner, topics = np.repeat(np.arange(self.documents), np.diff(self.offsets)), columns[self.topics]
        retained = topics >= 0
        return sparse_proportions(
            owner[retained], topics[retained], self.shares[retained], self.documents, int(columns.max(initial=-1)) + 1
        )


def sparse_proportions(
    owner: Ints, topics: npt.NDArray[np.integer], shares: npt.NDArray[np.floating], documents: int, width: int
) -> DocumentProportions:
    """Return proportions from the entries of documents, scaled to a sum of 1."""
    positive = shares > 0.0
    owner, topics, weights = owner[positive], topics[positive], shares[positive].astype(np.float64)
    totals = np.bincount(owner, weights=weights, minlength=documents)
    scaled = (weights / totals[owner]).astype(np.float32)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=documents))]).astype(np.int64)
    return DocumentProportions(offsets, topics.astype(np.int32), scaled, width)
