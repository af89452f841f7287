"""The tokens of a shard: their initial topics, sweeps in which topics may be created, and whole counts.

A pair with count c is c tokens, which may have different topics; a pair's tokens are adjacent in arrays by token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from collapsium.storage.data_types import AnyArray
from collapsium.storage.errors import NumericalError
from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Part, change, fresh
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.dirichlet import DirichletPriors, proportions_and_topics
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.families.gibbs.states import MAX_TOPICS, ActiveTopics, Counts, Ints, TokenTopics, Vector
from collapsium.workers.kernels.cvb import words
from collapsium.workers.kernels.gibbs.records import DocumentTopics, TopicCounts, TopicPrior, TopicSlots, WordPrior
from collapsium.workers.kernels.gibbs.topics import CHUNK, draw_topics, list_documents, sweep_tokens

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard


def padded(topics: int) -> int:
    """Return the number of columns that the kernels work on."""
    return -(-topics // CHUNK) * CHUNK


def draw_initial_topics(shard: Shard, topics: int, columns: int, stream: Stream, warm: Arrays | None) -> TokenTopics:
    """Draw a topic for each token."""
    if warm is None:
        return stream.generator().integers(0, topics, shard.tokens, dtype=np.uint16)
    theta, phi = proportions_and_topics(warm, shard.words.size, np.float64)
    if theta.shape[1] > columns:
        raise ValueError(f"expected at most {columns} topics to start from, found {theta.shape[1]}")
    token_topic = np.empty(shard.tokens, dtype=np.uint16)
    draw_topics(document_pairs(shard), theta, phi, stream.key(), token_topic)
    return token_topic


def count_words(shard: Shard, token_topic: TokenTopics, columns: int) -> Part:
    """Return n_kw of a shard's tokens as a change from nothing."""
    word_topic = np.zeros((shard.words.size, columns), dtype=np.int32)
    np.add.at(word_topic, (np.repeat(shard.position, shard.counts), token_topic), 1)
    return change(word_topic, "word", "topic")


def delta_ids(shard: Shard, columns: int) -> dict[str, AnyArray]:
    """Return the ids of a delta's rows and columns; deltas of other numbers of columns add to it."""
    return {"word": shard.words, "topic": np.arange(columns)}


def lengthened(values: AnyArray, size: int) -> AnyArray:
    """Return an array with zeros appended up to a size."""
    return np.concatenate([values, np.zeros(size - values.size, dtype=values.dtype)])


def widened(word_topic: AnyArray, columns: int) -> AnyArray:
    """Return a copy of rows with a number of columns, those beyond the old ones zero."""
    wide = buffers.empty((len(word_topic), columns), word_topic.dtype)
    wide[:, : word_topic.shape[1]] = word_topic
    wide[:, word_topic.shape[1] :] = 0
    return wide


def word_changes(before: Counts, after: Counts) -> Part:
    """Return the change of rows, which may have more columns than before."""
    difference = buffers.empty(after.shape, np.int32)
    columns = before.shape[1]
    np.subtract(after[:, :columns], before, out=difference[:, :columns])
    difference[:, columns:] = after[:, columns:]
    return change(difference, "word", "topic")


def add_word_changes(before: Counts, changes: Counts, ids: Ints) -> tuple[Counts, dict[str, Part]]:
    """Add changes to the rows of a block.

    Returns after: The new n_kw; parts: Changes of n_k (``topic``), and ``moved``, the sum of absolute changes of n_kw
    """
    after = widened(before, max(changes.shape[1], before.shape[1]))
    if ids.size == len(after):
        after[:, : changes.shape[1]] += changes
    else:
        after[ids, : changes.shape[1]] += changes
    topic = changes.sum(axis=0, dtype=np.int64)
    return after, {
        "topic": change(topic, "topic"),
        "moved": fresh(float(np.abs(changes).sum(dtype=np.int64))),
    }


def count_documents(
    shard: Shard, token_topic: TokenTopics, prior: Vector, *, tables: bool
) -> tuple[ActiveTopics, dict[str, Part]]:
    """Count each document's tokens by topic, and sum over documents what updates need.

    Returns active: n_dk; sums: Fresh ``rising``, sum_dk log G(a_k + n_dk) / G(a_k), and ``tables``, sum_d a_k (psi(a_k
    + n_dk) - psi(a_k))
    """
    record = DocumentTopics(
        offsets=np.zeros(shard.documents + 1, dtype=np.int64),
        topic=np.empty(token_topic.size, dtype=np.uint16),
        counts=np.empty(token_topic.size, dtype=np.float32),
    )
    table_sums, rising = np.zeros(prior.size if tables else 0), np.zeros(1)
    list_documents(document_pairs(shard), token_topic, prior, record, table_sums, rising)
    entries = record.offsets[-1]
    active = ActiveTopics(record.offsets, record.topic[:entries].copy(), record.counts[:entries].copy())
    sums = {"rising": fresh(rising[0])}
    if tables:
        sums["tables"] = fresh(table_sums, "topic")
    return active, sums


def document_sums(shard: Shard, concentration: float) -> dict[str, Part]:
    """Return the sums over documents that depend only on their lengths."""
    sums = np.zeros(2)
    words.log_eta(shard.lengths.astype(np.float64), np.array([concentration]), sums)
    return {"log_eta": fresh(sums[0]), "falling": fresh(sums[1]), **corpus_sums(shard)}


def corpus_sums(shard: Shard) -> dict[str, Part]:
    """Return ``documents`` and ``tokens`` of a shard."""
    return {"documents": fresh(float(shard.documents)), "tokens": fresh(float(shard.tokens))}


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
            raise NumericalError(f"more than {MAX_TOPICS} topics are needed; use a smaller gamma or a larger beta")
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
