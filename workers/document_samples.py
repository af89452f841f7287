"""Samples of documents on which a fit begins, before all documents of the corpus have joined."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.shard import Shard
from collapsium.storage.corpus.vectors import AnyShard, VectorShard
from collapsium.workers.arrays.random_streams import Stream


@dataclass(frozen=True, slots=True)
class DocumentSample:
    """A random sample of the documents of each shard.

    Samples of one stream are nested: the documents of a smaller one are in every larger one.
    """

    stream: Stream  # Random stream of the sample, the same in all iterations
    every: int  # One document in `every` belongs to the sample, rounded up in each shard
    before: int = 0  # One document in `before` did in the previous iteration; a multiple of `every`, 0 at the start

    @property
    def grows(self) -> bool:
        """True if documents join in this iteration."""
        return self.before > self.every

    def of(self, shard: AnyShard) -> Shard:
        """Return a shard with the words of the sample's documents alone; the others are empty."""
        documents = _documents(shard)
        return documents if self.every == 1 else documents.of_documents(self._contains(documents, self.every))

    def joining(self, shard: AnyShard) -> Shard:
        """Return a shard with the words of the documents alone that join in this iteration."""
        documents = _documents(shard)
        joining = self._contains(documents, self.every) & ~self._contains(documents, self.before)
        return documents.of_documents(joining)

    def _contains(self, shard: Shard, every: int) -> npt.NDArray[np.bool_]:
        """Return whether each of a shard's documents belongs to a sample, shape (documents,)."""
        # The order of documents may follow dates or labels, so every n-th document would be a biased sample.
        order = self.stream.at(place=shard.number).generator().permutation(shard.documents)
        chosen = np.zeros(shard.documents, dtype=bool)
        chosen[order[: -(-shard.documents // every)]] = True
        return chosen


def _documents(shard: AnyShard) -> Shard:
    """Return a shard of documents; raise `TypeError` for vectors, which are never sampled."""
    if isinstance(shard, VectorShard):
        raise TypeError("expected documents, found vectors")
    return shard
