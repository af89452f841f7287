"""Documents as kernels take them, and their expected counts by topic as sparse entries, which edits of topics move."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.kernels.jit import UNWEIGHTED, DocumentPairs

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


Weights = npt.NDArray[np.float32]


def document_pairs(shard: Shard) -> DocumentPairs:
    """Return the documents of a shard as word-count pairs."""
    return DocumentPairs(shard.offsets, shard.position, shard.counts, pair_weights(shard))


def pair_weights(shard: Shard) -> Weights:
    """Return the weights of a shard's tokens as kernels take them."""
    return UNWEIGHTED if shard.weights is None else shard.weights


def weighed(shard: Shard, word_weight: Weights | None, *, log_counts: bool) -> Shard:
    """Return a shard whose tokens have the weights of their words."""
    if word_weight is None:
        return shard
    weights = np.asarray(word_weight, dtype=np.float32)[shard.position]
    if log_counts:
        weights *= (special.log1p(shard.counts.astype(np.float64)) / np.maximum(shard.counts, 1)).astype(np.float32)
    return replace(shard, weights=weights)


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DocumentEntries:
    """Expected counts E[n_dk] of a shard's documents, sparse."""

    # Document and topic of each count, by document and then by topic, each pair once; int64 (entries,)
    owner: Ints
    topic: Ints
    count: Floats  # The counts; float64 (entries,)
    # Tokens of each document that its other topics share in proportion to their prior; 0 where all have entries;
    # float64 (documents,)
    rest: Floats

    @classmethod
    def summed(cls, owner: Ints, topic: Ints, count: Floats, rest: Floats) -> DocumentEntries:
        """Return entries in order, with the counts of equal documents and topics added up."""
        order = np.lexsort((topic, owner))
        owner, topic, count = owner[order], topic[order], count[order]
        if not owner.size:
            return cls(owner, topic, count, rest)
        first = np.concatenate([[True], (np.diff(owner) != 0) | (np.diff(topic) != 0)])
        starts = np.flatnonzero(first)
        return cls(owner[starts], topic[starts], np.add.reduceat(count, starts), rest)

    @property
    def documents(self) -> int:
        """Number of documents."""
        return self.rest.size

    def merged(self, topics: list[int], prior: Floats) -> DocumentEntries:
        """Return the entries after topics were merged into the first of them."""
        left = prior.sum() - np.bincount(self.owner, weights=prior[self.topic], minlength=self.documents)
        growth = np.where(left > 0.0, self.rest / np.where(left > 0.0, left, 1.0), 0.0)
        is_merged = np.isin(self.topic, topics)
        some = np.zeros(self.documents, dtype=bool)
        some[self.owner[is_merged]] = True
        absent = prior[topics].sum() - np.bincount(
            self.owner[is_merged], weights=prior[self.topic[is_merged]], minlength=self.documents
        )
        shares = np.where(some, np.minimum(growth * np.maximum(absent, 0.0), self.rest), 0.0)
        receivers = np.flatnonzero(some)
        return DocumentEntries.summed(
            np.concatenate([self.owner, receivers]),
            np.concatenate([np.where(is_merged, topics[0], self.topic), np.full(receivers.size, topics[0])]),
            np.concatenate([self.count, shares[receivers]]),
            self.rest - shares,
        )
