"""Find the corpus that a model was fitted to."""

from __future__ import annotations

from collapsium.pipeline.models.model import Model
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.errors import CollapsiumError
from collapsium.storage.io.folder import Folder
from collapsium.storage.runs.run import Run


def training_corpus(model: Model) -> Corpus | None:
    """Return the training corpus of a model; None if it was moved, or no run names it."""
    folder = model.folder
    for _ in range(2):
        folder = Folder(folder.address.rpartition("/")[0])
        run = Run(folder.url)
        if run.exists():
            break
    else:
        return None
    try:
        corpus = Corpus(run.record()["corpus"]["url"])
    except (CollapsiumError, KeyError, TypeError):
        return None
    return corpus if corpus.manifest.digest == model.record.corpus else None
