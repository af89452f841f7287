"""Rows of words whose counts are partly background, while a shard is swept over active topics; see `listed`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapsar.workers import buffers
from collapsar.workers.delta import Arrays, Part, change
from collapsar.workers.kernels import background
from collapsar.workers.parameters import Listing, Parameters

Vector = npt.NDArray[np.float64]


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
        self.variance = rows["word_topic_variance"] if parameters.order == 2 else np.zeros((0, 0))
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
