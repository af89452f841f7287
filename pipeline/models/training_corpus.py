"""Find the corpus that a model was fitted to."""

from __future__ import annotations

import os

from collapsium.pipeline.models.model import Model
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import MANIFEST
from collapsium.storage.errors import AbsentError, CollapsiumError, MismatchError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.run import RECORD, Run


def training_corpus(model: Model) -> Corpus | None:
    """Return the training corpus of a model; None if it was moved, or no run names it."""
    try:
        return require_training_corpus(model)
    except (CollapsiumError, KeyError, TypeError):
        return None


def require_training_corpus(model: Model) -> Corpus:
    """Return the training corpus of a model; refuse one that was moved or replaced, and models that no run has."""
    folder = model.folder
    for _ in range(2):
        folder = Folder(folder.address.rpartition("/")[0] or "/")
        if folder.exists(RECORD):
            break
    else:
        raise AbsentError(f"{model.folder.url}: no run beside the model names its training corpus")
    url = str(Run(folder.url).record()["corpus"]["url"])
    if not Folder(url).exists(MANIFEST):
        raise AbsentError(f"{url}: the training corpus is gone, and with it the documents' ids")
    corpus = Corpus(url)
    if corpus.manifest.digest != model.record.corpus:
        raise MismatchError(f"{url}: it is not the corpus that the model was fitted to")
    return corpus


def training_corpus_of(run: str | os.PathLike[str], model: Model, corpus: str | os.PathLike[str] | None) -> Corpus:
    """Open the corpus that the model of a run was fitted to: the one that is named, or else the run's."""
    if corpus is None and Folder(run).exists(RECORD):
        corpus = Run(run).place_of("corpus")
    if corpus is None:
        raise AbsentError(f"{os.fspath(run)}: the training corpus is not recorded; name it (`corpus`)")
    try:
        training = Corpus(corpus)
    except AbsentError as error:
        raise AbsentError(f"{error}; name the present location of the training corpus (`corpus`)") from None
    if training.manifest.digest != model.record.corpus:
        raise MismatchError(f"{training.url}: it is not the corpus that the model was fitted to")
    return training
