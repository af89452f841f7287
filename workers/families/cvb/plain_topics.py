"""The shard model that LDA and the HDP share: steps on minibatches, and edits of the topics of finished models."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.base import Editable, Stochastic
from collapsium.workers.families.cvb import stochastic
from collapsium.workers.families.cvb.global_state import CollapsedGlobalState, Vector
from collapsium.workers.families.cvb.options import CollapsedOptions
from collapsium.workers.families.cvb.shard_model import NO_ROWS, CollapsedShardModel, Local
from collapsium.workers.families.cvb.states import CollapsedDocuments, CollapsedRows
from collapsium.workers.families.document_entries import DocumentEntries
from collapsium.workers.families.plain_tokens import plain_sums, weighed_rows

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

OptionsT = TypeVar("OptionsT", bound=CollapsedOptions)
GlobalStateT = TypeVar("GlobalStateT", bound=CollapsedGlobalState)


class PlainTopicsShardModel(
    CollapsedShardModel[OptionsT, GlobalStateT],
    Stochastic[OptionsT, GlobalStateT, CollapsedRows, Local],
    Editable[OptionsT, GlobalStateT, CollapsedRows, Local],
):
    """Shard model of collapsed topics whose words have the same prior in all topics, but for seeds."""

    def first_rows(self, low: int, high: int, global_state: GlobalStateT) -> CollapsedRows:
        """Return the rows of the words `low` to `high` - 1 before the first document, with pseudo-counts of seeds."""
        rows = weighed_rows(self.initial_rows(high - low, global_state), low, high, global_state)
        return seeded_rows(rows, low, high, global_state)

    def step(self, shard: Shard, rows: CollapsedRows, global_state: GlobalStateT, stream: Stream) -> Delta:
        """Return the stochastic step of a shard."""
        parameters = self.update_parameters(rows, global_state)
        return stochastic.step(self.weighed(shard, rows), rows, global_state, stream, parameters)

    def blend(self, block: CollapsedRows, delta: Delta, global_state: GlobalStateT) -> tuple[CollapsedRows, Delta]:
        """Return a block after a minibatch's stochastic steps."""
        after, folded = stochastic.blend(block, delta)
        if after.word_mean is None:
            return after, folded
        return after, folded + Delta(plain_sums(after.dense_counts, after.word_mean))

    def rows_for_steps(self, rows: CollapsedRows, factor: float) -> CollapsedRows:
        """Return the rows of a model that was fitted in batches, scaled to the corpus of which minibatches come."""
        counts = (rows.dense_counts * factor).astype(np.float32)
        return CollapsedRows(word_topic=counts, word_weight=rows.word_weight, word_mean=rows.word_mean)

    def topic_prior(self, global_state: GlobalStateT) -> Vector:
        """Return a_k in prediction."""
        return self.predictive_parameters(NO_ROWS, global_state).topics

    def word_prior(self, rows: CollapsedRows, global_state: GlobalStateT) -> Vector:
        """Return b_w of the words of the rows in prediction."""
        return self.predictive_parameters(rows, global_state).words

    def row_counts(self, rows: CollapsedRows) -> npt.NDArray[np.floating]:
        """Return E[n_kw] of a finished model's rows."""
        return rows.dense_counts

    def with_row_counts(self, rows: CollapsedRows, counts: Vector) -> CollapsedRows:
        """Return a finished model's rows with other counts."""
        return replace(rows, word_topic=counts.astype(rows.dense_counts.dtype))

    def plain_tokens(self, rows: CollapsedRows, counts: Vector) -> Vector | None:
        """Return sum_w n_kw / m_w over the rows' words; None without weights of words."""
        return None if rows.word_mean is None else plain_sums(counts, rows.word_mean)["topic_plain"].values

    def entries(self, local: CollapsedDocuments) -> DocumentEntries:
        """Return E[n_dk] of the documents of a finished model."""
        return local.loaded().entries()

    def with_entries(self, local: CollapsedDocuments, entries: DocumentEntries, topics: int) -> Local:
        """Return the documents of a finished model with other counts, in the same form."""
        documents: Local = local.loaded().with_entries(entries, topics)
        return documents


def seeded_rows(rows: CollapsedRows, low: int, high: int, global_state: CollapsedGlobalState) -> CollapsedRows:
    """Return the rows of a block of the vocabulary before the first document, with pseudo-counts of seeds."""
    words, topics, counts = global_state.seed_words, global_state.seed_topics, global_state.seed_counts
    if words is None or topics is None or counts is None:
        return rows
    inside = (words >= low) & (words < high)
    place, values = (words[inside] - low, topics[inside]), counts[inside]
    changed: dict[str, Any] = {"word_pseudo": np.bincount(place[0], weights=values, minlength=high - low)}
    if global_state.seeds_apart:
        return replace(rows, word_number=np.arange(low, high), **changed)
    for name in ("word_topic", "word_active", "block_active"):
        before = getattr(rows, name)
        if before is not None:
            after = np.array(before)
            np.add.at(after, place, values.astype(after.dtype))
            changed[name] = after
    return replace(rows, **changed)
