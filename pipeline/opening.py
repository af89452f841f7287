"""Opening models: finished ones and, of runs that are going on or were stopped, what their latest checkpoint holds."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import numpy.typing as npt

from collapsar.pipeline.members import reference_of
from collapsar.storage.checkpoint import RECORD as CHECKPOINT
from collapsar.storage.checkpoint import Checkpoint
from collapsar.storage.corpus import Corpus
from collapsar.storage.errors import AbsentError, CollapsarError, DamagedError
from collapsar.storage.folder import Folder
from collapsar.storage.lineage import lineage_of
from collapsar.storage.model import ModelRecord, ShardDocuments, StoredModel, kept_of
from collapsar.storage.run import CHECKPOINTS, Run
from collapsar.storage.vocabulary import Vocabulary
from collapsar.workers.contract import load_sweeps


class Model(StoredModel):
    """A model, finished or not.

    Parameters
    ----------
    url : str or path-like
        The folder of a run, of a model, of a checkpoint, or of a simulated corpus with its truth. A run that has
        no model, or one older than its latest checkpoint, is opened as that checkpoint has it; for an ensemble of
        restarts its first member is opened.

    Attributes
    ----------
    folder : Folder
        The model's folder, or the checkpoint's.
    record : ModelRecord
        What the model says of itself.

    Raises
    ------
    AbsentError
        There is no model, and no checkpoint.
    DamagedError
        A file does not hold what its format asks for.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self._checkpoint: Checkpoint | None = None
        url = reference_of(url) or url
        given = Folder(url)
        if given.exists(CHECKPOINT):
            self._open(given)
            return
        latest = _latest(given)
        try:
            super().__init__(url)
        except AbsentError:
            if latest is None:
                raise
            self._open(Run(url).checkpoints.at(latest).folder)
            return
        if latest is not None and latest > self.record.iterations:
            self._open(Run(url).checkpoints.at(latest).folder)

    def _open(self, folder: Folder) -> None:
        """Make of a checkpoint's and its run's records what a model says of itself."""
        place = Checkpoint(folder)
        found = place.record()
        run = Run(folder.address.rsplit("/", 2)[0])
        record = run.record()
        self._corpus = Corpus(run.folder.recorded(record["corpus"]["url"]))
        if self._corpus.manifest.digest != record["corpus"]["digest"]:
            raise DamagedError(self._corpus.url, "it is not the corpus that the run was fitted to")
        self._checkpoint, self.folder = place, folder
        rows = self._corpus.manifest.shards
        self.record = ModelRecord(
            family=record["family"],
            options=record["options"],
            iterations=found.iteration,
            corpus=record["corpus"]["digest"],
            vocabulary=self._corpus.manifest.vocabulary,
            blocks=found.blocks,
            shards=tuple(ShardDocuments(documents=row.documents, ids_sha256=row.ids_sha256) for row in rows),
            parts={name.replace("locals/", "documents/"): digest for name, digest in found.parts.items()},
            lineage=lineage_of(self._corpus),
        )

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the training corpus."""
        return super().vocabulary if self._checkpoint is None else self._corpus.vocabulary

    @property
    def fitted(self) -> bool:
        """Whether the training documents' proportions are there; the stochastic schedule has them only in the end."""
        return any(name.startswith("documents/") for name in self.record.parts)

    def rows(self, block: int) -> dict[str, npt.NDArray[Any]]:
        """Read the rows of one block of the vocabulary."""
        rows = super().rows(block)
        if self._checkpoint is None:
            return rows
        return dict(load_sweeps(self.record.family).finish(rows, self.globals))

    def _read(self, part: str) -> dict[str, npt.NDArray[Any]]:
        if self._checkpoint is None:
            return super()._read(part)
        if part not in self.record.parts:
            raise AbsentError(f"{self.folder.url}: the run is not at its end; it has no {part} yet")
        name = part.replace("documents/", "locals/")
        found = self._checkpoint.read(name, self.record.parts[part])
        return kept_of(found) if name != part else found


def _latest(folder: Folder) -> int | None:
    """Return the iteration of a run's latest checkpoint; None where there is none that can be named."""
    if not folder.exists(CHECKPOINTS):
        return None
    try:
        return Run(folder.url).checkpoints.latest()
    except DamagedError:
        return None


def training_corpus(model: Model) -> Corpus | None:
    """Return the corpus that a model was fitted to; None where it lies there no more, or no run names it."""
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
    except (CollapsarError, KeyError, TypeError):
        return None
    return corpus if corpus.manifest.digest == model.record.corpus else None
