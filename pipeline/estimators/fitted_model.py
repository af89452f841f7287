"""A fitted model in memory: fold-in, scores, pseudo-counts, and steps of the stochastic schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.pipeline.engine.loop import step
from collapsium.pipeline.engine.state import Problem, State
from collapsium.pipeline.executors.base import Future, SerialExecutor
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import make_family
from collapsium.storage.building.split import split_documents
from collapsium.storage.corpus.shard import Documents, Shard
from collapsium.storage.corpus.vectors import AnyShard
from collapsium.storage.printable import ShortRepr
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import GlobalState
from collapsium.workers.design import CheckedFormula, unpacked_design
from collapsium.workers.families.cvb.stochastic import BATCH_DOCUMENTS
from collapsium.workers.families.family import AnyPredicts, Stochastic, Summary
from collapsium.workers.shard_loading import ShardOnDisk, document_parts, with_all_words

# Seed of fold-in and document completion. `infer` and `evaluate` use the same, so scores of models are comparable.
SEED = 0


@dataclass(frozen=True, repr=False)
class Fitted(ShortRepr):
    """A fitted model in memory."""

    name: str  # The family's name
    family: AnyPredicts  # The family, or the mean of several of its models
    global_state: GlobalState  # The family's global state
    blocks: list[tasks.Block]  # The blocks of the vocabulary, with their rows
    documents: int  # Number of training documents
    tokens: float  # Sum of its expected counts
    steps: int = 0  # Number of steps of the stochastic schedule so far

    @staticmethod
    def of(model: Model, documents: int, tokens: int) -> Fitted:
        """Read a model on disk into memory."""
        blocks = [
            tasks.Block(low, high, model.rows(number), Delta()) for number, (low, high) in enumerate(model.blocks)
        ]
        return Fitted(model.record.family, model.family, model.global_state, blocks, documents, float(tokens))

    @property
    def words(self) -> int:
        """Size of the vocabulary."""
        return self.blocks[-1].high

    @cached_property
    def topics(self) -> npt.NDArray[np.int64]:
        """Ids of the topics that have a share even in a document without words."""
        none = Documents(pa.array([""]), np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))
        return np.flatnonzero(self._theta(0, none)[0] > 0)

    def proportions(self, number: int, documents: Documents) -> npt.NDArray[np.float64]:
        """Return the topic proportions of documents, with the topics held fixed."""
        theta = self._theta(number, documents)[:, self.topics]
        shares: npt.NDArray[np.float64] = theta / theta.sum(axis=1, keepdims=True)
        return shares

    @cached_property
    def formula(self) -> CheckedFormula | None:
        """Formula of fields that the documents' priors follow; None without one."""
        packed = self.family.design(self.global_state)
        return None if packed is None else unpacked_design(packed).design.formula

    def _shard(self, number: int, documents: Documents) -> Shard:
        return Shard.of(number, documents, **document_parts(self.family, self.family.design(self.global_state)))

    def _theta(self, number: int, documents: Documents) -> npt.NDArray[np.float64]:
        shard = self._shard(number, documents)
        local = tasks.fold_in(self.family, shard, self.blocks, self.global_state, Stream(SEED, "infer"))
        return np.asarray(self.family.infer(local, self.global_state)["document_topic"], dtype=np.float64)

    def score(self, number: int, first: int, documents: Documents) -> tasks.Score:
        """Return the score of one half of each document's tokens, given the other, as `evaluate` does."""
        known, scored = split_documents(documents, first, 0.5, SEED)
        shard = self._shard(number, known)
        local = tasks.fold_in(self.family, shard, self.blocks, self.global_state, Stream(SEED, "unseen"))
        return tasks.score_local(self.family, Shard.of(number, scored), local, self.blocks, self.global_state)

    def components(self, concentration: float) -> npt.NDArray[np.float64]:
        """Return pseudo-counts of words, phi_kw (B + E[n_k]) = b_w + E[n_kw]."""
        declared = self.family.word_concentration(self.global_state)
        total = concentration if declared is None else declared
        rows = int(self.topics[-1]) + 1
        # Entries that no block describes have the prior mean.
        pseudo_counts, tokens = (
            np.full((rows, self.words), 1.0 / self.words),
            np.zeros(rows),
        )
        for block in self.blocks:
            described = self.family.describe(block.rows, self.global_state, block.high - block.low)
            # The description may include deleted topics.
            in_range = described.ids < rows
            ids = described.ids[in_range]
            pseudo_counts[ids[:, np.newaxis], described.words[in_range] + block.low] = described.probability[in_range]
            tokens[ids] = described.share[in_range] * self.tokens
        pseudo_counts *= (total + tokens)[:, np.newaxis]
        return pseudo_counts if self.topics.size == rows else pseudo_counts[self.topics]


def stepped(
    chunks: list[Documents], words: int, before: Fitted | None, name: str, config: Any, seed: int, total: int
) -> Fitted | None:
    """Return a model after one more step of the stochastic schedule on a minibatch; None where that has no tokens."""
    shard = Shard.of(0, Documents.join(chunks)) if chunks else None
    if shard is None or not shard.tokens:
        return None
    executor, stream = SerialExecutor(), Stream(seed)
    family, widened = make_family(name, config), with_all_words(shard, words)
    shards: list[Future[AnyShard | ShardOnDisk]] = [executor.hold(widened)]
    if before is None:
        summary = _summary(words, total, shard.tokens / shard.documents)
        global_state = family.initialise(summary, stream.at(purpose="initialise"))
        before = Fitted(name, family, global_state, [], shard.documents, float(summary.tokens))
    elif not before.steps:
        summary = _summary(words, total, before.tokens / before.documents)
        # Called only to raise an error for options that the stochastic schedule does not support.
        family.initialise(summary, stream)
        if not isinstance(family, Stochastic):
            raise TypeError(f"family '{name}' has no stochastic schedule")
        # The model is from `fit`, which counts as one pass over its documents.
        passes = -(-before.documents // BATCH_DOCUMENTS)
        rows = family.rows_type.joined([block.rows for block in before.blocks])
        rows = family.rows_for_steps(rows, summary.tokens / max(before.tokens, 1.0))
        global_state = family.global_state_for_steps(before.global_state, summary, passes)
        blocks = [tasks.Block(0, before.words, rows, Delta())]
        before = replace(before, global_state=global_state, blocks=blocks, tokens=float(summary.tokens))
    problem = Problem(name, family, config, shards, [], (0, words), stream, executor, before.global_state)
    state = problem.initial_state(0)
    if before.blocks:
        state = State(before.steps, before.global_state, [executor.hold(block) for block in before.blocks])
    state, _, _ = step(problem, state, [0])
    blocks = executor.collect(state.blocks)
    return replace(before, global_state=state.global_state, blocks=blocks, steps=state.iteration)


def _summary(words: int, total: int, length: float) -> Summary:
    """Return the summary of a corpus that arrives in minibatches, given the mean length of its documents."""
    return Summary(total, words, max(round(total * length), 1), stochastic=True)
