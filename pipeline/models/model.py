"""Open models: finished ones, the latest checkpoints of runs that have not finished, and means of matched topics.

`training_corpus` finds the corpus that a model was fitted to.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.models.registry import recorded_family
from collapsium.pipeline.outputs import remove_here
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import lineage_of
from collapsium.storage.corpus.manifest import MANIFEST
from collapsium.storage.data_types import AnyArray
from collapsium.storage.errors import (
    AbsentError,
    ClosedError,
    CollapsiumError,
    DamagedError,
    MismatchError,
    OptionError,
)
from collapsium.storage.io.file import path_of
from collapsium.storage.io.folder import Folder, recorded_url
from collapsium.storage.io.records import check
from collapsium.storage.runs.checkpoint import RECORD as CHECKPOINT
from collapsium.storage.runs.checkpoint import Checkpoint
from collapsium.storage.runs.members import mean_of, reference_of
from collapsium.storage.runs.model import RECORD, ModelRecord, ShardDocuments, StoredModel
from collapsium.storage.runs.run import CHECKPOINTS, Run
from collapsium.storage.runs.run import RECORD as RUN_RECORD
from collapsium.storage.runs.topic_names import read_names
from collapsium.workers.families.family import AnyPredicts
from collapsium.workers.families.mean import ABSENT, MeanDocuments, MeanGlobalState, MeanPredictions, MeanRows
from collapsium.workers.families.model_checks import ModelChecks

if TYPE_CHECKING:
    from collapsium.storage.corpus.vectors import AnyShard
    from collapsium.storage.corpus.vocabulary import Vocabulary
    from collapsium.workers.arrays.state import Arrays, GlobalState, LocalState, Rows
    from collapsium.workers.families.family import AnyFamily, AnyPredicts, Description


class FittedStates:
    """The states of a finished model, or of a checkpoint, which are checked when they are read."""

    def __init__(self, files: StoredModel) -> None:
        self.files = files

    @cached_property
    def family(self) -> AnyFamily:
        """The family, with the options of the model."""
        try:
            return recorded_family(self.files.record.family, self.files.record.options)
        except OptionError as error:
            raise DamagedError(f"{self.files.folder.url}/{RECORD}", str(error)) from None

    @cached_property
    def checks(self) -> ModelChecks:
        """The checks of further parts by the global state, which is read and checked first."""
        files = self.files
        path = f"{files.folder.url}/global_state"
        return ModelChecks.of(self.family, files.record.blocks[-1], files.global_arrays, path, files.tokens)

    @cached_property
    def global_state(self) -> GlobalState:
        """The global state."""
        global_state: GlobalState = self.checks.global_state
        return global_state

    @property
    def fitted(self) -> bool:
        """True if the model has the training documents' proportions."""
        return any(name.startswith("documents/") for name in self.files.record.parts)

    @property
    def seed_names(self) -> dict[int, str]:
        """Names of the topics that were seeded, by permanent id."""
        return dict(enumerate(self.family.options.topic_names))

    def rows(self, block: int) -> Rows:
        """Read the rows of one block of the vocabulary."""
        files = self.files
        arrays, (low, high) = files.row_arrays(block), files.blocks[block]
        rows = self.checks.rows(arrays, high - low, f"{files.folder.url}/rows/{block:05d}", finished=files.finished)
        return rows if files.finished else self.family.finished_rows(rows, self.global_state)

    def local_state(self, shard: int) -> LocalState:
        """Read the documents of one training shard."""
        files = self.files
        arrays = files.document_arrays(shard)
        if not files.finished:
            names = self.family.documents_type.array_names()
            arrays = {name: array for name, array in arrays.items() if name in names}
        path = f"{files.folder.url}/documents/{shard:05d}"
        return self.checks.documents(arrays, files.record.shards[shard].documents, path)

    def check_local(self, local: Arrays, shard: AnyShard, path: str) -> None:
        """Raise `DamagedError` if the arrays at a path are no local state of a shard."""
        self.checks.local(local, shard, path)


class MeanStates:
    """The means of the states of several models."""

    def __init__(self, models: Sequence[FittedStates], record: ModelRecord) -> None:
        self.models = tuple(models)
        for model, member in zip(models, record.members, strict=True):
            files = model.files
            if files.record.digest != member.digest:
                raise MismatchError(
                    f"{files.folder.url}: it was fitted further since the members were matched; `resume` the run above "
                    "it to match them again, or name one member"
                )
            same = (files.record.family, files.record.blocks, files.record.shards)
            if same != (record.family, record.blocks, record.shards) or files.record.members:
                raise DamagedError(files.folder.url, "expected a model of the family and the documents of the mean")
            if any(count > 1 for column, count in Counter(member.columns).items() if column != ABSENT):
                raise DamagedError(files.folder.url, "expected each column to match one topic of the mean at most")
        self.columns: npt.NDArray[np.int64] = np.array([member.columns for member in record.members], dtype=np.int64)
        # The mean has the columns of one of the models.
        all_columns = np.arange(self.columns.shape[1])
        first = next(
            (n for n, columns in enumerate(self.columns) if np.array_equal(np.sort(columns), all_columns)), None
        )
        if first is None or not all_columns.size:
            raise DamagedError(models[0].files.folder.url, "expected a model that has all columns of the mean")
        self._first = self.models[first]

    @cached_property
    def family(self) -> MeanPredictions:
        """The mean of the models' families."""
        return MeanPredictions([model.family for model in self.models], self.columns)

    @cached_property
    def global_state(self) -> MeanGlobalState:
        """The global states; `DamagedError` if the mean has more columns than the model that has them all."""
        # Proportions with this number of columns are allocated before the models' proportions are read.
        if (width := width_of(self._first)) < self.columns.shape[1]:
            raise DamagedError(
                self._first.files.folder.url,
                f"expected columns below {width} in the mean, found {self.columns.shape[1] - 1}",
            )
        return MeanGlobalState(tuple(model.global_state for model in self.models))

    @property
    def fitted(self) -> bool:
        """True if all models have the training documents' proportions."""
        return all(model.fitted for model in self.models)

    @property
    def seed_names(self) -> dict[int, str]:
        """Names of the topics that were seeded in all models."""
        return self.models[0].seed_names

    def rows(self, block: int) -> MeanRows:
        """Read the rows of one block of the vocabulary of all models."""
        return MeanRows(tuple(model.rows(block) for model in self.models))

    def local_state(self, shard: int) -> MeanDocuments:
        """Read the documents of one training shard, one model after another, and average them."""
        return self.family.averaged((model.local_state(shard) for model in self.models), self.global_state)

    def check_local(self, local: Arrays, shard: AnyShard, path: str) -> None:
        """Raise `DamagedError` if the arrays at a path are no local state of a shard, in the first model."""
        self.models[0].check_local(local, shard, path)


