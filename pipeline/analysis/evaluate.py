"""Score models: document completion on held-out tokens or unseen documents, and reconstruction of unseen vectors."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collapsium.pipeline.analysis.label_prediction import (
    Classification,
    LabelScore,
    candidates_of,
    classify,
    has_labels,
    require_expectations,
    score_from_labels,
)
from collapsium.pipeline.analysis.options import EvaluateOptions
from collapsium.pipeline.analysis.scoring import AVERAGED, MemberScore, Scored, score_members
from collapsium.pipeline.corpora.new_texts import UnknownWords, documents_for
from collapsium.pipeline.corpora.options import ReadingOptions
from collapsium.pipeline.engine.leakage import (
    require_held_out,
    require_new_documents,
    require_unseen,
    trained_on,
)
from collapsium.pipeline.engine.setup.request import require_tokens
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.executors.schedulers import Scheduling
from collapsium.pipeline.fitted_model import columns_of, load_blocks, note_on_fields
from collapsium.pipeline.models.model import Model, training_corpus
from collapsium.pipeline.models.registry import require_corpus
from collapsium.pipeline.monitoring.progress import shows
from collapsium.pipeline.options import keywords, without_none
from collapsium.storage.corpus.corpus import Corpus, ShardReference
from collapsium.storage.corpus.lineage import Lineage, lineage_of
from collapsium.storage.corpus.manifest import VECTORS
from collapsium.storage.errors import InputError, NumericalError, OptionError
from collapsium.storage.printable import ShortRepr
from collapsium.storage.runs.members import leaves
from collapsium.workers import tasks
from collapsium.workers.arrays.random_streams import Stream


def require_same_vocabulary(named: Sequence[tuple[str, Model]], corpus: Corpus) -> None:
    """Refuse a corpus whose kind or vocabulary differs from any model's."""
    for _, model in named:
        require_corpus(model.record.family, corpus)
        corpus.require_vocabulary_of(model.record.vocabulary.words_sha256, model.folder.url)


def require_unseen_by_all(named: Sequence[tuple[str, Model]], corpus: Corpus) -> str:
    """Refuse documents that a model was fitted to; return an addition to the score's definition."""
    notes = [require_unseen(*_against(model, corpus)) for _, model in named]
    return next((note for note in notes if note), "")


def require_no_training_documents(named: Sequence[tuple[str, Model]], corpus: Corpus, executor: Executor) -> None:
    """Refuse documents with the content of training documents, if the training corpus can be read."""
    different = {model.record.corpus: model for _, model in named}
    for model in different.values():
        if trained_on(model) is not None:
            _, _, name = _against(model, corpus)
            labelled = model.family.uses_labels
            require_new_documents(training_corpus(model), corpus, name, executor, labelled=labelled)


def _against(model: Model, corpus: Corpus) -> tuple[Lineage | None, Corpus, str]:
    return trained_on(model), corpus, f"the training corpus of {model.folder.url}"


def require_disjoint(named: Sequence[tuple[str, Model]], what: Scored) -> str:
    """Refuse tokens or documents that a model was fitted to, by lineage; return an addition to a score's definition."""
    if what.known:
        for _, model in named:
            require_held_out(*_against(model, what.corpus))
        return ""
    note = require_unseen_by_all(named, what.corpus)
    if what.scored is not None:
        require_unseen_by_all(named, what.scored)
        require_held_out(lineage_of(what.corpus), what.scored, what.corpus.url)
    return note


RECONSTRUCTED = (
    "reconstruction error of unseen vectors: the local state of each vector t is fitted with the model held fixed; "
    "mean over the vectors of |t - t^|^2, the squared norm of the residual of the reconstruction t^"
)
EACH = "; for an ensemble, the mean of its members' errors, because reconstructions are not averaged"


