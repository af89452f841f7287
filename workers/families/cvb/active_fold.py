"""Rows of the vocabulary where responsibilities are active: make them, and add to them what sweeps have changed.

Beside a document's list, `collapsium.workers.families.cvb.active` keeps background tokens; a row has those of its word.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Arrays, Delta, Part, fresh
from collapsium.workers.families.cvb.parameters import Parameters, counted, listing_of
from collapsium.workers.kernels.cvb import background
from collapsium.workers.kernels.cvb.records import SpreadRows


def blank(count: int, topics: int, moments: bool, momentum: bool) -> Arrays:
    """Make the rows of words that have no token yet."""
    names = ("word_active", "block_active") if momentum else ("word_active",)
    rows: dict[str, npt.NDArray[Any]] = {name: np.zeros((count, topics), dtype=np.float32) for name in names}
    rows["word_rest"] = np.zeros(count)
    if moments:
        rows.update({name: np.zeros((count, topics)) for name in ("word_topic_variance", "word_topic_log_absent")})
        rows["word_tables"] = np.zeros(count)
    return rows


def fold(block: Arrays, delta: Delta, parameters: Parameters) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Part]]:
    """Add the rows of a delta to a block of the vocabulary.

    Parameters
    ----------
    block, delta, parameters
        As for `collapsed.fold`.

    Returns
    -------
    block : dict of str to numpy.ndarray
        The new rows.
    parts : dict of str to Part
        Fresh ``topic_total`` (E[n_k]), ``topic_ahead`` (the same of the rows that run ahead) and ``moved``.
    """
    listing = listing_of(parameters)
    ids = delta.ids.get("word", np.zeros(0, dtype=np.int64))
    after = dict(block)
    for name, part in delta.parts.items():
        if name != "word_active":
            after[name] = np.array(block[name])
            after[name][ids] += part.values
    before = counted(block)
    place = np.full(len(before), -1, dtype=np.int64)
    place[ids] = np.arange(ids.size)
    changed = delta["word_active"] if "word_active" in delta else np.zeros((0, before.shape[1]), dtype=np.float32)
    new, ahead = buffers.empty(before.shape, np.float32), np.zeros((0, before.shape[1]), dtype=np.float32)
    if "block_active" in block:
        ahead = buffers.empty(before.shape, np.float32)
    totals = np.zeros((2, before.shape[1]))
    rows, moved = SpreadRows(before, after["word_rest"], listing.even, listing.following), np.zeros(1)
    background.fold_rows(rows, background.RowDelta(changed, place), listing.momentum, new, ahead, totals, moved)
    after.update({"block_active": new, "word_active": ahead} if ahead.size else {"word_active": new})
    parts = {"topic_total": fresh(totals[0], "topic"), "moved": fresh(moved[0])}
    return after, {**parts, "topic_ahead": fresh(totals[1] if ahead.size else totals[0], "topic")}
