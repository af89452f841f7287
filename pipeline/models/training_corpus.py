"""Find the corpus that a model was fitted to."""

from __future__ import annotations

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