@dataclass(frozen=True, repr=False)
class Evaluation(ShortRepr):
    """The score of a model, or of an ensemble's mean prediction, on a corpus.

    Attributes
    ----------
    score : float
        Mean log probability of a token, in nats.
    perplexity : float
        exp(-score).
    tokens, documents : int
        Numbers of scored tokens, and of documents of the corpus.
    definition : str
        The score's definition.
    members : tuple of MemberScore
        Scores of an ensemble's members; empty for a single model.
    given_labels : LabelScore or None
        The score of unseen documents given their labels alone; None for documents without labels, unless requested.
    fields : tuple of Classification
        Scores of the prediction of the requested fields of unseen documents.
    unknown : UnknownWords or None
        Number of tokens of texts that are not in the model's vocabulary; None for a corpus.
    """

    score: float
    perplexity: float
    tokens: int
    documents: int
    definition: str
    members: tuple[MemberScore, ...] = ()
    given_labels: LabelScore | None = None
    fields: tuple[Classification, ...] = ()
    unknown: UnknownWords | None = None


@dataclass(frozen=True)
class MemberError:
    """The error of a single member: its name, such as ``003``, and the mean over the vectors."""

    member: str
    reconstruction_error: float


@dataclass(frozen=True, repr=False)
class Reconstruction(ShortRepr):
    """Reconstruction error of a model, or the mean of the errors of an ensemble's members.

    Attributes
    ----------
    reconstruction_error : float
        Mean over the vectors of the squared norm of the residual, in the squared units of the columns.
    documents : int
        Number of vectors.
    definition : str
        The error's definition.
    members : tuple of MemberError
        Errors of an ensemble's members; empty for a single model.
    """

    reconstruction_error: float
    documents: int
    definition: str
    members: tuple[MemberError, ...] = ()


@shows("scoring documents")
@keywords(options=EvaluateOptions, reading=ReadingOptions, scheduling=Scheduling)
def evaluate(
    run: str | os.PathLike[str],
    *,
    options: EvaluateOptions,
    reading: ReadingOptions,
    scheduling: Scheduling,
    notice: Callable[[str], None] | None = None,
) -> Evaluation | Reconstruction:
    """Score a model on held-out tokens of its training documents, or on unseen documents or vectors.

    For restarts and saved samples, the mean of the predictions is scored: (17) of Teh, Kurihara and Welling (2007).

    Parameters
    ----------
    run : str or path-like
        Folder of a run or model.
    options : EvaluateOptions
        Documents to score, and the score's definition.
    reading : ReadingOptions
        Differences between new texts and the documents that a model was fitted to.
    notice : callable, optional
        Called with lines for the user: on the reading of texts, and a warning of many unknown words.

    Returns
    -------
    Evaluation or Reconstruction
        The score, or the reconstruction error of vectors, with its definition.

    Raises
    ------
    OptionError
        Neither `heldout` nor `unseen` is set; a corpus other than `unseen` holds vectors; the family has no score given
        labels, or was fitted without a field.
    MismatchError
        A corpus has another vocabulary or kind, or not the documents or segments that were fitted.
    AbsentError
        A member of an ensemble has not ended.
    """
    if options.heldout is None and options.unseen is None:
        raise OptionError(
            "name one corpus: `heldout` (tokens of the training documents) or `unseen` (new documents); or two, "
            "`unseen` (new documents, to be fitted) with `heldout` (further tokens of these, to be scored)"
        )
    labels, where = (options.given_labels, options.field), dict(scheduling)
    if options.heldout is not None and options.unseen is None:
        text_options = list(without_none(reading))
        if text_options:
            raise OptionError("applies only to texts, and `heldout` takes a corpus", next(iter(text_options)))
        return _scored(run, Scored(Corpus(options.heldout), True), options.seed, where, labels)
    with documents_for(run, options.unseen, reading=without_none(reading), notice=notice, **where) as new:
        scored = Corpus(options.heldout) if options.heldout is not None else None
        if notice is not None and (line := note_on_fields(Model(leaves(run)[0][1]), columns_of(new.corpus))):
            notice(line)
        what = Scored(new.corpus, False, scored)
        score = _scored(run, what, options.seed, where, labels)
    return score if isinstance(score, Reconstruction) else replace(score, unknown=new.unknown)


