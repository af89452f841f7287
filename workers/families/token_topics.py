"""Columns that count the tokens of samplers whose tokens have topics: those of their topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels.gibbs.consistency import FingerprintKeys, fingerprint_tokens

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard
    from collapsium.workers.arrays.array_fields import Keys
    from collapsium.workers.arrays.state import Arrays


class TokenTopics:
    """The topics of tokens, from an array ``token_topic``."""

    def columns(self, local: Arrays, shard: Shard) -> npt.NDArray[np.int64]:
        """Return the topic of each token."""
        return np.asarray(local["token_topic"]).astype(np.int64)

    def fingerprint(self, local: Arrays, shard: Shard, words: Keys, columns: Keys) -> int:
        """Return the sum of the products of the keys of each token's word and topic, modulo 2^64."""
        total = np.zeros(1, dtype=np.uint64)
        fingerprint_tokens(document_pairs(shard), local["token_topic"], FingerprintKeys(words, columns), total)
        return int(total[0])


TOKEN_TOPICS = TokenTopics()
