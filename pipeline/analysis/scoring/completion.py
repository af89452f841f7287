"""Score several models by document completion on the same held-out tokens.

Documents that a model was fitted to keep their proportions; proportions of all others are fitted to the training tokens
with the topics held fixed. No model has seen a held-out token. If the corpus has words that entered the vocabulary
later, only the words that all models know are scored, with their conditional probabilities given these words.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.scoring.predictive import MemberScore, load_blocks
from collapsium.pipeline.engine.leakage import require_held_out, trained_on
from collapsium.pipeline.engine.loop.fit import mean_score
from collapsium.pipeline.engine.model_io.save import documents_of
from collapsium.pipeline.engine.setup.request import HeldoutReference, align
from collapsium.pipeline.executors.base import TLS, Executor, Future
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import Scheduler
from collapsium.pipeline.models.model import Model
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.lineage import lineage_of
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import InputError
from collapsium.storage.runs.members import leaves
from collapsium.workers import special_functions as special
from collapsium.workers import tasks
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import LocalState
from collapsium.workers.shard_loading import document_parts

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
    most = min(known if words is None else words, known)
    parts = align(documents_of(training), held, training.url)
    executor = open_executor(scheduler, workers, tls=tls)
    try:
        members: list[MemberScore] = []
        sums: list[Future[_Predicted]] = []
        for member, model in named:
            predicted = _submit(model, training, parts, most, executor)
            if len(named) > 1:
                alone = mean_score(executor.collect([executor.submit(_score, part, 1) for part in predicted]))
                members.append(MemberScore(member, math.nan if alone is None else alone))
            # Sums in the members' order have the same bits everywhere.
            sums = [executor.submit(_add, *pair) for pair in zip(sums, predicted, strict=True)] if sums else predicted
        scores = executor.collect([executor.submit(_score, part, len(named)) for part in sums])
    finally:
        executor.close()
    score = mean_score(scores)
    if score is None:
        raise InputError(held.url, "no token is left to score")
    among = AMONG if most < training.manifest.vocabulary.words else ""
    definition = COMPLETED + (AVERAGED if len(named) > 1 else "") + among
    return Completion(score, sum(shard.tokens for shard in scores), definition, tuple(members))


@dataclass(frozen=True, slots=True)
class _Predicted:
    """Probabilities of a shard's held-out pairs, of one model or summed over several."""

    probability: npt.NDArray[np.float64]  # Probability of each pair's word in its document; float64 (pairs,)
    # Total probability, in the same document, of the words that are not scored; None if all words are; float64 (pairs,)
    beyond: npt.NDArray[np.float64] | None
    counts: npt.NDArray[np.int32]  # Number of tokens of each pair; int32 (pairs,)

    def __sizeof__(self) -> int:
        return 3 * self.probability.nbytes


def _add(left: _Predicted, right: _Predicted) -> _Predicted:
    beyond = None if left.beyond is None or right.beyond is None else left.beyond + right.beyond
    return _Predicted(left.probability + right.probability, beyond, left.counts)


def _score(sums: _Predicted, members: int) -> tasks.Score:
    """Score the mean prediction of `members` models, conditional on the words that are scored."""
    if not sums.counts.size:
        return tasks.Score(0.0, 0)
    logs = special.log(sums.probability / members)
    if sums.beyond is not None:
        logs -= special.log1p(-np.minimum(sums.beyond / members, 1.0 - 1e-12))
    return tasks.Score(float((sums.counts * logs).sum()), int(sums.counts.sum()))


def _submit(
    model: Model, training: Corpus, parts: list[HeldoutReference], words: int, executor: Executor
) -> list[Future[_Predicted]]:
    """Submit a task for each shard, and return the futures of their `_Predicted`."""
    own = {(one.documents, one.ids_sha256): number for number, one in reversed(list(enumerate(model.record.shards)))}
    blocks = load_blocks(model, executor)
    few = words < model.record.vocabulary.words
    beyond = executor.submit(_beyond, model.folder.address, blocks, words) if few else None
    submitted = []
    for reference, part in zip(training.references, parts, strict=True):
        fitted = own.get((reference.record.documents, reference.record.ids_sha256)) if model.fitted else None
        arguments = (model.folder.address, reference, part, fitted, blocks, words, beyond)
        submitted.append(executor.submit(_predict, *arguments))
    return submitted


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


def _predict(
    url: str,
    reference: ShardReference,
    heldout: HeldoutReference,
    fitted: int | None,
    blocks: list[tasks.Block],
    words: int,
    beyond: npt.NDArray[np.float64] | None,
) -> _Predicted:
    """Predict the held-out pairs of a shard's documents."""
    model = Model(url)
    parts = document_parts(model.family)
    held = _among(heldout.load(segmented=parts["segmented"]), words)
    half = model.family
    if not held.pairs:
        return _Predicted(np.zeros(0), None if beyond is None else np.zeros(0), held.counts)
    local: LocalState
    if fitted is not None:
        local = model.documents(fitted)
    else:
        shard = reference.load(**parts)
        shard = _among(shard, model.record.vocabulary.words) if isinstance(shard, Shard) else shard
        local = tasks.fold_in(model.family, shard, blocks, model.global_state, Stream(0, "complete"))
    rows = tasks.gather(blocks, held.words, complete=True)
    probability = np.asarray(half.predict(held, local, rows, model.global_state)["probability"], dtype=np.float64)
    if beyond is None:
        return _Predicted(probability, None, held.counts)
    inferred = half.infer(local, model.global_state)
    theta, starts = inferred["document_topic"], held.offsets
    if held.segments is not None:
        theta, starts = inferred["segment_topic"], held.segments.pairs
    lacking = np.einsum("dk,k->d", np.asarray(theta, dtype=np.float64), beyond)
    return _Predicted(probability, np.repeat(lacking, np.diff(starts)), held.counts)
