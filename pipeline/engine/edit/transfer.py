"""Move the tokens of one topic to others: by their responsibilities, or to two halves.

The tokens of topic k in document d at word w are c_dw q_dwk, with q_dwk in proportion to theta_dk phi_kw. They are
scaled by rows and columns (iterative proportional fitting) until they add up to the topic's counts E[n_dk] and E[n_kw],
so that what is moved is what the model counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.edit.edited_model import EditedModel
from collapsium.pipeline.executors.base import Executor
from collapsium.storage.errors import OptionError
from collapsium.workers.families.document_entries import DocumentEntries

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True)
class TransferRule:
    """Rounds of moving a topic's tokens."""

    scalings: int = 10  # Rounds of scaling; the counts of a converged fit differ by less than 1e-3 before the first
    cells: int = 1 << 20  # Responsibilities that a task computes at a time, in double precision
    # Share of a document's moved tokens below which a topic gets none, where the document had no other topic
    min_share: float = 0.01
    # Rounds of power iteration that find the direction in which a topic's documents differ most
    direction_rounds: int = 15
    split_sweeps: int = 30  # Sweeps over the topic's tokens that separate the halves
    half_prior: float = 0.1  # Dirichlet parameter of each half in a document
    min_half: float = 1.0  # Least expected tokens of a half


RULE = TransferRule()


@dataclass(frozen=True)
class TopicTokens:
    """Tokens of a topic in the documents of a shard that have entries of it."""

    number: int  # The shard's number
    # Document of each pair, and its word's index into `words`; int64 (pairs,)
    owner: Ints
    position: Ints
    words: Ints  # Ids of the shard's words; int64 (shard words,)
    weight: Floats  # c_dw q_dwk; float64 (pairs,)
    margin: Floats  # E[n_dk]; float64 (documents,)

    def scaled(self, factors: Floats) -> Floats:
        """Return the tokens of each pair, scaled by words and then to the documents' counts."""
        tokens = self.weight * factors[self.words[self.position]]
        sums = self._by_document(tokens)
        if (lost := (sums <= 0.0) & (self.margin > 0.0)).any():
            # The topic counts none of these documents' words, but their tokens must go somewhere.
            tokens = np.where(lost[self.owner], self.weight, tokens)
            sums = self._by_document(tokens)
        scale = np.divide(self.margin, sums, out=np.zeros_like(sums), where=sums > 0.0)
        scaled: Floats = tokens * scale[self.owner]
        return scaled

    def _by_document(self, values: Floats) -> Floats:
        """Return sums of pairs' values by document."""
        return np.asarray(np.bincount(self.owner, values, minlength=self.margin.size), dtype=np.float64)

    def by_word(self, values: Floats, width: int) -> Floats:
        """Return sums of pairs' values by word, shape (words of the vocabulary,)."""
        return np.asarray(np.bincount(self.words[self.position], values, minlength=width), dtype=np.float64)


@dataclass(frozen=True)
class Transfer:
    """Tokens of a topic over all shards, as they are to be moved."""

    topic: int  # The topic
    shards: list[TopicTokens]  # Its tokens by shard
    # Scales of words, and factors that make the scaled tokens of each word the topic's E[n_kw] exactly; float64
    # (words,)
    factors: Floats
    corrections: Floats
    # E[n_kw] of words that occur in no document with an entry of the topic: its share of background tokens; float64
    # (words,)
    rest: Floats = field(repr=False)


def each(executor: Executor, function: Callable[..., T], arguments: Sequence[tuple[object, ...]]) -> list[T]:
    """Return the results of a function for each tuple of arguments, a bounded number at a time, in order."""
    results: list[T] = []
    window = 2 * executor.workers
    for first in range(0, len(arguments), window):
        results += executor.collect([executor.submit(function, *some) for some in arguments[first : first + window]])
    return results


def transfer_of(model: EditedModel, topic: int, executor: Executor) -> Transfer:
    """Return the tokens of a topic, scaled to its counts."""
    shards = each(executor, _topic_tokens, [(model, number, topic) for number in range(len(model.entries))])
    target = model.counts[:, topic].astype(np.float64)
    factors, corrections = np.ones(target.size), np.ones(target.size)
    for _ in range(RULE.scalings):
        factors = factors * corrections
        sums = sum(each(executor, _word_sums, [(shard, factors) for shard in shards]), np.zeros(target.size))
        corrections = np.divide(target, sums, out=np.zeros_like(target), where=sums > 0.0)
    return Transfer(topic, shards, factors, corrections, np.where(sums > 0.0, 0.0, target))


def _word_sums(shard: TopicTokens, factors: Floats) -> Floats:
    return shard.by_word(shard.scaled(factors), factors.size)


