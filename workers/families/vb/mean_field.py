"""The driver's half of mean-field topics, which their families share."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from collapsium.workers.families import description
from collapsium.workers.families.family import (
    COMPUTED_STARTS,
    FILE_START,
    Description,
    FamilyOptions,
    Footprint,
    Resumable,
    Summary,
)
from collapsium.workers.families.vb.states import FoldSums, MeanFieldGlobalState, MeanFieldRows
from collapsium.workers.special_functions import gammaln

OptionsT = TypeVar("OptionsT", bound=FamilyOptions)
GlobalStateT = TypeVar("GlobalStateT", bound=MeanFieldGlobalState)

MAX_SWEEPS = 10_000  # Passes over a document, at most


class MeanFieldFamily(Resumable[OptionsT, GlobalStateT, MeanFieldRows]):
    """A family of mean-field topics."""

    starts = (FILE_START, *COMPUTED_STARTS)

    def describe(self, block: MeanFieldRows, global_state: GlobalStateT, count: int) -> Description:
        """Describe the topics, the largest first."""
        priors, counts = global_state.priors, block.counts
        return description.describe(
            counts, np.full(len(counts), priors.word), priors.total, global_state.topic_total, count
        )


def topics_footprint(topics: int, summary: Summary) -> Footprint:
    """Return the memory of counts and weights of words in 8 bytes, and of counts of documents in 4."""
    return Footprint(
        rows=16.0 * topics,
        shown=8.0 * topics,
        # While rows are folded.
        swept=16.0 * topics,
        delta=8.0 * topics,
        pair=0.0,
        document=4.0 * topics,
        chunk=8.0 * topics * summary.documents,
    )


def per_word(footprint: Footprint, rows: float, swept: float, document: float) -> Footprint:
    """Return a footprint with more bytes for each word and document."""
    return replace(
        footprint,
        rows=footprint.rows + rows,
        swept=footprint.swept + swept,
        delta=footprint.delta + swept,
        document=footprint.document + document,
    )


def totals_bound(total: float, folded: FoldSums) -> float:
    """Return the totals' part of the bound, sum_k log G(B) / G(B + n_k)."""
    return -float((gammaln(total + folded.topic_total) - gammaln(total)).sum())
