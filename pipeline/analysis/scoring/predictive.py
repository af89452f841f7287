"""Predictive probabilities of documents' words, their means over the members of an ensemble, and their scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.loop.fit import mean_score
from collapsium.pipeline.engine.model_io.save import documents_of
from collapsium.pipeline.engine.setup.request import HeldoutReference, align
from collapsium.pipeline.executors.base import Executor, Future
from collapsium.pipeline.models.model import Model
from collapsium.storage.building.split import split_documents
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.shard import Shard
from collapsium.workers import special_functions as special
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import AnyPredicts
from collapsium.workers.kernels.child_processes import fill_cache
from collapsium.workers.kernels.special import elementary
from collapsium.workers.shard_loading import document_parts

Named = Sequence[tuple[str, Model]]


@dataclass(frozen=True)
class MemberScore:
    """The score of a single member: its name, such as ``003`` or ``003/001``, and the score in nats."""

    member: str
    score: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """Probabilities of the words of a shard's documents, of one model or summed over several."""

    probability: npt.NDArray[np.float64]  # The probabilities; float64 (pairs,)
    counts: npt.NDArray[np.int32]  # The words' counts; int32 (pairs,)
    offsets: npt.NDArray[np.int64]  # Index of each document's first pair; int64 (documents + 1,)

    def __sizeof__(self) -> int:
        return self.probability.nbytes + self.counts.nbytes + self.offsets.nbytes


Submit = Callable[[Model, list[Future[tasks.Block]]], list[Future[Predicted]]]


def predict_pairs(
    model: AnyPredicts, shard: Shard, local: Any, blocks: list[tasks.Block], global_state: Any
) -> Predicted:
    """Return the probability of each pair of document and word in a shard."""
    if not shard.pairs:
        return Predicted(np.zeros(0), shard.counts, shard.offsets)
    table = model.predict(shard, local, tasks.gather(blocks, shard.words, complete=True), global_state)
    return Predicted(np.asarray(table["probability"], dtype=np.float64), shard.counts, shard.offsets)


def score_members(
    named: Named, submit: Submit, executor: Executor
) -> tuple[float | None, int, tuple[MemberScore, ...]]:
    """Score models one after another, and the mean of their probabilities."""
    single, sums, members = len(named) == 1, [], []
    for name, model in named:
        predicted = submit(model, load_blocks(model, executor))
        if single:
            sums = predicted
            break
        # Only one member's rows are in memory at a time. Sums in the members' order have the same bits everywhere.
        sums = (
            [executor.submit(add_predictions, *pair) for pair in zip(sums, predicted, strict=True)]
            if sums
            else predicted
        )
        score = mean_score(executor.collect([executor.submit(_score, shard, 1) for shard in predicted]))
        members.append(MemberScore(name, math.nan if score is None else score))
    scores: Sequence[tasks.Score] = executor.collect([executor.submit(_score, shard, len(named)) for shard in sums])
    return mean_score(scores), sum(part.tokens for part in scores), tuple(members)


def add_predictions(left: Predicted, right: Predicted) -> Predicted:
    """Return the sums of the probabilities of two models."""
    return Predicted(left.probability + right.probability, left.counts, left.offsets)


def _score(sums: Predicted, members: int) -> tasks.Score:
    if not sums.counts.size:
        return tasks.Score(0.0, 0)
    probability = sums.probability if members == 1 else sums.probability / members
    return tasks.Score(float((sums.counts * special.log(probability)).sum()), int(sums.counts.sum()))


def load_blocks(model: Model, executor: Executor) -> list[Future[tasks.Block]]:
    """Load the blocks of the vocabulary on the workers."""
    # Without a dashboard tasks run in this process, where an interrupt would wait for the compiler.
    if executor.dashboard is None:
        family_kernels = model.family.fold_in_kernels(model.global_state)
        fill_cache([*family_kernels, elementary])
    return [
        executor.submit(_load_block, model.folder.address, number, low, high)
        for number, (low, high) in enumerate(model.blocks)
    ]