def _scored(
    run: str | os.PathLike[str],
    what: Scored,
    seed: int,
    where: Mapping[str, Any],
    labels: tuple[bool, tuple[str, ...]],
) -> Evaluation | Reconstruction:
    """Score a run's models on corpora that are open."""
    corpus, completed = what.corpus, what.tokens is not what.corpus
    corpus.require_documents()
    if what.known or completed:
        require_tokens(what.tokens)
    vectors = corpus.holds == VECTORS and not completed
    option = "given_labels" if labels[0] else "field" if labels[1] else None
    if option is not None and (what.known or vectors):
        raise OptionError("applies only to documents that the model has not seen (`unseen`)", option)
    named = [(name, Model(url)) for name, url in leaves(run)]
    if vectors:
        require_same_vocabulary(named, corpus)
        note = require_unseen_by_all(named, corpus)
        documents, members = corpus.manifest.documents, []
        with contextlib.closing(open_executor(**where)) as executor:
            for name, model in named:
                blocks = load_blocks(model, executor)
                url = model.folder.address
                sums = [executor.submit(_error_unseen, url, shard, blocks, seed) for shard in corpus.references]
                members.append(MemberError(name, sum(executor.collect(sums)) / documents))
        error = sum(member.reconstruction_error for member in members) / len(members)
        if len(members) == 1:
            return Reconstruction(error, documents, RECONSTRUCTED + note)
        return Reconstruction(error, documents, RECONSTRUCTED + EACH + note, tuple(members))
    return _evaluated(named, what, seed, where, labels)


def evaluate_together(
    runs: Sequence[str | os.PathLike[str]],
    heldout: str | os.PathLike[str],
    **where: Any,
) -> Evaluation:
    """Score the mean prediction of several runs, as if they were the members of one."""
    corpus = Corpus(heldout)
    require_tokens(corpus)
    members = [(f"{number:03d}", leaves(run)) for number, run in enumerate(runs)]
    named = [
        (f"{first}/{name}" if name else first, Model(url)) for first, named_urls in members for name, url in named_urls
    ]
    return _evaluated(named, Scored(corpus, True), 0, where)


def _evaluated(
    named: Sequence[tuple[str, Model]],
    what: Scored,
    seed: int,
    where: Mapping[str, Any],
    labels: tuple[bool, tuple[str, ...]] = (False, ()),
) -> Evaluation:
    """Score models on held-out tokens of known documents, or on unseen documents, also given their labels alone."""
    for scored in (what.corpus, what.tokens):
        require_same_vocabulary(named, scored)
    note = require_disjoint(named, what)
    first, known, corpus = named[0][1], what.known, what.tokens
    from_labels = labels[0] or (not known and has_labels(first, corpus) and not first.family.folds_in_at_a_point)
    if from_labels:
        require_expectations(first)
    candidates = [candidates_of(first, what.corpus, field) for field in dict.fromkeys(labels[1])]
    held = what.held(first)
    with contextlib.closing(open_executor(**where)) as executor:
        if not known:
            require_no_training_documents(named, what.corpus, executor)
        score, tokens, members = score_members(named, what.submit(held, executor, seed), executor)
        if score is None:
            raise InputError(corpus.url, "no token is left to score")
        label_score = score_from_labels(named, corpus, executor, seed) if from_labels else None
        classified = tuple(classify(named, what.corpus, candidate, executor, seed) for candidate in candidates)
    definition = what.definition + (AVERAGED if len(named) > 1 else "") + note
    documents = corpus.manifest.documents
    return Evaluation(score, math.exp(-score), tokens, documents, definition, members, label_score, classified)


def _error_unseen(url: str, reference: ShardReference, blocks: list[tasks.Block], seed: int) -> float:
    """Fit the local state of a shard's vectors, and sum their errors."""
    model, shard = Model(url), reference.load()
    local = tasks.fold_in(model.family, shard, blocks, model.global_state, Stream(seed, "unseen"))
    rows = tasks.gather(blocks, shard.words, complete=True)
    error = np.asarray(model.family.predict(shard, local, rows, model.global_state)["error"], dtype=np.float64)
    if error.shape != (shard.documents,) or not np.isfinite(error).all():
        raise NumericalError(
            f"{url}: expected a finite error of each vector of shard {shard.number} of {reference.folder.url}"
        )
    return float(error.sum())
