"""Scores of a model: document completion on held-out tokens of its own documents, and on unseen documents."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collapsar.pipeline.alignment import HeldoutReference, align
from collapsar.pipeline.executor import TLS, Executor, open_executor
from collapsar.pipeline.loop import mean_score
from collapsar.pipeline.opening import Model
from collapsar.storage.corpus import Corpus, ShardReference
from collapsar.storage.errors import InputError, OptionError
from collapsar.storage.shard import Shard
from collapsar.storage.split import split_documents
from collapsar.workers import tasks
from collapsar.workers.delta import Delta
from collapsar.workers.streams import Stream

HELDOUT = (
    "document completion: mean over the held-out tokens of the training documents of log sum_k theta_dk phi_kw, "
    "in nats; perplexity = exp(-score)"
)
UNSEEN = (
    "unseen documents: proportions fitted on a random half of each document's tokens with the topics held fixed; mean "
    "over the other half's tokens of log sum_k theta_dk phi_kw, in nats; perplexity = exp(-score)"
)


@dataclass(frozen=True)
class Evaluation:
    """A model's score on a corpus.

    Attributes
    ----------
    score : float
        Mean log probability of a token, in nats.
    perplexity : float
        exp(-score).
    tokens, documents : int
        What was scored: held-out tokens, and the documents of the corpus.
    definition : str
        How the score is defined.
    """

    score: float
    perplexity: float
    tokens: int
    documents: int
    definition: str


def evaluate(
    run: str | os.PathLike[str],
    *,
    heldout: str | os.PathLike[str] | None = None,
    unseen: str | os.PathLike[str] | None = None,
    seed: int = 0,
    scheduler: str = "threads",
    workers: int | None = None,
    tls: TLS | None = None,
) -> Evaluation:
    """Score a model on held-out tokens of its own documents, or on unseen documents.

    Parameters
    ----------
    run : str or path-like
        Folder of a run or model.
    heldout : str or path-like, optional
        A corpus of further tokens of the training documents, with the same ids and vocabulary.
    unseen : str or path-like, optional
        A corpus of other documents with the same vocabulary.
    seed : int, optional
        Chooses the halves of unseen documents.
    scheduler : str, optional
        As for `fit`.
    workers : int, optional
        As for `fit`.
    tls : TLS, optional
        As for `fit`.

    Returns
    -------
    Evaluation
        The score and its definition.

    Raises
    ------
    OptionError
        Neither or both of `heldout` and `unseen` are given.
    MismatchError
        The corpus has another vocabulary, or not the training documents.
    """
    if (heldout is None) == (unseen is None):
        raise OptionError("name one corpus: --heldout (tokens of the training documents) or --unseen (new documents)")
    model = Model(run)
    corpus = Corpus(heldout if heldout is not None else unseen)  # type: ignore[arg-type]
    corpus.require_vocabulary_of(model.record.vocabulary.words_sha256, model.folder.url)
    held = align(model.record.shards, corpus, model.folder.url) if heldout is not None else None
    executor = open_executor(scheduler, workers, tls=tls)
    try:
        blocks = load_blocks(model, executor)
        submitted = (
            _submit_unseen(model, corpus, blocks, executor, seed)
            if held is None
            else [executor.submit(_score_heldout, model.folder.address, reference, blocks) for reference in held]
        )
        scores: Sequence[tasks.Score] = executor.collect(submitted)
    finally:
        executor.close()
    score = mean_score(scores)
    if score is None:
        raise InputError(corpus.url, "no token is left to score")
    tokens = sum(part.tokens for part in scores)
    definition = UNSEEN if held is None else HELDOUT
    return Evaluation(score, math.exp(-score), tokens, corpus.manifest.documents, definition)


def load_blocks(model: Model, executor: Executor) -> list[Any]:
    """Bring the blocks of the vocabulary to the workers.

    Parameters
    ----------
    model : Model
        The model.
    executor : Executor
        Who shall read them.

    Returns
    -------
    list of futures
        One a block, of `collapsar.workers.tasks.Block`.
    """
    return [
        executor.submit(_load_block, model.folder.address, number, low, high)
        for number, (low, high) in enumerate(model.blocks)
    ]


def _load_block(url: str, number: int, low: int, high: int) -> tasks.Block:
    return tasks.Block(low, high, Model(url).rows(number), Delta())


def _score_heldout(url: str, reference: HeldoutReference, blocks: list[tasks.Block]) -> tasks.Score:
    model = Model(url)
    local = model.documents(reference.number)
    return tasks.score_local(model.record.family, reference.load(), local, blocks, model.globals)


def _submit_unseen(model: Model, corpus: Corpus, blocks: list[Any], executor: Executor, seed: int) -> list[Any]:
    submitted, first = [], 0
    for reference in corpus.references:
        submitted.append(executor.submit(_score_unseen, model.folder.address, reference, first, blocks, seed))
        first += reference.record.documents
    return submitted


def _score_unseen(url: str, reference: ShardReference, first: int, blocks: list[tasks.Block], seed: int) -> tasks.Score:
    """Fit proportions on one half of each document's tokens and score the other; empty documents score nothing."""
    model = Model(url)
    known, scored = split_documents(reference.documents(), first, 0.5, seed)
    family, stream = model.record.family, Stream(seed, "unseen")
    local = tasks.settle(family, Shard.of(reference.number, known), blocks, model.globals, stream)
    return tasks.score_local(family, Shard.of(reference.number, scored), local, blocks, model.globals)