def width_of(model: FittedStates | Model) -> int:
    """Return the number of columns of a model's topics."""
    none = model.rows(0).of_words(slice(0), complete=True)
    return int(model.family.probabilities(none, model.global_state)["word_topic"].shape[1])


class CheckpointFiles(StoredModel):
    """The files of a checkpoint, read as a model whose record is made of the checkpoint's and the run's."""

    finished = False

    def __init__(self, folder: Folder) -> None:
        self.folder, self._checkpoint = folder, Checkpoint(folder)
        saved, run = self._checkpoint.record(), Run(folder.address.rsplit("/", 2)[0])
        record = run.record()
        self._corpus = Corpus(recorded_url(run.folder, record["corpus"]["url"]))
        if self._corpus.manifest.digest != record["corpus"]["digest"]:
            raise MismatchError(f"{self._corpus.url}: it is not the corpus that the run was fitted to")
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
            raise AbsentError(f"{self.folder.url}: the run has not finished; it has no {part} yet")
        return self._checkpoint.read(part.replace("documents/", "local_states/"), self.record.parts[part])


def _files(url: str | os.PathLike[str]) -> StoredModel:
    """Open the files of a model, or of a run's latest checkpoint if it has no model, or an older one."""
    folder = Folder(url)
    if folder.exists(CHECKPOINT):
        return CheckpointFiles(folder)
    latest = None
    if folder.exists(CHECKPOINTS):
        # The name of a checkpoint may be unreadable.
        with contextlib.suppress(DamagedError):
            latest = Run(folder.url).checkpoints.latest()
    try:
        files = StoredModel(url)
    except AbsentError:
        if latest is None:
            raise
        return CheckpointFiles(Run(url).checkpoints.at(latest).folder)
    if latest is not None and latest > files.record.iterations:
        return CheckpointFiles(Run(url).checkpoints.at(latest).folder)
    return files


class Model:
    """A model, finished or as a checkpoint has it, for tasks and for all that is computed from its parts.

    A run is opened at its latest checkpoint if it has no model, or an older one. Restarts or samples are opened as
    their mean, or as the first restart if their topics cannot be matched, as those in trees.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self._opened = path_of(url)
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
        """Return the path that was opened, so that functions of a run accept the model, unless another replaced it."""
        self._require_open()
        # A run that is being fitted is opened at its latest checkpoint each time.
        if self._files.finished:
            self._files.require_unchanged()
        return self._opened

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the ownership of a temporary folder, which stays here."""
        return {**self.__dict__, "_place": None}

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def take_over(self, place: str, run: str) -> None:
        """Remove a temporary folder, and the run in it, when the model is closed or collected, or the process ends."""
        self._opened = run
        self._place = weakref.finalize(self, remove_here, place, os.getpid())

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
    def _read_states(self) -> FittedStates | MeanStates:
        if self.record.members:
            return MeanStates([FittedStates(member._files) for member in self.members], self.record)
        return FittedStates(self._files)

    @property
    def _states(self) -> FittedStates | MeanStates:
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

    def metrics(self) -> dict[str, float]:
        """Return the hyperparameters; of a mean the means of its models'."""
        return self.family.metrics(self.global_state)

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


def training_corpus(model: Model) -> Corpus | None:
    """Return the training corpus of a model; None if it was moved or changed, or no run names it."""
    try:
        return require_training_corpus(model)
    except (CollapsiumError, KeyError, TypeError):
        return None


def require_training_corpus(model: Model) -> Corpus:
    """Return the training corpus of a model; refuse one that was moved or replaced, and models that no run has."""
    folder = model.folder
    for _ in range(2):
        folder = Folder(folder.address.rpartition("/")[0] or "/")
        if folder.exists(RUN_RECORD):
            break
    else:
        raise AbsentError(f"{model.folder.url}: no run beside the model names its training corpus")
    url = recorded_url(folder, Run(folder.url).record()["corpus"]["url"])
    if not Folder(url).exists(MANIFEST):
        raise AbsentError(f"{url}: the training corpus is gone, and with it the documents' ids")
    corpus = Corpus(url)
    if corpus.manifest.digest != model.record.corpus:
        raise MismatchError(f"{url}: it is not the corpus that the model was fitted to")
    return corpus


def training_corpus_of(run: str | os.PathLike[str], model: Model, corpus: str | os.PathLike[str] | None) -> Corpus:
    """Open the corpus that the model of a run was fitted to: the one that is named, or else the run's."""
    if corpus is None and Folder(run).exists(RUN_RECORD):
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
