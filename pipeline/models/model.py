"""Open models: finished ones, and the latest checkpoints of runs that have not finished."""

from __future__ import annotations

import os
import shutil
import weakref
from functools import cached_property
from typing import TYPE_CHECKING

from collapsium.pipeline.models.states import FittedStates, MeanStates, ModelStates
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import lineage_of
from collapsium.storage.data_types import AnyArray
from collapsium.storage.errors import AbsentError, ClosedError, DamagedError
from collapsium.storage.io.folder import Folder, recorded_url
from collapsium.storage.io.records import check
from collapsium.storage.runs.checkpoint import RECORD as CHECKPOINT
from collapsium.storage.runs.checkpoint import Checkpoint
from collapsium.storage.runs.members import mean_of, reference_of
from collapsium.storage.runs.model import ModelRecord, ShardDocuments, StoredModel
from collapsium.storage.runs.run import CHECKPOINTS, Run
from collapsium.storage.runs.topic_names import read_names
from collapsium.workers.families.family import AnyPredicts

if TYPE_CHECKING:
    from collapsium.storage.corpus.vectors import AnyShard
    from collapsium.storage.corpus.vocabulary import Vocabulary
    from collapsium.workers.arrays.state import Arrays, GlobalState, LocalState, Rows
    from collapsium.workers.families.family import Description


class CheckpointFiles(StoredModel):
    """The files of a checkpoint, read as a model whose record is made of the checkpoint's and the run's."""

    finished = False

    def __init__(self, folder: Folder) -> None:
        self.folder, self._checkpoint = folder, Checkpoint(folder)
        saved, run = self._checkpoint.record(), Run(folder.address.rsplit("/", 2)[0])
        record = run.record()
        self._corpus = Corpus(recorded_url(run.folder, record["corpus"]["url"]))
        if self._corpus.manifest.digest != record["corpus"]["digest"]:
            raise DamagedError(self._corpus.url, "it is not the corpus that the run was fitted to")
        self.tokens = self._corpus.manifest.tokens
        rows = self._corpus.manifest.shards
        fields = {
            "family": record["family"],
            "options": record["options"],
            "iterations": saved.iteration,
            "corpus": record["corpus"]["digest"],
            "vocabulary": self._corpus.manifest.vocabulary,
            "blocks": saved.blocks,
            "shards": tuple(ShardDocuments(documents=row.documents, ids_sha256=row.ids_sha256) for row in rows),
            "parts": {name.replace("local_states/", "documents/"): digest for name, digest in saved.parts.items()},
            "lineage": lineage_of(self._corpus),
        }
        self.record = check(ModelRecord, fields, f"{folder.url}/{CHECKPOINT}")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the training corpus."""
        return self._corpus.vocabulary

    def _read(self, part: str) -> dict[str, AnyArray]:
        if part not in self.record.parts:
            raise AbsentError(f"{self.folder.url}: the run is not at its end; it has no {part} yet")
        return self._checkpoint.read(part.replace("documents/", "local_states/"), self.record.parts[part])


def _files(url: str | os.PathLike[str]) -> StoredModel:
    """Open the files of a model, or of a run's latest checkpoint if it has no model, or an older one."""
    folder = Folder(url)
    if folder.exists(CHECKPOINT):
        return CheckpointFiles(folder)
    latest = _latest(folder)
    try:
        files = StoredModel(url)
    except AbsentError:
        if latest is None:
            raise
        return CheckpointFiles(Run(url).checkpoints.at(latest).folder)
    if latest is not None and latest > files.record.iterations:
        return CheckpointFiles(Run(url).checkpoints.at(latest).folder)
    return files


