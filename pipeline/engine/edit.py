"""Edit the topics of a model: merge, delete, split and rename them, with exact counts.

Move the tokens of one topic to others: by their responsibilities, or to two halves.

The tokens of topic k in document d at word w are c_dw q_dwk, with q_dwk in proportion to theta_dk phi_kw. They are
scaled by rows and columns (iterative proportional fitting) until they add up to the topic's counts E[n_dk] and E[n_kw],
so that what is moved is what the model counts.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.edit_options import EditOptions
from collapsium.pipeline.engine.save import save_summary
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.fitted_model import Model as FittedModel
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import load_family
from collapsium.pipeline.models.training_corpus import training_corpus
from collapsium.pipeline.options import keywords
from collapsium.pipeline.outputs import overwrites, place_for
from collapsium.storage.building.ingest_record import inherit_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import AbsentError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder, created, ensure_free
from collapsium.storage.runs.model import RECORD, ModelRecord, ModelWriter
from collapsium.storage.runs.topic_names import TopicName, clean_name, read_names, write_names
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.state import GlobalState, LocalState, Rows
from collapsium.workers.families.document_entries import DocumentEntries
from collapsium.workers.families.family import Editable, FamilyOptions

AnyEditable = Editable[Any, Any, Any, Any]


@dataclass(frozen=True)
class EditedModel:
    """The counts of a model, which edits replace."""

    source: Model  # The model that is edited
    family: AnyEditable  # The family, with the options after the edits
    global_state: GlobalState  # The global state
    counts: Floats  # E[n_kw]; float64 (words, topics)
    entries: list[DocumentEntries]  # E[n_dk] by shard
    used: frozenset[int]  # Ids that the model had topics for; a new topic gets none of them
    corpus: Corpus | None = None  # The training corpus, which deletes and splits read

    @classmethod
    def of(cls, model: Model) -> EditedModel:
        """Read a model."""
        if not issubclass(load_family(model.record.family), Editable):
            raise OptionError(f"topics of '{model.record.family}' cannot be edited; expected a model of lda or hdp")
        if model.members:
            raise OptionError(
                f"{model.folder.url}: the mean of several fits has no counts to edit; name one of them, or a consensus "
                "(`fit` with combine 'consensus')"
            )
        family = cast("AnyEditable", model.family)
        reason = family.uneditable(model.global_state)
        if reason is not None:
            raise OptionError(f"{model.folder.url}: its topics cannot be edited, as {reason}")
        blocks = [family.row_counts(model.rows(number)) for number in range(len(model.blocks))]
        counts = np.maximum(np.concatenate(blocks).astype(np.float64), 0.0)
        shards = range(len(model.record.shards)) if model.fitted else ()
        entries = [family.entries(model.local_state(number)) for number in shards]
        used = frozenset(np.flatnonzero(counts.sum(axis=0) > 0.0).tolist())
        return cls(model, _with_options(family, family.options.for_tasks()), model.global_state, counts, entries, used)

    @property
    def topics(self) -> int:
        """Number of columns of topics."""
        return int(self.counts.shape[1])

    @cached_property
    def prior(self) -> Floats:
        """Prior a_k of topics, shape (topics,)."""
        return self.family.topic_prior(self.global_state)

    @cached_property
    def word_prior(self) -> Floats:
        """Prior b_w of words, shape (words,)."""
        rows = [self.source.rows(number) for number in range(len(self.source.blocks))]
        return np.concatenate([self.family.word_prior(block, self.global_state) for block in rows])

    def alive_without(self, topic: int) -> npt.NDArray[np.bool_]:
        """Return the topics that have tokens, except one, as flags of shape (topics,)."""
        alive: npt.NDArray[np.bool_] = self.counts.sum(axis=0) > 0.0
        alive[topic] = False
        return alive

    def shard(self, number: int) -> Shard:
        """Read a shard of the training corpus, with the weights of its words if they have any."""
        if self.corpus is None:
            raise AbsentError(f"{self.source.folder.url}: the training corpus is gone")
        shard = cast("Shard", self.corpus.references[number].load())
        weighed: Shard = self.source.family.weighed(shard, tasks.gather(self._blocks, shard.words, complete=True))
        return weighed

    @cached_property
    def _blocks(self) -> list[tasks.Block]:
        """Rows of the model as it was, which have the weights of words."""
        blocks = enumerate(self.source.blocks)
        return [tasks.Block(low, high, self.source.rows(number), Delta()) for number, (low, high) in blocks]

    def proportions(self, number: int) -> Floats:
        """Return the proportions of a shard's documents, (a_k + E[n_dk]) / (A + n_d), shape (documents, topics)."""
        entries, prior = self.entries[number], self.prior
        left = prior.sum() - np.bincount(entries.owner, weights=prior[entries.topic], minlength=entries.documents)
        growth = np.divide(entries.rest, left, out=np.zeros_like(left), where=left > 0.0)
        counts = growth[:, np.newaxis] * prior
        counts[entries.owner, entries.topic] = entries.count
        counts += prior
        theta: Floats = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300)
        return theta

    def probabilities(self, words: Ints) -> Floats:
        """Return the probabilities of some words, (b_w + E[n_kw]) / (B + E[n_k]), shape (words, topics)."""
        phi: Floats = (self.counts[words] + self.word_prior[words][:, np.newaxis]) / self._totals
        return phi

    @cached_property
    def _totals(self) -> Floats:
        totals: Floats = self.word_prior.sum() + self.counts.sum(axis=0)
        return totals

    def changed(self, counts: Floats, entries: Sequence[DocumentEntries], mixing: Floats) -> EditedModel:
        """Return the model with other counts."""
        options = self.family.options.model_copy(update={"topics": len(mixing)})
        parts = [
            self.family.plain_tokens(self.source.rows(number), counts[low:high])
            for number, (low, high) in enumerate(self.source.blocks)
        ]
        weighted = [part for part in parts if part is not None]
        plain = np.sum(weighted, axis=0) if weighted else None
        state = self.family.edited(self.global_state, mixing, counts.sum(axis=0), plain)
        family = _with_options(self.family, options)
        return replace(self, family=family, global_state=state, counts=counts, entries=list(entries))

    def merged(self, topics: list[int]) -> EditedModel:
        """Return the model with topics merged into the first of them; counts of words and documents add up."""
        counts, mixing = self.counts.copy(), np.eye(self.topics)
        counts[:, topics[0]] = counts[:, topics].sum(axis=1)
        counts[:, topics[1:]] = 0.0
        mixing[topics[0], topics] = 1.0
        mixing[topics[1:]] = 0.0
        return self.changed(counts, [entries.merged(topics, self.prior) for entries in self.entries], mixing)

    def renumbered(self, ids: Mapping[int, int]) -> EditedModel:
        """Return the model with other ids of some topics; the others keep theirs where these are free."""
        places, taken = dict(ids), set(ids.values())
        free = (number for number in itertools.count() if number not in taken)
        for topic in range(self.topics):
            if topic not in places:
                places[topic] = topic if topic not in taken else next(free)
                taken.add(places[topic])
        place = np.array([places[topic] for topic in range(self.topics)], dtype=np.int64)
        counts = np.zeros((len(self.counts), int(place.max()) + 1))
        mixing = np.zeros((counts.shape[1], self.topics))
        counts[:, place], mixing[place, np.arange(self.topics)] = self.counts, 1.0
        entries = [
            DocumentEntries.summed(each.owner, place[each.topic], each.count, each.rest) for each in self.entries
        ]
        return self.changed(counts, entries, mixing)

    def with_free_topic(self) -> tuple[EditedModel, int]:
        """Return the model with a topic that has no tokens, and its id: one that was never used, or else a new one."""
        free = [topic for topic in range(self.topics) if topic not in self.used]
        if free:
            return replace(self, used=self.used | {free[0]}), free[0]
        new, counts = self.topics, np.concatenate([self.counts, np.zeros((len(self.counts), 1))], axis=1)
        wider = self.changed(counts, self.entries, np.eye(new + 1, new))
        return replace(wider, used=self.used | {new}), new

    def rows(self, block: int) -> Rows:
        """Return the rows of a block of the vocabulary, as a finished model saves them."""
        low, high = self.source.blocks[block]
        rows: Rows = self.family.with_row_counts(self.source.rows(block), self.counts[low:high])
        return rows

    def documents(self, shard: int) -> LocalState:
        """Return the documents of a shard, as a finished model saves them."""
        local: LocalState = self.family.with_entries(self.source.local_state(shard), self.entries[shard], self.topics)
        return local


