"""Dirichlet parameters of collapsed families, and how their active responsibilities are kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Arrays, Part, change
from collapsium.workers.kernels.cvb import background

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
    """

    def __init__(self, rows: Arrays, parameters: Parameters) -> None:
        listing = listing_of(parameters)
        shape = rows["word_active"].shape
        self.active, self.totals = rows["word_active"], listing.totals + parameters.total
        self.even, self.weight, self.running = listing.even, listing.weight, self.totals.copy()
        self.topic, self.change = buffers.empty(shape, np.float32), buffers.zeros(shape, np.float32)
        self.background, self.spreading = (np.empty(shape[0], dtype=np.float32) for _ in range(2))
        self.rest_change = np.zeros(shape[0])
        self.ratio = parameters.topics / self.totals
        given = self.active, rows["word_rest"], self.even, parameters.words, self.weight, self.ratio
        background.spread(*given, self.topic, self.background, self.spreading)

    def changes(self) -> dict[str, Part]:
        """Return how far the rows have moved."""
        return {"word_active": change(self.change, "word", "topic"), "word_rest": change(self.rest_change, "word")}


def expected(rows: Arrays, weight: Vector, even: float) -> npt.NDArray[np.float32]:
    """Return E[n_kw] of rows whose background is spread over the topics, shape (words at hand, topics)."""
    active = counted(rows)
    row_topic, unused = buffers.empty(active.shape, np.float32), [np.empty(len(active), dtype=np.float32) for _ in "ab"]
    given = active, rows["word_rest"], even, np.zeros(len(active)), weight, np.zeros(active.shape[1])
    background.spread(*given, row_topic, *unused)
    return row_topic
