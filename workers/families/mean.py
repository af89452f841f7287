"""The mean of several models whose topics were matched.

Proportions and topics are averaged over the models, and so are predictive probabilities, as in (17) of Teh, Kurihara
and Welling (2007).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from collapsium.storage.errors import DamagedError
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import Array, Arrays, GlobalState, LocalState, Rows, State
from collapsium.workers.families.description import largest
from collapsium.workers.families.family import AnyPredicts, AnyShard, Description, Predicts
from collapsium.workers.kernels.jit import AnyKernel

Floats = npt.NDArray[np.float64]
ABSENT = -1  # Column of a topic that a model has no match for


@dataclass(frozen=True)
class Members(State):
    """States of several models, whose arrays are named by number and name."""

    models: tuple[Any, ...]

    def to_arrays(self) -> dict[str, Array]:
        """Return the arrays of all models."""
        parts = enumerate(state.to_arrays() for state in self.models)
        return {f"{number}/{name}": array for number, arrays in parts for name, array in arrays.items()}


@dataclass(frozen=True)
class MeanGlobalState(Members, GlobalState):
    """The global states of the models."""

    models: tuple[GlobalState, ...]


@dataclass(frozen=True)
class MeanRows(Members, Rows):
    """The models' rows of the same words."""

    models: tuple[Rows, ...]

    def of_words(self, index: slice | npt.NDArray[np.integer], *, complete: bool) -> Self:
        """Return the models' rows of some words."""
        return type(self)(tuple(rows.of_words(index, complete=complete) for rows in self.models))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the models' rows of consecutive runs of words."""
        return cls(
            tuple(type(models[0]).joined(models) for models in zip(*(part.models for part in parts), strict=True))
        )

    def counted(self) -> Self:
        """Return the rows that score held-out tokens."""
        return type(self)(tuple(rows.counted() for rows in self.models))

    @property
    def mean_weights(self) -> Array | None:
        """Mean weight of each word's tokens, which all members share."""
        return self.models[0].mean_weights


@dataclass(frozen=True)
class MeanLocalState(Members, LocalState):
    """The models' local states of the same documents."""

    models: tuple[LocalState, ...]


@dataclass(frozen=True)
class MeanDocuments(LocalState):
    """The mean proportions of training documents, shape (documents, topics), and their expected tokens."""

    document_topic: Floats
    tokens: Floats


