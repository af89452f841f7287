"""Refuse to score corpora of another vocabulary, and tokens or documents that a model was fitted to."""

from __future__ import annotations

from collections.abc import Sequence

from collapsium.pipeline.analysis.scoring.predictive import Scored
from collapsium.pipeline.engine.leakage import (
    require_held_out,
    require_new_documents,
    require_not_contained,
    require_unseen,
    tables_of,
    trained_on,
)
from collapsium.pipeline.engine.setup.request import HeldoutReference
from collapsium.pipeline.executors.base import Executor
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import require_corpus
from collapsium.pipeline.models.training_corpus import training_corpus
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import Lineage, lineage_of


def require_same_vocabulary(named: Sequence[tuple[str, Model]], corpus: Corpus) -> None:
    """Refuse a corpus whose kind or vocabulary is not that of all models."""
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
            labelled = model.shard_model.uses_labels
            require_new_documents(training_corpus(model), corpus, name, executor, labelled=labelled)


def _against(model: Model, corpus: Corpus) -> tuple[Lineage | None, Corpus, str]:
    return trained_on(model), corpus, f"the training corpus of {model.folder.url}"


def require_disjoint(named: Sequence[tuple[str, Model]], what: Scored) -> tuple[str, bool]:
    """Refuse tokens or documents that a model was fitted to, by the lineage of the corpora.

    Returns note: An addition to the score's definition; certain: True if the lineage is complete, so that counts need
    not be compared
    """
    if what.known:
        return "", all(tuple(require_held_out(*_against(model, what.corpus)) for _, model in named))
    note = require_unseen_by_all(named, what.corpus)
    if what.scored is None:
        return note, True
    require_unseen_by_all(named, what.scored)
    return note, require_held_out(lineage_of(what.corpus), what.scored, what.corpus.url)


def require_other_tokens(first: Model, what: Scored, held: Sequence[HeldoutReference], executor: Executor) -> None:
    """Refuse tokens that are among the fitted ones, if these can be read."""
    fitted = training_corpus(first) if what.known else what.corpus
    if fitted is not None:
        require_not_contained(tables_of(fitted, held, executor), what.tokens, fitted.url)
