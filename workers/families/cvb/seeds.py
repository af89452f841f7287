"""Pseudo-counts of seeded topics in the rows of words: Dirichlet parameters b_w + s_kw by topic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from collapsium.workers.families.cvb.global_state import CollapsedGlobalState
from collapsium.workers.families.cvb.states import CollapsedRows


def seeded_rows(rows: CollapsedRows, low: int, high: int, global_state: CollapsedGlobalState) -> CollapsedRows:
    """Return the rows of a block of the vocabulary before the first document, with pseudo-counts of seeds.

    Parameters
    ----------
    rows : CollapsedRows
        The rows without seeds.
    low, high : int
        First and last-plus-one word of the block.
    global_state : CollapsedGlobalState
        The global state, which has the seeds.

    Returns
    -------
    CollapsedRows
        Rows whose counts include s_kw; without seeds, `rows`.
    """
    words, topics, counts = global_state.seed_words, global_state.seed_topics, global_state.seed_counts
    if words is None or topics is None or counts is None:
        return rows
    inside = (words >= low) & (words < high)
    place, values = (words[inside] - low, topics[inside]), counts[inside]
    changed: dict[str, Any] = {"word_pseudo": np.bincount(place[0], weights=values, minlength=high - low)}
    for name in ("word_topic", "word_active", "block_active"):
        before = getattr(rows, name)
        if before is not None:
            after = np.array(before)
            np.add.at(after, place, values.astype(after.dtype))
            changed[name] = after
    return replace(rows, **changed)
