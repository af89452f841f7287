"""Seed words by their ids in the vocabulary of a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from collapsium.pipeline.families.base import FamilyOptions, SeedTable
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.vocabulary import as_spelled_in, named_unknown
from collapsium.storage.errors import OptionError

SEEDS = "seeds"


def seeds_of(corpus: Corpus, config: FamilyOptions) -> SeedTable | None:
    """Return the pseudo-counts of seeded topics."""
    seeds = getattr(config, SEEDS, ())
    return _table(corpus.folder.address, corpus.manifest.digest, seeds) if seeds else None


@lru_cache(maxsize=4)
def _table(address: str, digest: str, seeds: Sequence[Any]) -> SeedTable:  # noqa: ARG001
    """Return the pseudo-counts, once for the check and the fit; a corpus that has changed has another digest."""
    vocabulary = Corpus(address).vocabulary
    ids = {word: number for number, word in enumerate(vocabulary.words)}
    named_words = list(dict.fromkeys(word for topic in seeds for word in topic.words))
    own = dict(zip(named_words, as_spelled_in(vocabulary.words, named_words), strict=True))
    unknown = [word for word in named_words if own[word] not in ids]
    if unknown:
        named = named_unknown(unknown, vocabulary.words)
        raise OptionError(f"expected words of the vocabulary; it has no {named}", SEEDS)
    entries = [(k, ids[own[word]], topic.strength) for k, topic in enumerate(seeds) for word in topic.words]
    topics, words, strength = (np.array(values) for values in zip(*entries, strict=True))
    # Words that were appended to a vocabulary may have no tokens yet.
    counts = strength.astype(np.float64) * np.maximum(vocabulary.tokens[words], 1)
    return SeedTable(topics.astype(np.int64), words.astype(np.int64), counts)
