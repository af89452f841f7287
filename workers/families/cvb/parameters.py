"""Dirichlet parameters of collapsed families, and how their active responsibilities are kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Arrays, Part, change
from collapsium.workers.kernels.cvb import background
from collapsium.workers.kernels.cvb.active_selection import SelectionRows
from collapsium.workers.kernels.cvb.records import (
    Priors,
    RowChanges,
    RunningCounts,
    SpreadRows,
    SweepRows,
    TopicCounts,
)

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Listing:
    """How active responsibilities are kept; see `collapsium.workers.families.cvb.active`.

    Attributes
    ----------
    most, every : int
        As for `listed.start`.
    flatten : float
        Power of the weights once topics have parted: 1 for the plain update.
    momentum : float
        Share of their last change by which rows run ahead.
    totals : numpy.ndarray of float64, shape (topics,)
        E[n_k] of the rows as sweeps see them.
    even : float
        What keeps a word's background even over the topics while it has no tokens.
    weight, following : numpy.ndarray of float64, shape (topics,)
        a_k / (B + E[n_k]) by which background is spread: since E[n_k] was last summed, and from the next fold on.
    """

    most: int
    every: int
    flatten: float
    momentum: float
    totals: npt.NDArray[np.float64]
    even: float
    weight: npt.NDArray[np.float64]
    following: npt.NDArray[np.float64]


def listing(globals: Arrays, topics: npt.NDArray[np.float64], total: float) -> Listing | None:
    """Take from the globals how responsibilities are kept; None where they are dense."""
    if not globals["active"]:
        return None
    counted = globals["topic_moments"][0]
    return Listing(
        most=int(globals["most_active"]),
        every=int(globals["start_every"]),
        flatten=float(globals["flatten"]),
        # The start is no movement, and what topics hand over when they merge would go on and on.
        momentum=float(globals["momentum"]) if counted.any() and not globals.get("moving", False) else 0.0,
        totals=globals["topic_ahead"],
        even=float(globals["spread_even"]),
        weight=globals["spread_weight"],
        following=topics / (total + counted),
    )


@dataclass(frozen=True)
class Parameters:
    """Dirichlet parameters, as the updates use them or as prediction does.

    Attributes
    ----------
    topics : numpy.ndarray of float64, shape (topics,)
        a_k.
    concentration : float
        A, the sum of a_k over all topics there could be.
    words : numpy.ndarray of float64, shape (words at hand,)
        b_w.
    total : float
        B, the sum of b_w over the vocabulary.
    order : int
        0, or 2 with dense responsibilities.
    tables : bool
        Whether E[s_k] is asked for.
    moments : bool
        Whether the rows carry V[n_kw] and Z[n_kw].
    listing : Listing or None
        How active responsibilities are kept; None where they are dense.
    """

    topics: npt.NDArray[np.float64]
    concentration: float
    words: npt.NDArray[np.float64]
    total: float
    order: int = 0
    tables: bool = False
    moments: bool = False
    listing: Listing | None = None

    @property
    def priors(self) -> Priors:
        """The same as kernels take them."""
        return Priors(self.topics, self.words, self.total)


def counted(rows: Arrays) -> npt.NDArray[np.float32]:
    """Return the counts by listed topics of a block's rows, which may run ahead of them for the sweeps."""
    return rows["block_active" if "block_active" in rows else "word_active"]


def listing_of(parameters: Parameters) -> Listing:
    """Return how responsibilities are kept, which are known to be active."""
    if parameters.listing is None:
        raise ValueError("active responsibilities need a listing")
    return parameters.listing


class Rows:
    """A shard's rows while it is swept.

    Parameters
    ----------
    rows : Arrays
        As they were gathered.
    parameters : Parameters
        For the updates.

    Attributes
    ----------
    sweep, topics, selection : SweepRows, TopicCounts, SelectionRows
        The rows as kernels take them.
    row_changes, running : RowChanges, RunningCounts
        Changes of the rows by the sweep, and totals that move with it.
    """

    def __init__(self, rows: Arrays, parameters: Parameters) -> None:
        listing = listing_of(parameters)
        active, shape = rows["word_active"], rows["word_active"].shape
        totals = listing.totals + parameters.total
        ratio = parameters.topics / totals
        expected = buffers.empty(shape, np.float32)
        background_weight, spreading = (np.empty(shape[0], dtype=np.float32) for _ in range(2))
        spread_rows = SpreadRows(active, rows["word_rest"], listing.even, listing.weight)
        background.spread(spread_rows, parameters.words, ratio, expected, background_weight, spreading)
        self.sweep = SweepRows(expected, background_weight, ratio)
        self.topics = TopicCounts(expected, totals)
        self.selection = SelectionRows(active, spreading, listing.even, listing.weight, background_weight, totals)
        self.row_changes = RowChanges(buffers.zeros(shape, np.float32), np.zeros(shape[0]))
        self.running = RunningCounts(totals.copy(), self.row_changes)

    def changes(self) -> dict[str, Part]:
        """Return how far the rows have moved."""
        active, rest = self.row_changes
        return {"word_active": change(active, "word", "topic"), "word_rest": change(rest, "word")}


def expected(rows: Arrays, weight: Vector, even: float) -> npt.NDArray[np.float32]:
    """Return E[n_kw] of rows whose background is spread over the topics, shape (words at hand, topics)."""
    active = counted(rows)
    row_topic, unused = buffers.empty(active.shape, np.float32), [np.empty(len(active), dtype=np.float32) for _ in "ab"]
    spread_rows = SpreadRows(active, rows["word_rest"], even, weight)
    background.spread(spread_rows, np.zeros(len(active)), np.zeros(active.shape[1]), row_topic, *unused)
    return row_topic