def _topic_tokens(model: EditedModel, number: int, topic: int) -> TopicTokens:
    """Return the tokens of a topic in a shard, by the model's predictive responsibilities."""
    shard, entries = model.shard(number), model.entries[number]
    margin = entries.of_topic(topic)
    owner = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
    pairs = np.flatnonzero(margin[owner] > 0.0)
    position, words = shard.position.astype(np.int64)[pairs], shard.words.astype(np.int64)
    theta, phi = model.proportions(number), model.probabilities(words)
    weight = shard.counts[pairs].astype(np.float64)
    if shard.weights is not None:
        weight *= shard.weights[pairs]
    for rows in _chunks(pairs.size, theta.shape[1]):
        each_topic = theta[owner[pairs[rows]]] * phi[position[rows]]
        total = each_topic.sum(axis=1)
        weight[rows] *= np.divide(each_topic[:, topic], total, out=np.zeros_like(total), where=total > 0.0)
    return TopicTokens(number, owner[pairs], position, words, weight, margin)


def _chunks(rows: int, columns: int) -> list[slice]:
    step = max(RULE.cells // max(columns, 1), 1)
    return [slice(low, min(low + step, rows)) for low in range(0, rows, step)]


@dataclass(frozen=True)
class Spill:
    """Tokens that other topics get in a shard: entries of documents, and counts of words, shape (words, topics)."""

    entries: DocumentEntries
    words: Ints
    gains: Floats


def delete(model: EditedModel, topic: int, executor: Executor) -> EditedModel:
    """Return a model without a topic, whose tokens go to the others by their responsibilities."""
    transfer = transfer_of(model, topic, executor)
    spills = each(executor, _spill, [(model, transfer, number) for number in range(len(model.entries))])
    counts = model.counts.copy()
    counts[:, topic] = 0.0
    left = counts + model.word_prior[:, np.newaxis]
    left[:, ~model.alive_without(topic)] = 0.0
    counts += transfer.rest[:, np.newaxis] * left / np.maximum(left.sum(axis=1, keepdims=True), 1e-300)
    for spill in spills:
        counts[spill.words] += spill.gains
    mixing = np.eye(model.topics)
    mixing[topic, topic] = 0.0
    return model.changed(counts, [spill.entries for spill in spills], mixing)


def _spill(model: EditedModel, transfer: Transfer, number: int) -> Spill:
    tokens, entries = transfer.shards[number], model.entries[number].without(transfer.topic)
    moved = tokens.scaled(transfer.factors)
    corrected = moved * transfer.corrections[tokens.words[tokens.position]]
    allowed = np.zeros((entries.documents, model.topics), dtype=bool)
    allowed[entries.owner, entries.topic] = True
    alone = np.logical_not(allowed.any(axis=1, keepdims=True))[:, 0]
    allowed[alone] = model.alive_without(transfer.topic)
    theta, phi = model.proportions(number) * allowed, model.probabilities(tokens.words)
    documents = np.zeros((entries.documents, model.topics))
    gains = np.zeros((tokens.words.size, model.topics))
    for rows in _chunks(moved.size, model.topics):
        owner, position = tokens.owner[rows], tokens.position[rows]
        share = theta[owner] * phi[position]
        # Where all probabilities underflow, the document's topics share the tokens.
        share = np.where(share.sum(axis=1, keepdims=True) > 0.0, share, allowed[owner])
        share /= share.sum(axis=1, keepdims=True)
        np.add.at(documents, owner, moved[rows, np.newaxis] * share)
        np.add.at(gains, position, corrected[rows, np.newaxis] * share)
    total = documents.sum(axis=1, keepdims=True)
    least = np.minimum(RULE.min_share * total, documents.max(axis=1, keepdims=True))
    retained = np.where(alone[:, np.newaxis] & (documents < least), 0.0, documents)
    retained *= total / np.maximum(retained.sum(axis=1, keepdims=True), 1e-300)
    owner, topic = np.nonzero(retained)
    return Spill(entries.with_counts(owner, topic, retained[owner, topic]), tokens.words, gains)


def split(model: EditedModel, topic: int, executor: Executor) -> tuple[EditedModel, int]:
    """Return a model with a topic split in two, and the id of the new topic, the smaller half.

    The halves begin from the direction in which the documents' words of the topic differ most, and separate by sweeps
    over the topic's tokens alone: q_dw1 in proportion to (a + n_d1) (b_w + n_1w) / (B + n_1).
    """
    transfer = transfer_of(model, topic, executor)
    halves = _separated(model, transfer, executor)
    counts_of_halves = sum(
        each(
            executor,
            _half_words,
            [(transfer, shard, half) for shard, half in zip(transfer.shards, halves, strict=True)],
        ),
        np.zeros((model.counts.shape[0], 2)),
    )
    sizes = counts_of_halves.sum(axis=0)
    if sizes.min() < RULE.min_half:
        raise OptionError(f"{topic}: its tokens do not separate into two topics; choose another topic", "split")
    if sizes[1] > sizes[0]:
        counts_of_halves, sizes = counts_of_halves[:, ::-1], sizes[::-1]
        halves = [1.0 - half for half in halves]
    share = sizes[0] / sizes.sum()
    counts_of_halves = counts_of_halves + transfer.rest[:, np.newaxis] * np.array([share, 1.0 - share])
    wider, new = model.with_free_topic()
    counts = wider.counts.copy()
    counts[:, topic], counts[:, new] = counts_of_halves[:, 0], counts_of_halves[:, 1]
    mixing = np.eye(wider.topics)
    mixing[topic, topic], mixing[new, topic] = share, 1.0 - share
    entries = []
    for shard, half, before in zip(transfer.shards, halves, model.entries, strict=True):
        first = np.bincount(shard.owner, weights=shard.scaled(transfer.factors) * half, minlength=before.documents)
        owner = np.flatnonzero(shard.margin > 0.0)
        first = np.minimum(first[owner], shard.margin[owner])
        both = np.concatenate([first, shard.margin[owner] - first])
        topics = np.repeat([topic, new], owner.size)
        entries.append(before.without(topic).with_counts(np.tile(owner, 2), topics, both))
    return wider.changed(counts, entries, mixing), new


def _half_words(transfer: Transfer, shard: TopicTokens, half: Floats) -> Floats:
    tokens = shard.scaled(transfer.factors) * transfer.corrections[shard.words[shard.position]]
    width = transfer.factors.size
    return np.stack([shard.by_word(tokens * half, width), shard.by_word(tokens * (1.0 - half), width)], axis=1)


def _separated(model: EditedModel, transfer: Transfer, executor: Executor) -> list[Floats]:
    """Return the share of the first half in each pair's tokens, by shard."""
    shards, factors = transfer.shards, transfer.factors
    width, prior = factors.size, model.word_prior
    direction = _direction(transfer, executor)
    halves = each(executor, _by_direction, [(shard, factors, direction) for shard in shards])
    for _ in range(RULE.split_sweeps):
        arguments = [(transfer, shard, half) for shard, half in zip(shards, halves, strict=True)]
        words = sum(each(executor, _half_words, arguments), np.zeros((width, 2))) + prior[:, np.newaxis]
        words /= words.sum(axis=0)
        swept = [(shard, factors, half, words) for shard, half in zip(shards, halves, strict=True)]
        halves = each(executor, _swept, swept)
    return halves


def _swept(shard: TopicTokens, factors: Floats, half: Floats, words: Floats) -> Floats:
    tokens = shard.scaled(factors)
    first = np.bincount(shard.owner, weights=tokens * half, minlength=shard.margin.size)
    documents = np.stack([first, np.maximum(shard.margin - first, 0.0)], axis=1) + RULE.half_prior
    weights = documents[shard.owner] * words[shard.words[shard.position]]
    swept: Floats = weights[:, 0] / np.maximum(weights.sum(axis=1), 1e-300)
    return swept


def _direction(transfer: Transfer, executor: Executor) -> Floats:
    """Return the first principal direction of the documents' words of the topic, shape (words,).

    A document is weighed by its tokens of the topic, and a word by the inverse of its share of them, so that frequent
    words do not decide alone.
    """
    shards, factors = transfer.shards, transfer.factors
    total = sum(each(executor, _word_sums, [(shard, factors) for shard in shards]), np.zeros(factors.size))
    mean = total / max(float(total.sum()), 1e-300)
    scale = np.divide(1.0, mean, out=np.zeros_like(mean), where=mean > 0.0)
    # Any start that no word's id favours; a product of whole numbers has the same bits everywhere.
    direction = np.where((np.arange(mean.size) * 2_654_435_761 >> 7) & 1, 1.0, -1.0) * (mean > 0.0)
    for _ in range(RULE.direction_rounds):
        direction = direction - (direction * mean).sum()
        arguments = [(shard, factors, direction, mean) for shard in shards]
        product = sum(each(executor, _covariance_product, arguments), np.zeros(mean.size)) * scale
        size = float(np.abs(product).max())
        if size <= 0.0:
            break
        direction = product / size
    centred: Floats = direction - (direction * mean).sum()
    return centred


def _covariance_product(shard: TopicTokens, factors: Floats, direction: Floats, mean: Floats) -> Floats:
    tokens = shard.scaled(factors)
    score = _scores(shard, tokens, direction)
    product = shard.by_word(tokens * score[shard.owner], mean.size)
    centred: Floats = product - mean * float((shard.margin * score).sum())
    return centred


def _scores(shard: TopicTokens, tokens: Floats, direction: Floats) -> Floats:
    """Return the mean of a direction over each document's tokens."""
    along = np.bincount(
        shard.owner, weights=tokens * direction[shard.words[shard.position]], minlength=shard.margin.size
    )
    scores: Floats = np.divide(along, shard.margin, out=np.zeros(along.size), where=shard.margin > 0.0)
    return scores


def _by_direction(shard: TopicTokens, factors: Floats, direction: Floats) -> Floats:
    """Return the halves of a start: documents on one side of the direction belong to the first."""
    side = _scores(shard, shard.scaled(factors), direction) > 0.0
    return np.where(side[shard.owner], 0.9, 0.1)
