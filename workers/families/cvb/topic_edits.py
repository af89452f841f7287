"""Hyperparameters of collapsed topics after topics were merged, deleted or split."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import numpy.typing as npt

from collapsium.workers.families.cvb.global_state import CollapsedGlobalState

Vector = npt.NDArray[np.float64]


class EditedCounts(TypedDict):
    """Fields of a global state that follow from counts after an edit."""

    topic_moments: Vector
    topic_plain: Vector | None
    topic_log_absent: Vector
    topic_ahead: Vector
    spread_weight: Vector
    corpus_tables: Vector | None


def uneditable(global_state: CollapsedGlobalState) -> str | None:
    """Return the reason for which the topics of a model cannot be edited; None if they can."""
    if global_state.seed_topics is not None:
        return "the word priors of seeded topics do not move with them"
    if global_state.moments:
        return "variances of counts, for `order` 2 or learned parameters of words, do not add up"
    if global_state.stochastic:
        return "models of the stochastic schedule are edited after a fit in batches that begins from them"
    return None


def edited_counts(
    global_state: CollapsedGlobalState, mixing: Vector, tokens: Vector, plain: Vector | None
) -> EditedCounts:
    """Return the fields of the global state that follow from the counts after an edit."""
    tables = global_state.corpus_tables
    return {
        "topic_moments": np.stack([tokens, np.zeros(tokens.size)]),
        "topic_plain": plain,
        "topic_log_absent": np.zeros(tokens.size),
        "topic_ahead": tokens,
        "spread_weight": mixed(mixing, global_state.spread_weight),
        "corpus_tables": None if tables is None else mixed(mixing, tables),
    }


def mixed(mixing: Vector, values: Vector) -> Vector:
    """Return the values of topics after an edit, shape (topics,), by the share of each topic before in each."""
    # Libraries of linear algebra add in an order that depends on the processor.
    sums: Vector = (mixing * values).sum(axis=1)
    return sums
