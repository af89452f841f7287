"""The models of an ensemble whose topics were matched, read as one: their mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.models.registry import load_family
from collapsium.storage.errors import DamagedError, MismatchError
from collapsium.workers.arrays.ranking import largest
from collapsium.workers.families.family import Description
from collapsium.workers.families.mean import ABSENT, MeanDocuments, MeanGlobalState, MeanPredictions, MeanRows

if TYPE_CHECKING:
    from collapsium.storage.io.folder import Folder
    from collapsium.storage.runs.model import ModelRecord
    from collapsium.workers.arrays.state import GlobalState, LocalState, Rows
    from collapsium.workers.families.base import AnyPredicts


class OpenModel(Protocol):
    """A model with its states, as `collapsium.pipeline.models.model.Model` is one."""

    record: ModelRecord

    @property
    def folder(self) -> Folder:
        """Folder of the model."""

    @property
    def shard_model(self) -> AnyPredicts:
        """The family's half for the shards."""

    @property
    def global_state(self) -> GlobalState:
        """The global state."""

    @property
    def fitted(self) -> bool:
        """True if the model has the training documents' proportions."""

    def rows(self, block: int) -> Rows:
        """Read the rows of one block of the vocabulary."""

    def documents(self, shard: int) -> LocalState:
        """Read the documents of one training shard."""


def width_of(model: OpenModel) -> int:
    """Return the number of columns of a model's topics."""
    none = model.rows(0).of_words(slice(0), complete=True)
    return int(model.shard_model.probabilities(none, model.global_state)["word_topic"].shape[1])


ModelT = TypeVar("ModelT", bound=OpenModel)


class AveragedModels(Generic[ModelT]):
    """Several models whose mean is taken."""

    def __init__(self, models: Sequence[ModelT], record: ModelRecord) -> None:
        self.models: tuple[ModelT, ...] = tuple(models)
        for model, member in zip(models, record.members, strict=True):
            if model.record.digest != member.digest:
                raise MismatchError(
                    f"{model.folder.url}: it was fitted further since the members were matched; `resume` the run above "
                    "it to match them again, or name one member"
                )
            same = (model.record.family, model.record.blocks, model.record.shards)
            if same != (record.family, record.blocks, record.shards) or model.record.members:
                raise DamagedError(model.folder.url, "expected a model of the family and the documents of the mean")
            if any(count > 1 for column, count in Counter(member.columns).items() if column != ABSENT):
                raise DamagedError(model.folder.url, "expected each column to match one topic of the mean at most")
        self._family = load_family(record.family)
        self.columns: npt.NDArray[np.int64] = np.array([member.columns for member in record.members], dtype=np.int64)
        # The mean has the columns of one of the models.
        each = np.arange(self.columns.shape[1])
        first = next((n for n, own in enumerate(self.columns) if np.array_equal(np.sort(own), each)), None)
        if first is None or not each.size:
            raise DamagedError(models[0].folder.url, "expected a model that has all columns of the mean")
        self._first = self.models[first]

    @cached_property
    def shard_model(self) -> MeanPredictions:
        """The shards' half of the mean."""
        return MeanPredictions([model.shard_model for model in self.models], self.columns)

    @cached_property
    def global_state(self) -> MeanGlobalState:
        """The global states; `DamagedError` if the mean has more columns than the model that has them all."""
        # Proportions of so many columns are made before those of the models are read.
        if (width := width_of(self._first)) < self.columns.shape[1]:
            raise DamagedError(
                self._first.folder.url, f"expected columns below {width} in the mean, found {self.columns.shape[1] - 1}"
            )
        return MeanGlobalState(tuple(model.global_state for model in self.models))

    def rows(self, block: int) -> MeanRows:
        """Read the rows of one block of the vocabulary of all models."""
        return MeanRows(tuple(model.rows(block) for model in self.models))

    def documents(self, shard: int) -> MeanDocuments:
        """Read the documents of one training shard, one model after another, and average them."""
        return self.shard_model.averaged((model.documents(shard) for model in self.models), self.global_state)

    def describe(self, rows: Rows, count: int) -> Description:
        """Describe the topics by the means of the models' shares and probabilities, the largest first."""
        own = cast("MeanRows", rows)
        shares = []
        for part, state in zip(own.models, self.global_state.models, strict=True):
            described = self._family.describe(part, state, 1)
            share = np.zeros(max(int(described.ids.max(initial=-1)), int(self.columns.max())) + 1)
            share[described.ids] = described.share
            shares.append(share)
        share = self.shard_model.by_topic(shares)
        phi = self.shard_model.probabilities(own, self.global_state)["word_topic"]
        order = np.argsort(-share, kind="stable")
        columns = np.ascontiguousarray(phi[:, order].T)
        top = largest(columns, count)
        return Description(order.astype(np.int64), share[order], top, np.take_along_axis(columns, top, axis=1))

    def figures(self) -> dict[str, float]:
        """Return the means of the models' hyperparameters."""
        each = [self._family.figures(model.global_state) for model in self.models]
        return {name: float(np.mean([figures[name] for figures in each if name in figures])) for name in each[0]}