class Model(ModelStates):
    """A model, finished or as a checkpoint has it, for tasks and for all that is computed from its parts.

    A run is opened at its latest checkpoint if it has no model, or an older one. Restarts or samples are opened as
    their mean, or as the first restart if their topics cannot be matched, as those in trees.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self._opened = os.fspath(url)
        self._place: weakref.finalize[[str, int], Model] | None = None
        self._files = _files(mean_of(url) or reference_of(url) or url)

    @property
    def record(self) -> ModelRecord:
        """Record of the model."""
        return self._files.record

    @property
    def folder(self) -> Folder:
        """Folder of the model, or of the checkpoint; `ClosedError` if it was removed when the model was closed."""
        self._require_open()
        return self._files.folder

    @property
    def location(self) -> str:
        """URL of the folder, also after it was removed."""
        return self._files.folder.url

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the training corpus."""
        self._require_open()
        return self._files.vocabulary

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """First and last-plus-one word of each block."""
        return self._files.blocks

    def _require_open(self) -> None:
        if self._place is not None and not self._place.alive:
            raise ClosedError(
                "the model is closed, and its temporary folder is removed; use it before `close`, or name a folder for "
                "the fit (`out`)"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._files.folder.url!r})"

    def __fspath__(self) -> str:
        """Return the path that was opened, so that functions of a run accept the model."""
        self._require_open()
        return self._opened

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the ownership of a temporary folder, which stays here."""
        return {**self.__dict__, "_place": None}

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def own(self, place: str, run: str) -> None:
        """Remove a folder when the model is closed or collected, or the process ends.

        Parameters
        ----------
        place : str
            A temporary folder on this machine.
        run : str
            Folder of the run in it.
        """
        self._opened = run
        self._place = weakref.finalize(self, _remove, place, os.getpid())

    def close(self) -> None:
        """Remove the temporary folder of a model that was fitted without `out`, which cannot be used after that."""
        if self._place is not None:
            self._place()

    @property
    def topic_names(self) -> dict[int, str]:
        """Names of topics by permanent id, as they were given by hand, by a namer or by seeds."""
        names = self.seed_names
        if self._files.finished:
            names |= {topic: entry.name for topic, entry in read_names(self.folder, self.record).items()}
        return names

    @property
    def seed_names(self) -> dict[int, str]:
        """Names of the topics that were seeded, by permanent id."""
        return self._states.seed_names

    @cached_property
    def members(self) -> tuple[Model, ...]:
        """The models whose mean this one is; empty for a model that was fitted."""
        folder = self.folder.address.rpartition("/")[0]
        return tuple(Model(f"{folder}/{member.folder}") for member in self.record.members)

    @cached_property
    def _read_states(self) -> ModelStates:
        if self.record.members:
            return MeanStates([FittedStates(member._files) for member in self.members], self.record)
        return FittedStates(self._files)

    @property
    def _states(self) -> ModelStates:
        """The states; `MismatchError` if a model whose mean this one is was fitted further since then."""
        self._require_open()
        return self._read_states

    @property
    def family(self) -> AnyPredicts:
        """The family with the options of the model, or the mean of several models'."""
        return self._states.family

    @property
    def global_state(self) -> GlobalState:
        """The global state, checked."""
        return self._states.global_state

    @property
    def fitted(self) -> bool:
        """True if the model has the training documents' proportions; checkpoints of the stochastic schedule do not."""
        return self._states.fitted

    def rows(self, block: int) -> Rows:
        """Read the rows of one block of the vocabulary, and check them."""
        return self._states.rows(block)

    def local_state(self, shard: int) -> LocalState:
        """Read the documents of one training shard, and check them."""
        return self._states.local_state(shard)

    def describe(self, rows: Rows, count: int) -> Description:
        """Describe the topics by the `count` most probable words of the rows."""
        return self.family.describe(rows, self.global_state, count)

    def figures(self) -> dict[str, float]:
        """Return the hyperparameters; of a mean the means of its models'."""
        return self.family.figures(self.global_state)

    def remark(self) -> str | None:
        """Return notices about the topics for readers; None for nothing, and for means of models."""
        return self.family.remark(self.global_state)

    def local_arrays(self, shard: int) -> Arrays | None:
        """Read the local state of a shard from a checkpoint; None where there is none, as in a finished model."""
        is_stored = not self._files.finished and f"documents/{shard:05d}" in self.record.parts
        return self._files.document_arrays(shard) if is_stored else None

    def check_local(self, local: Arrays, shard: AnyShard, path: str) -> None:
        """Raise `DamagedError` if the arrays at a path are no local state of a shard."""
        self._states.check_local(local, shard, path)


def _remove(place: str, process: int) -> None:
    """Remove a folder, except from a forked process."""
    if os.getpid() == process:
        shutil.rmtree(place, ignore_errors=True)


def _latest(folder: Folder) -> int | None:
    """Return the iteration of a run's latest checkpoint; None if there is none, or its name cannot be read."""
    if not folder.exists(CHECKPOINTS):
        return None
    try:
        return Run(folder.url).checkpoints.latest()
    except DamagedError:
        return None
