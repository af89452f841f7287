"""Convert shards to the arguments of kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collapsium.workers.kernels.records import DocumentPairs

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


def document_pairs(shard: Shard) -> DocumentPairs:
    """Return the documents of a shard as word-count pairs."""
    return DocumentPairs(shard.offsets, shard.position, shard.counts)