class MeanPredictions(Predicts[MeanGlobalState, MeanRows, MeanLocalState]):
    """The mean of finished models."""

    global_state_type, rows_type = MeanGlobalState, MeanRows
    local_type, documents_type = MeanLocalState, MeanDocuments

    def __init__(self, models: Sequence[AnyPredicts], columns: npt.NDArray[np.int64]) -> None:
        self.models, self.columns = tuple(models), columns

    def design(self, global_state: MeanGlobalState) -> npt.NDArray[np.uint8] | None:
        """Return the packed design of the first model, which all share."""
        return self.models[0].design(global_state.models[0])

    def design_coefficients(self, global_state: MeanGlobalState) -> Floats | None:
        """Return the mean coefficients, over the models whose match for the topic has tokens."""
        parts = zip(self.models, global_state.models, strict=True)
        coefficients = [model.design_coefficients(state) for model, state in parts]
        known = [array for array in coefficients if array is not None]
        if len(known) < len(self.models):
            return None
        total, matches = self._matched(known, self._with_tokens(global_state))
        return total / np.maximum(matches, 1.0)

    def fold_in_kernels(self, global_state: MeanGlobalState) -> list[AnyKernel]:
        """Return the kernels that fold documents into any of the models."""
        by_model = [model.fold_in_kernels(state) for model, state in zip(self.models, global_state.models, strict=True)]
        return [kernel for kernels in by_model for kernel in kernels]

    def blank_rows(self, low: int, high: int, global_state: MeanGlobalState) -> MeanRows:
        """Return the models' rows of words that were added to the vocabulary later."""
        parts = zip(self.models, global_state.models, strict=True)
        return MeanRows(tuple(model.blank_rows(low, high, state) for model, state in parts))

    def fold_in(self, shard: AnyShard, rows: MeanRows, global_state: MeanGlobalState, stream: Stream) -> MeanLocalState:
        """Fold documents into every model, each with the random numbers that it would have alone."""
        parts = zip(self.models, rows.models, global_state.models, strict=True)
        return MeanLocalState(
            tuple(model.fold_in(shard, member_rows, state, stream) for model, member_rows, state in parts)
        )

    def averaged(self, documents: Iterable[LocalState], global_state: MeanGlobalState) -> MeanDocuments:
        """Return the means of finished models' training documents, which are read one model after another."""
        tokens: list[Floats] = []

        def shares() -> Iterator[Floats]:
            for model, local, state in zip(self.models, documents, global_state.models, strict=True):
                tokens.append(model.document_lengths(local))
                yield model.infer(local, state)["document_topic"]

        total, _ = self._matched(shares())
        return MeanDocuments(total / len(self.models), tokens[0])

    def infer(self, local: MeanLocalState | MeanDocuments, global_state: MeanGlobalState) -> Arrays:
        """Return the mean proportions; a topic that a model has no match for counts as 0 there."""
        if isinstance(local, MeanLocalState):
            local = self.averaged(local.models, global_state)
        return {"document_topic": local.document_topic}

    def probabilities(self, rows: MeanRows, global_state: MeanGlobalState) -> Arrays:
        """Return the mean probabilities of words, over the models whose match for the topic has tokens."""
        parts = zip(self.models, rows.models, global_state.models, strict=True)
        topics = (model.probabilities(member_rows, state)["word_topic"] for model, member_rows, state in parts)
        total, matches = self._matched(topics, self._with_tokens(global_state))
        return {"word_topic": total / np.maximum(matches, 1.0)}

    def predict(
        self, heldout: AnyShard, local: MeanLocalState, rows: MeanRows, global_state: MeanGlobalState
    ) -> Arrays:
        """Return the mean of the models' predictive probabilities."""
        parts = zip(self.models, local.models, rows.models, global_state.models, strict=True)
        total = np.zeros(heldout.pairs)
        for model, documents, block, state in parts:
            total += model.predict(heldout, documents, block, state)["probability"]
        return {"probability": total / len(self.models)}

    def document_lengths(self, local: MeanLocalState | MeanDocuments) -> Floats:
        """Return the expected tokens of each document, which are the same in all models."""
        if isinstance(local, MeanDocuments):
            return local.tokens
        lengths: Floats = self.models[0].document_lengths(local.models[0])
        return lengths

    def describe(self, block: MeanRows, global_state: MeanGlobalState, count: int) -> Description:
        """Describe the topics by the means of the models' shares and probabilities, the largest first."""
        total, _ = self._matched(self._shares(global_state))
        mean: Floats = total[0] / len(self.models)
        phi = self.probabilities(block, global_state)["word_topic"]
        order = np.argsort(-mean, kind="stable")
        columns = np.ascontiguousarray(phi[:, order].T)
        top = largest(columns, count)
        return Description(order.astype(np.int64), mean[order], top, np.take_along_axis(columns, top, axis=1))

    def metrics(self, global_state: MeanGlobalState) -> dict[str, float]:
        """Return the means of the models' hyperparameters."""
        by_model = [model.metrics(state) for model, state in zip(self.models, global_state.models, strict=True)]
        return {
            name: float(np.mean([metrics[name] for metrics in by_model if name in metrics])) for name in by_model[0]
        }

    def word_concentration(self, global_state: MeanGlobalState) -> float | None:
        """Return B of the first model, whose family and options all models share."""
        return self.models[0].word_concentration(global_state.models[0])

    def _shares(self, global_state: MeanGlobalState) -> list[Floats]:
        """Return the shares of the tokens of each model's topics, shape (1, topics)."""
        shares = []
        for model, state in zip(self.models, global_state.models, strict=True):
            described = model.describe(model.blank_rows(0, 0, state), state, 1)
            share = np.zeros(max(int(described.ids.max(initial=-1)), int(self.columns.max())) + 1)
            share[described.ids] = described.share
            shares.append(share[np.newaxis])
        return shares

    def _with_tokens(self, global_state: MeanGlobalState) -> npt.NDArray[np.bool_]:
        """Return which models have tokens in their match for each topic, shape (models, topics).

        Empty topics, whose words follow the prior, are matched so that proportions add up to one. Where no model has
        tokens, all models count.
        """
        matches = [share[0, columns] for share, columns in zip(self._shares(global_state), self.columns, strict=True)]
        some = (np.stack(matches) > 0.0) & (self.columns != ABSENT)
        return np.asarray(some | ~some.any(axis=0))

    def _matched(
        self, values: Iterable[npt.NDArray[np.floating[Any]]], counted: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Floats, Floats]:
        """Return the sums of the models' values in the columns of the mean, and how many models have each column.

        Only models that are `counted` for a column are added. Values are added model by model, so that only one model's
        values are in memory at a time.
        """
        total, matches = np.zeros((0, 0)), np.zeros(self.columns.shape[1])
        for number, member_values in enumerate(values):
            known = self.columns[number] != ABSENT
            places = np.flatnonzero(known if counted is None else known & counted[number])
            if self.columns[number].max(initial=ABSENT) >= member_values.shape[1]:
                raise DamagedError(
                    f"member {number}",
                    f"expected columns below {member_values.shape[1]}, found {self.columns[number].max()}",
                )
            if not number:
                total = np.zeros((len(member_values), self.columns.shape[1]))
            total[:, places] += np.asarray(member_values, dtype=np.float64)[:, self.columns[number, places]]
            matches[places] += 1.0
        return total, matches