def _with_options(family: AnyEditable, options: FamilyOptions) -> AnyEditable:
    return cast("AnyEditable", type(family).with_options(options))


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
T = TypeVar("T")


# Rounds of moving a topic's tokens
SCALINGS = 10  # Rounds of scaling; the counts of a converged fit differ by less than 1e-3 before the first
CELLS = 1 << 20  # Responsibilities that a task computes at a time, in double precision
# Share of a document's moved tokens below which a topic gets none, where the document had no other topic
MIN_SHARE = 0.01
# Rounds of power iteration that find the direction in which a topic's documents differ most
DIRECTION_ROUNDS = 15
SPLIT_SWEEPS = 30  # Sweeps over the topic's tokens that separate the halves
HALF_PRIOR = 0.1  # Dirichlet parameter of each half in a document
MIN_HALF = 1.0  # Least expected tokens of a half


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
    for _ in range(SCALINGS):
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
    step = max(CELLS // max(columns, 1), 1)
    return [slice(low, min(low + step, rows)) for low in range(0, rows, step)]


@dataclass(frozen=True)
class Spill:
    """Tokens that other topics get in a shard: entries of documents, and counts of words, shape (words, topics)."""

    entries: DocumentEntries
    words: Ints
    gains: Floats


def delete(model: EditedModel, topic: int, executor: Executor) -> EditedModel:
    """Return a model without a topic, whose tokens are assigned to the others by their responsibilities."""
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
    least = np.minimum(MIN_SHARE * total, documents.max(axis=1, keepdims=True))
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
    if sizes.min() < MIN_HALF:
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
    for _ in range(SPLIT_SWEEPS):
        arguments = [(transfer, shard, half) for shard, half in zip(shards, halves, strict=True)]
        words = sum(each(executor, _half_words, arguments), np.zeros((width, 2))) + prior[:, np.newaxis]
        words /= words.sum(axis=0)
        swept = [(shard, factors, half, words) for shard, half in zip(shards, halves, strict=True)]
        halves = each(executor, _swept, swept)
    return halves


def _swept(shard: TopicTokens, factors: Floats, half: Floats, words: Floats) -> Floats:
    tokens = shard.scaled(factors)
    first = np.bincount(shard.owner, weights=tokens * half, minlength=shard.margin.size)
    documents = np.stack([first, np.maximum(shard.margin - first, 0.0)], axis=1) + HALF_PRIOR
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
    # A start that favours no word's id; a product of whole numbers has the same bits everywhere.
    direction = np.where((np.arange(mean.size) * 2_654_435_761 >> 7) & 1, 1.0, -1.0) * (mean > 0.0)
    for _ in range(DIRECTION_ROUNDS):
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


@dataclass(frozen=True)
class Edited:
    """Topics of an edited model."""

    topics: int  # Number of topics that have tokens
    merged: dict[int, int]  # The topic that each merged topic became part of
    deleted: tuple[int, ...]  # Topics that were deleted
    halves: dict[int, int]  # The new topic that each topic's second half has become
    names: dict[int, str]  # Names of the topics that have one
    notes: tuple[str, ...] = ()  # Sentences on what the model lacks


@keywords(options=EditOptions)
@overwrites("out")
def edit(
    run: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *, options: EditOptions
) -> Edited | FittedModel:
    """Write a model whose topics are merged, deleted, split or renamed; the run stays as it is.

    Merges come first, then deletes, then splits. Counts of documents and of words add up to the same as before. The
    result is a model, from which `fit` can begin (`warm`). All other topics keep their ids.

    Parameters
    ----------
    run : str or path-like
        Folder of a run that has ended, or of a model, of lda or hdp; of several fits one of them, or their consensus.
    out : str or path-like, optional
        Folder of the new model. By default it is temporary, and is removed when the returned model is collected.
    options : EditOptions
        The edits.

    Returns
    -------
    Edited or Model
        The topics after the edits or, without `out`, the new model.

    Raises
    ------
    OptionError
        There is nothing to edit, a topic does not exist or is named twice, no topic would be left, a name is empty, or
        the topics of the model cannot be edited.
    OccupiedError
        `out` exists.
    AbsentError
        There is no finished model, or deletes and splits need the training corpus and it is gone.
    """
    if out is not None:
        ensure_free(Folder(out))
    model = Model(run)
    if not model.folder.exists(RECORD):
        raise AbsentError(f"{model.folder.url}: the run is not at its end; only a finished model can be edited")
    if not (options.merge or options.delete or options.split or options.rename):
        raise OptionError("nothing to edit: name topics to `merge`, `delete`, `split` or `rename`")
    edited = EditedModel.of(model)
    options.require_topics(edited.used)
    corpus, notes = _corpus(model, options)
    executor = open_executor("threads", options.workers)
    try:
        edited, halves = _applied(replace(edited, corpus=corpus), options, executor)
        names = _names(model, options)
        with place_for(out, "model") as place:
            with created(Folder(place.path)) as folder:
                record = _write(folder, edited)
                write_names(folder, record, names.values())
                notes += _summarise(folder, corpus, executor)
            if out is None:
                opened = Model(place.path)
                opened.own(str(place.temporary), place.path)
                return FittedModel(opened)
    finally:
        executor.close()
    return Edited(
        topics=int((edited.counts.sum(axis=0) > 0.0).sum()),
        merged={topic: group[0] for group in options.merge for topic in group[1:]},
        deleted=options.delete,
        halves=halves,
        names={topic: entry.name for topic, entry in sorted(names.items())},
        notes=tuple(notes),
    )


def renumber(model: Model, ids: Mapping[int, int], folder: Folder, corpus: Corpus) -> None:
    """Write a model with other ids of its topics, with their names and the summary of its documents."""
    edited, names = EditedModel.of(model).renumbered(ids), read_names(model.folder, model.record)
    renamed = [entry.model_copy(update={"id": ids.get(topic, topic)}) for topic, entry in names.items()]
    executor = open_executor("threads", None)
    try:
        with created(folder) as place:
            write_names(place, _write(place, edited), renamed)
            _summarise(place, corpus, executor)
    finally:
        executor.close()


def _corpus(model: Model, options: EditOptions) -> tuple[Corpus | None, list[str]]:
    """Return the training corpus, and notes on the results that need it if it is missing."""
    if options.corpus is None:
        corpus = training_corpus(model)
    else:
        corpus = Corpus(options.corpus)
        if corpus.manifest.digest != model.record.corpus:
            raise MismatchError(f"{corpus.url}: it is not the corpus that the model was fitted to")
    if corpus is not None:
        return corpus, []
    if (options.delete or options.split) and model.record.shards and model.fitted:
        raise AbsentError(
            f"{model.folder.url}: the training corpus, which deletes and splits read, is gone; name its location "
            "(`corpus`)"
        )
    return None, ["The training corpus is gone, so the model has no summary of its documents."]


def _applied(model: EditedModel, options: EditOptions, executor: Executor) -> tuple[EditedModel, dict[int, int]]:
    """Return the model after the edits, and the new topics of split ones."""
    halves: dict[int, int] = {}
    for group in options.merge:
        model = model.merged(list(group))
    for topic in options.delete:
        model = delete(model, topic, executor)
    for topic in options.split:
        model, halves[topic] = split(model, topic, executor)
    return model, halves


def _names(model: Model, options: EditOptions) -> dict[int, TopicName]:
    """Return the names after the edits; a merged topic has the name of the first of its parts that has one."""
    names = dict(read_names(model.folder, model.record))
    for group in options.merge:
        first = next((names[topic] for topic in group if topic in names), None)
        if first is not None:
            names[group[0]] = first.model_copy(update={"id": group[0]})
    names = {topic: entry for topic, entry in names.items() if topic not in options.removed}
    for topic, text in options.rename.items():
        names[topic] = TopicName(id=topic, name=clean_name(text), by="hand")
    return names


def _write(place: Folder, edited: EditedModel) -> ModelRecord:
    """Write the model, and return its record."""
    writer, source = ModelWriter(place), edited.source
    parts = [writer.write_global_state(edited.global_state.to_arrays())]
    parts += [writer.write_block(number, edited.rows(number).to_arrays()) for number in range(len(source.blocks))]
    shards = range(len(edited.entries))
    parts += [writer.write_shard(number, edited.documents(number).to_arrays()) for number in shards]
    inherit_history(source.folder, place)
    changed = {"options": edited.family.options.model_dump(mode="json"), "parts": dict(parts), "summarised": False}
    return writer.finish(source.record.model_copy(update=changed), source.vocabulary)


def _summarise(place: Folder, corpus: Corpus | None, executor: Executor) -> list[str]:
    """Write the summary of the model's documents; return a note if there is none."""
    model, notes = Model(place.url), list[str]()
    if corpus is not None and model.fitted and save_summary(place, corpus, executor, notes.append):
        ModelWriter(place).write_record(model.record.model_copy(update={"summarised": True}))
    return [f"{note[:1].upper()}{note[1:]}." for note in notes]
