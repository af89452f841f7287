"""Predictive probabilities of documents' words, their means over the members of an ensemble, and their scores.

`complete` scores several models on the same held-out tokens. Documents that a model was fitted to keep their
proportions; proportions of all others are fitted to the training tokens with the topics held fixed. No model has seen a
held-out token. If the corpus has words that entered the vocabulary later, only the words that all models know are
scored, with their conditional probabilities given these words.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.engine.leakage import require_held_out, trained_on
from collapsium.pipeline.engine.loop import mean_score
from collapsium.pipeline.engine.save import documents_of
from collapsium.pipeline.engine.setup.request import HeldoutReference, align
from collapsium.pipeline.executors.base import TLS, Executor, Future
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import Scheduler
from collapsium.pipeline.fitted_model import load_blocks, parts_for
from collapsium.pipeline.models.model import Model
from collapsium.storage.building.split import split_documents
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.lineage import lineage_of
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import InputError, OptionError
from collapsium.storage.runs.members import leaves
from collapsium.workers import special_functions as special
from collapsium.workers import tasks
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import LocalState
from collapsium.workers.families.family import AnyPredicts

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
    # Total probability, in the same document, of the words that are not scored; None if all words are; float64 (pairs,)
    beyond: npt.NDArray[np.float64] | None = None

    def __sizeof__(self) -> int:
        arrays = (self.probability, self.counts, self.offsets, self.beyond)
        return sum(array.nbytes for array in arrays if array is not None)


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
        sums = added(sums, predicted, executor)
        score = mean_score(executor.collect([executor.submit(_score, shard, 1) for shard in predicted]))
        members.append(MemberScore(name, math.nan if score is None else score))
    scores: Sequence[tasks.Score] = executor.collect([executor.submit(_score, shard, len(named)) for shard in sums])
    return mean_score(scores), sum(part.tokens for part in scores), tuple(members)


def added(
    sums: list[Future[Predicted]], predicted: list[Future[Predicted]], executor: Executor
) -> list[Future[Predicted]]:
    """Add the probabilities of a further model to the sums over the models before it, which are empty at first."""
    return [executor.submit(_add, *pair) for pair in zip(sums, predicted, strict=True)] if sums else predicted


def _add(left: Predicted, right: Predicted) -> Predicted:
    beyond = None if left.beyond is None or right.beyond is None else left.beyond + right.beyond
    return Predicted(left.probability + right.probability, left.counts, left.offsets, beyond)


def _score(sums: Predicted, members: int) -> tasks.Score:
    """Score the mean prediction of `members` models, conditional on the words that are scored."""
    if not sums.counts.size:
        return tasks.Score(0.0, 0)
    logs = special.log(sums.probability / members)
    if sums.beyond is not None:
        logs -= special.log1p(-np.minimum(sums.beyond / members, 1.0 - 1e-12))
    return tasks.Score(float((sums.counts * logs).sum()), int(sums.counts.sum()))


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
            if self.known and model.members:
                # The record of a mean stores no proportions of its members.
                raise OptionError(f"{url}: is the mean of members; to score held-out tokens, name their run")
            fitted = [None] * len(held) if self.known else references
            pairs = zip(fitted, held, strict=True)
            return [executor.submit(_predict_further, url, *pair, blocks, seed) for pair in pairs]

        return submit


def _predict_further(
    url: str, reference: ShardReference | None, further: HeldoutReference, blocks: list[tasks.Block], seed: int
) -> Predicted:
    """Predict further tokens of documents, whose proportions are the fit's or are fitted to all tokens of a shard."""
    model = Model(url)
    parts = parts_for(model)
    if reference is None:
        local = model.local_state(further.number)
    else:
        local = tasks.fold_in(model.family, reference.load(**parts), blocks, model.global_state, Stream(seed, "unseen"))
    held = further.load(segmented=parts["segmented"])
    return predict_pairs(model.family, held, local, blocks, model.global_state)


def _predict_unseen(url: str, reference: ShardReference, first: int, blocks: list[tasks.Block], seed: int) -> Predicted:
    """Fit proportions to one half of each document's tokens and predict the other; empty documents have no pairs."""
    model = Model(url)
    known, scored = split_documents(reference.documents(), first, 0.5, seed)
    stream = Stream(seed, "unseen")
    shard, held = (Shard.of(reference.number, part, **parts_for(model)) for part in (known, scored))
    local = tasks.fold_in(model.family, shard, blocks, model.global_state, stream)
    return predict_pairs(model.family, held, local, blocks, model.global_state)


COMPLETED = (
    "document completion: mean over the held-out tokens of the corpus of log sum_k theta_dk phi_kw, in nats; "
    "proportions of documents that a model was not fitted to are fitted to their training tokens with the topics held "
    "fixed"
)
AVERAGED = "; of an ensemble, the log of the mean over its members of this sum, proportions fitted by each for itself"
AMONG = "; only words that the earlier model knows too, with their conditional probabilities given these words"
MAX_CELLS = 1 << 20  # Probabilities of words and topics that are computed at a time, to bound memory


@dataclass(frozen=True)
class Completion:
    """Score of a model by document completion."""

    score: float  # Mean log probability of a held-out token, in nats
    tokens: int  # Number of scored tokens
    definition: str  # The score's definition
    members: tuple[MemberScore, ...] = ()  # Scores of an ensemble's members; empty for a single model


