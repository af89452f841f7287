"""Sweeps over the tokens of a shard, in which topics may be created."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from collapsium.storage.errors import NumericalError
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.dirichlet import DirichletPriors
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.gibbs.states import MAX_TOPICS, Counts, Ints, TokenTopics, Vector
from collapsium.workers.families.gibbs.token_counts import lengthened, padded, widened
from collapsium.workers.kernels.gibbs.records import TopicCounts, TopicPrior, TopicSlots, WordPrior
from collapsium.workers.kernels.gibbs.topics import CHUNK, sweep_tokens

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


@dataclass
class Slots:
    """Slots for the topics that are created while a shard is swept."""

    gamma: float  # Concentration of the sticks
    free: list[int]  # Slots that this shard may take, ascending
    # Further slots are `first`, `first` + `stride`, ..
    first: int
    stride: int

    def take_further(self) -> list[int]:
        """Return some further slots, ascending, which are then taken."""
        count = max(CHUNK // self.stride, 1)
        further = [self.first + self.stride * number for number in range(count)]
        self.first += self.stride * count
        return further


@dataclass
class TokenSweep:
    """Counts of a shard that are updated with each token that is drawn."""

    token_topic: TokenTopics  # z; uint16 (tokens,)
    word_topic: Counts  # n_kw, with the changes of this shard; int32 (words of the shard, columns)
    # a_k and n_k; float64 (columns,)
    prior: Vector
    totals: Vector
    remainder: Vector  # Sum of a of all topics that do not exist yet; float64 (1,)

    def widen(self, columns: int) -> None:
        """Append empty topics; raise `NumericalError` if tokens could not name them."""
        if columns > MAX_TOPICS:
            raise NumericalError(f"more than {MAX_TOPICS} topics are needed; take a smaller gamma or a larger beta")
        self.word_topic = widened(self.word_topic, columns)
        self.prior, self.totals = lengthened(self.prior, columns), lengthened(self.totals, columns)

    def run(self, shard: Shard, priors: DirichletPriors, stream: Stream, slots: Slots | None) -> None:
        """Draw each token's topic once; append slots whenever none is free for a new topic."""
        documents, key, word_prior = document_pairs(shard), stream.key(), WordPrior(priors.word, priors.total)
        free = np.array(slots.free[::-1] if slots else [], dtype=np.int64)
        free_count, progress = np.array([free.size]), np.zeros(3, dtype=np.int64)
        reusable = np.zeros(self.prior.size, dtype=np.int64)
        reusable[free] = 1
        while True:
            sweep_tokens(
                documents,
                key,
                word_prior,
                TopicPrior(self.prior, self.remainder),
                TopicSlots(slots.gamma if slots else 0.0, reusable, free, free_count),
                TopicCounts(self.totals, self.word_topic),
                self.token_topic,
                progress,
            )
            if slots is None or progress[0] == shard.documents:
                return
            further = slots.take_further()
            self.widen(padded(further[-1] + 1))
            reusable = lengthened(reusable, self.prior.size)
            reusable[further] = 1
            free = np.concatenate([np.array(further[::-1], dtype=np.int64), np.zeros(free.size, dtype=np.int64)])
            free_count[0] = len(further)


def sweep_shard(
    shard: Shard,
    token_topic: TokenTopics | None,
    word_topic: Counts,
    topic: Ints,
    priors: DirichletPriors,
    stream: Stream,
    slots: Slots | None = None,
) -> TokenSweep:
    """Draw each token's topic once."""
    columns = padded(priors.topics.size)
    remainder = max(priors.concentration - float(priors.topics.sum()), 0.0) if slots else 0.0
    sweep = TokenSweep(
        token_topic=np.array(token_topic),
        word_topic=widened(word_topic, columns),
        prior=lengthened(priors.topics, columns),
        totals=lengthened(topic.astype(np.float64), columns),
        remainder=np.array([remainder]),
    )
    sweep.run(shard, priors, stream, slots)
    return sweep