def _load_block(url: str, number: int, low: int, high: int) -> tasks.Block:
    return tasks.Block(low, high, Model(url).rows(number), Delta())


HELDOUT = (
    "document completion: mean over the held-out tokens of the training documents of log sum_k theta_dk phi_kw, "
    "in nats; perplexity = exp(-score)"
)
UNSEEN = (
    "document completion of unseen documents: proportions fitted to a random half of each document's tokens with the "
    "topics held fixed; mean over the tokens of the other half of log sum_k theta_dk phi_kw, in nats; perplexity = "
    "exp(-score)"
)
OBSERVED = (
    "document completion of unseen documents: proportions fitted to the documents' tokens with the topics held fixed; "
    "mean over further tokens, held out of the same documents, of log sum_k theta_dk phi_kw, in nats; perplexity = "
    "exp(-score)"
)


@dataclass(frozen=True)
class Scored:
    """Documents and tokens to score."""

    corpus: Corpus  # Held-out tokens of the training documents, or unseen documents
    known: bool  # True for held-out tokens of the training documents
    # Further tokens of unseen documents, which are scored while all tokens of `corpus` are fitted
    scored: Corpus | None = None

    @property
    def tokens(self) -> Corpus:
        """The corpus whose tokens are scored."""
        return self.scored or self.corpus

    def held(self, first: Model) -> list[HeldoutReference] | None:
        """Return the scored tokens of each fitted shard; None if they are halves of its own documents."""
        if self.known:
            return align(first.record.shards, self.corpus, first.folder.url)
        if self.scored is None:
            return None
        return align(documents_of(self.corpus), self.scored, self.corpus.url)

    @property
    def definition(self) -> str:
        """The score's definition."""
        return HELDOUT if self.known else UNSEEN if self.scored is None else OBSERVED

    def submit(self, held: Sequence[HeldoutReference] | None, executor: Executor, seed: int) -> Submit:
        """Return a function that submits a task for each shard, which predicts the scored tokens."""

        def submit(model: Model, blocks: list[Future[tasks.Block]]) -> list[Future[Predicted]]:
            url, references = model.folder.address, self.corpus.references
            if held is None:
                submitted, first = [], 0
                for reference in references:
                    submitted.append(executor.submit(_predict_unseen, url, reference, first, blocks, seed))
                    first += reference.record.documents
                return submitted
            if self.known:
                return [executor.submit(_predict_heldout, url, reference, blocks) for reference in held]
            pairs = zip(references, held, strict=True)
            return [executor.submit(_predict_observed, url, *pair, blocks, seed) for pair in pairs]

        return submit


def _predict_heldout(url: str, reference: HeldoutReference, blocks: list[tasks.Block]) -> Predicted:
    model = Model(url)
    local = model.documents(reference.number)
    held = reference.load(segmented=model.family.uses_segments)
    return predict_pairs(model.family, held, local, blocks, model.global_state)


def _predict_unseen(url: str, reference: ShardReference, first: int, blocks: list[tasks.Block], seed: int) -> Predicted:
    """Fit proportions to one half of each document's tokens and predict the other; empty documents have no pairs."""
    model = Model(url)
    known, scored = split_documents(reference.documents(), first, 0.5, seed)
    stream = Stream(seed, "unseen")
    shard, held = (Shard.of(reference.number, part, **document_parts(model.family)) for part in (known, scored))
    local = tasks.fold_in(model.family, shard, blocks, model.global_state, stream)
    return predict_pairs(model.family, held, local, blocks, model.global_state)


def _predict_observed(
    url: str, reference: ShardReference, scored: HeldoutReference, blocks: list[tasks.Block], seed: int
) -> Predicted:
    """Fit proportions to all tokens of a shard's documents and predict further tokens of the same documents."""
    model = Model(url)
    parts = document_parts(model.family)
    held = scored.load(segmented=parts["segmented"])
    local = tasks.fold_in(model.family, reference.load(**parts), blocks, model.global_state, Stream(seed, "unseen"))
    return predict_pairs(model.family, held, local, blocks, model.global_state)