def complete(
    run: str | os.PathLike[str],
    train: str | os.PathLike[str],
    heldout: str | os.PathLike[str],
    *,
    words: int | None = None,
    scheduler: Scheduler = "threads",
    workers: int | None = None,
    tls: TLS | None = None,
) -> Completion:
    """Score a model on the held-out tokens of a corpus, whether or not it was fitted to these documents.

    For restarts and saved samples, the mean of the predictions is scored.
    """
    named, training, held = [(name, Model(url)) for name, url in leaves(run)], Corpus(train), Corpus(heldout)
    first = named[0][1]
    for corpus in (training, held):
        if not corpus.begins_with(first.record.vocabulary):
            corpus.require_vocabulary_of(first.record.vocabulary.words_sha256, first.folder.url)
    name = f"the training corpus {training.url}"
    require_held_out(lineage_of(training), held, name)
    for _, model in named:
        require_held_out(trained_on(model), held, f"the training corpus of {model.folder.url}")
    known = first.record.vocabulary.words
    limit = min(known if words is None else words, known)
    parts = align(documents_of(training), held, training.url)
    with contextlib.closing(open_executor(scheduler, workers, tls=tls)) as executor:

        def submit(model: Model, blocks: list[Future[tasks.Block]]) -> list[Future[Predicted]]:
            fitted_shards = {
                (shard.documents, shard.ids_sha256): number
                for number, shard in reversed(list(enumerate(model.record.shards)))
            }
            has_more_words = limit < model.record.vocabulary.words
            beyond = executor.submit(_beyond, model.folder.address, blocks, limit) if has_more_words else None
            submitted = []
            for reference, part in zip(training.references, parts, strict=True):
                fitted = (
                    fitted_shards.get((reference.record.documents, reference.record.ids_sha256))
                    if model.fitted
                    else None
                )
                arguments = (model.folder.address, reference, part, fitted, blocks, limit, beyond)
                submitted.append(executor.submit(_predict_completion, *arguments))
            return submitted

        score, tokens, members = score_members(named, submit, executor)
    if score is None:
        raise InputError(held.url, "no token is left to score")
    among = AMONG if limit < training.manifest.vocabulary.words else ""
    definition = COMPLETED + (AVERAGED if len(named) > 1 else "") + among
    return Completion(score, tokens, definition, members)


def _among(shard: Shard, words: int) -> Shard:
    """Return a shard with the pairs of the first words only; documents may become empty."""
    rows = int(np.searchsorted(shard.words, words))
    if rows == shard.words.size:
        return shard
    keep = shard.position < rows
    running = np.concatenate([[0], np.cumsum(keep)]).astype(np.int64)
    return replace(
        shard,
        offsets=running[shard.offsets],
        words=shard.words[:rows],
        position=shard.position[keep],
        counts=shard.counts[keep],
        segments=None if shard.segments is None else replace(shard.segments, pairs=running[shard.segments.pairs]),
    )


def _beyond(url: str, blocks: list[tasks.Block], words: int) -> npt.NDArray[np.float64]:
    """Return each topic's total probability of the words from number `words` on, shape (topics,)."""
    model = Model(url)
    half, total = model.family, np.zeros(0)
    for block in blocks:
        first = max(words - block.low, 0)
        size = block.high - block.low
        topics = max(next(iter(block.rows.to_arrays().values())).size // max(size, 1), 1)
        step = max(MAX_CELLS // topics, 1)
        for low in range(first, size, step):
            rows = block.rows.of_words(slice(low, low + step), complete=True)
            part = half.probabilities(rows, model.global_state)["word_topic"].sum(axis=0)
            total = part if not total.size else total + part
    return total


def _predict_completion(
    url: str,
    reference: ShardReference,
    heldout: HeldoutReference,
    fitted: int | None,
    blocks: list[tasks.Block],
    words: int,
    beyond: npt.NDArray[np.float64] | None,
) -> Predicted:
    """Predict the held-out pairs of a shard's documents."""
    model = Model(url)
    parts = parts_for(model)
    held = _among(heldout.load(segmented=parts["segmented"]), words)
    half = model.family
    if not held.pairs:
        return Predicted(np.zeros(0), held.counts, held.offsets, None if beyond is None else np.zeros(0))
    local: LocalState
    if fitted is not None:
        local = model.local_state(fitted)
    else:
        shard = reference.load(**parts)
        shard = _among(shard, model.record.vocabulary.words) if isinstance(shard, Shard) else shard
        local = tasks.fold_in(model.family, shard, blocks, model.global_state, Stream(0, "complete"))
    rows = tasks.gather(blocks, held.words, complete=True)
    probability = np.asarray(half.predict(held, local, rows, model.global_state)["probability"], dtype=np.float64)
    if beyond is None:
        return Predicted(probability, held.counts, held.offsets)
    inferred = half.infer(local, model.global_state)
    theta, starts = inferred["document_topic"], held.offsets
    if held.segments is not None:
        theta, starts = inferred["segment_topic"], held.segments.pairs
    lacking = np.einsum("dk,k->d", np.asarray(theta, dtype=np.float64), beyond)
    return Predicted(probability, held.counts, held.offsets, np.repeat(lacking, np.diff(starts)))
