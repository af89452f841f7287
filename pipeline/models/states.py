"""The states of an open model: of one that was fitted, or the means of several whose topics were matched."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.models.registry import recorded_family
from collapsium.storage.errors import DamagedError, MismatchError, OptionError
from collapsium.storage.runs.model import RECORD, ModelRecord, StoredModel
from collapsium.workers.families.mean import ABSENT, MeanDocuments, MeanGlobalState, MeanPredictions, MeanRows
from collapsium.workers.families.model_checks import ModelChecks

if TYPE_CHECKING:
    from collapsium.storage.corpus.vectors import AnyShard
    from collapsium.workers.arrays.state import Arrays, GlobalState, LocalState, Rows
    from collapsium.workers.families.family import AnyFamily, AnyPredicts


class ModelStates(ABC):
    """The family of a model, and its states, which are checked when they are read."""

    @property
    @abstractmethod
    def family(self) -> AnyPredicts:
        """The family with the options of the model, or the mean of several models'."""

    @property
    @abstractmethod
    def global_state(self) -> GlobalState:
        """The global state."""

    @property
    @abstractmethod
    def fitted(self) -> bool:
        """True if the model has the training documents' proportions; checkpoints of the stochastic schedule do not."""

    @property
    @abstractmethod
    def seed_names(self) -> dict[int, str]:
        """Names of the topics that were seeded, by permanent id."""

    @abstractmethod
    def rows(self, block: int) -> Rows:
        """Read the rows of one block of the vocabulary."""

    @abstractmethod
    def local_state(self, shard: int) -> LocalState:
        """Read the documents of one training shard."""

    @abstractmethod
    def check_local(self, local: Arrays, shard: AnyShard, path: str) -> None:
        """Raise `DamagedError` if the arrays at a path are no local state of a shard."""


class FittedStates(ModelStates):
    """The states of a finished model, or of a checkpoint."""

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


class MeanStates(ModelStates):
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
        each = np.arange(self.columns.shape[1])
        first = next((n for n, own in enumerate(self.columns) if np.array_equal(np.sort(own), each)), None)
        if first is None or not each.size:
            raise DamagedError(models[0].files.folder.url, "expected a model that has all columns of the mean")
        self._first = self.models[first]

    @cached_property
    def family(self) -> MeanPredictions:
        """The mean of the models' families."""
        return MeanPredictions([model.family for model in self.models], self.columns)

    @cached_property
    def global_state(self) -> MeanGlobalState:
        """The global states; `DamagedError` if the mean has more columns than the model that has them all."""
        # Proportions of so many columns are made before the models' proportions are read.
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


def width_of(model: ModelStates) -> int:
    """Return the number of columns of a model's topics."""
    none = model.rows(0).of_words(slice(0), complete=True)
    return int(model.family.probabilities(none, model.global_state)["word_topic"].shape[1])
