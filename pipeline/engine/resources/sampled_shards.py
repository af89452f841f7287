"""Sizes of a corpus that its manifest does not have, estimated from a few of its shards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.shard import Shard
from collapsium.workers.shard_loading import NEARLY_ALL


def sample_shards(corpus: Corpus) -> tuple[int, float, npt.NDArray[np.int64] | None]:
    """Estimate from two shards the figures that the manifest does not have.

    Returns words: Words of the largest shard, extrapolated from the first by the number of pairs; growth: Exponent g: n
    shards together have n^g times the words of one; lengths: Pairs of each document of the first shard
    """
    manifest = corpus.manifest
    largest = max((row.pairs for row in manifest.shards), default=0)
    if not largest:
        return manifest.vocabulary.words, 0.0, None
    width = manifest.vocabulary.words
    if manifest.vectors is not None:
        # Each vector has all columns.
        return width, 0.0, np.full(manifest.shards[0].documents, width, dtype=np.int64)
    filled = [reference for reference in corpus.references if reference.record.pairs]
    shard, growth = cast(Shard, filled[0].load()), 0.0
    if len(filled) > 1 and shard.words.size < NEARLY_ALL * manifest.vocabulary.words:
        union = np.union1d(shard.words, filled[len(filled) // 2].load().words).size
        growth = math.log2(max(union / max(shard.words.size, 1), 1.0))
    words = shard.words.size * largest / filled[0].record.pairs
    return int(min(words, manifest.vocabulary.words)), growth, np.diff(shard.offsets)


@dataclass(frozen=True)
class HeldOut:
    """Pairs and documents of the held-out tokens, and the words of one of their shards."""

    pairs: int = 0
    documents: int = 0
    words: int = 0


def held_out(corpus: Corpus | None) -> HeldOut:
    """Return the sizes of the held-out tokens; all are 0 without a corpus."""
    if corpus is None:
        return HeldOut()
    filled = [reference for reference in corpus.references if reference.record.pairs]
    words = cast(Shard, filled[0].load()).words.size if filled and corpus.manifest.vectors is None else 0
    return HeldOut(corpus.manifest.pairs, corpus.manifest.documents, words)
