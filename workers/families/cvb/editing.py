"""Counts of finished models of collapsed topics as edits of topics read and replace them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.workers.families.base import Editable
from collapsium.workers.families.cvb.global_state import CollapsedGlobalState, Vector
from collapsium.workers.families.cvb.parameters import CollapsedOptions
from collapsium.workers.families.cvb.shard_model import NO_ROWS, CollapsedShardModel, Local
from collapsium.workers.families.cvb.states import CollapsedDocuments, CollapsedRows
from collapsium.workers.families.document_entries import DocumentEntries

OptionsT = TypeVar("OptionsT", bound=CollapsedOptions)
GlobalStateT = TypeVar("GlobalStateT", bound=CollapsedGlobalState)


class EditableShardModel(
    CollapsedShardModel[OptionsT, GlobalStateT], Editable[OptionsT, GlobalStateT, CollapsedRows, Local]
):
    """Shard model of collapsed topics that can be merged, deleted and split."""

    def topic_prior(self, global_state: GlobalStateT) -> Vector:
        """Return a_k in prediction."""
        return self.predictive_parameters(NO_ROWS, global_state).topics

    def word_prior(self, rows: CollapsedRows, global_state: GlobalStateT) -> Vector:
        """Return b_w of the words of the rows in prediction."""
        return self.predictive_parameters(rows, global_state).words

    def row_counts(self, rows: CollapsedRows) -> npt.NDArray[np.floating[Any]]:
        """Return E[n_kw] of a finished model's rows."""
        return rows.dense_counts

    def with_row_counts(self, rows: CollapsedRows, counts: Vector) -> CollapsedRows:
        """Return a finished model's rows with other counts."""
        return replace(rows, word_topic=counts.astype(rows.dense_counts.dtype))

    def entries(self, local: CollapsedDocuments) -> DocumentEntries:
        """Return E[n_dk] of the documents of a finished model."""
        return local.loaded().entries()

    def with_entries(self, local: CollapsedDocuments, entries: DocumentEntries, topics: int) -> Local:
        """Return the documents of a finished model with other counts, in the same form."""
        documents: Local = local.loaded().with_entries(entries, topics)
        return documents
