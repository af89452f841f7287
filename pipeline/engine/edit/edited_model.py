"""A model whose topics are edited: its counts in memory, and how edits change them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.base import Editable, FamilyOptions
from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.registry import load_family
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import AbsentError, OptionError
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.state import GlobalState, LocalState, Rows
from collapsium.workers.families.base import Editable as EditableShardModel
from collapsium.workers.families.document_entries import DocumentEntries

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
AnyEditable = Editable[Any, Any, Any]
AnyEditableShardModel = EditableShardModel[Any, Any, Any, Any]


@dataclass(frozen=True)
class EditedModel:
    """The counts of a model, which edits replace."""

    source: Model  # The model that is edited
    options: FamilyOptions  # Options of the family
    global_state: GlobalState  # The global state
    counts: Floats  # E[n_kw]; float64 (words, topics)
    entries: list[DocumentEntries]  # E[n_dk] by shard
    used: frozenset[int]  # Ids that the model had topics for; a new topic gets none of them
    corpus: Corpus | None = None  # The training corpus, which deletes and splits read

    @classmethod
    def of(cls, model: Model) -> EditedModel:
        """Read a model."""
        family = load_family(model.record.family)
        if not isinstance(family, Editable):
            raise OptionError(f"topics of '{model.record.family}' cannot be edited; expected a model of lda or hdp")
        if model.averaged is not None:
            raise OptionError(
                f"{model.folder.url}: the mean of several fits has no counts to edit; name one of them, or a consensus "
                "(`fit` with combine 'consensus')"
            )
        reason = family.uneditable(model.global_state)
        if reason is not None:
            raise OptionError(f"{model.folder.url}: its topics cannot be edited, as {reason}")
        shard_model = cast("AnyEditableShardModel", model.shard_model)
        blocks = [shard_model.row_counts(model.rows(number)) for number in range(len(model.blocks))]
        counts = np.maximum(np.concatenate(blocks).astype(np.float64), 0.0)
        shards = range(len(model.record.shards)) if model.fitted else ()
        entries = [shard_model.entries(model.documents(number)) for number in shards]
        used = frozenset(np.flatnonzero(counts.sum(axis=0) > 0.0).tolist())
        return cls(model, shard_model.options, model.global_state, counts, entries, used)

    @property
    def family(self) -> AnyEditable:
        """The driver's half of the family."""
        return cast("AnyEditable", load_family(self.source.record.family))

    @cached_property
    def shard_model(self) -> AnyEditableShardModel:
        """The shards' half of the family, with the options after the edits."""
        return cast("AnyEditableShardModel", self.family.make_shard_model(self.options))

    @property
    def topics(self) -> int:
        """Number of columns of topics."""
        return int(self.counts.shape[1])

    @cached_property
    def prior(self) -> Floats:
        """Prior a_k of topics, shape (topics,)."""
        return self.shard_model.topic_prior(self.global_state)

    @cached_property
    def word_prior(self) -> Floats:
        """Prior b_w of words, shape (words,)."""
        rows = [self.source.rows(number) for number in range(len(self.source.blocks))]
        return np.concatenate([self.shard_model.word_prior(block, self.global_state) for block in rows])

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
        weighed: Shard = self.source.shard_model.weighed(shard, tasks.gather(self._blocks, shard.words, complete=True))
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
        options = self.options.model_copy(update={"topics": len(mixing)})
        parts = [
            self.shard_model.plain_tokens(self.source.rows(number), counts[low:high])
            for number, (low, high) in enumerate(self.source.blocks)
        ]
        weighted = [part for part in parts if part is not None]
        plain = np.sum(weighted, axis=0) if weighted else None
        state = self.family.edited(self.global_state, mixing, counts.sum(axis=0), plain)
        return replace(self, options=options, global_state=state, counts=counts, entries=list(entries))

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
        rows: Rows = self.shard_model.with_row_counts(self.source.rows(block), self.counts[low:high])
        return rows

    def documents(self, shard: int) -> LocalState:
        """Return the documents of a shard, as a finished model saves them."""
        local: LocalState = self.shard_model.with_entries(
            self.source.documents(shard), self.entries[shard], self.topics
        )
        return local
