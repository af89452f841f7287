"""Dirichlet parameters of collapsed families, and how their active responsibilities are kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsar.workers.delta import Arrays


@dataclass(frozen=True)
class Listing:
    """How active responsibilities are kept; see `collapsar.workers.listed`.

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
    variance : numpy.ndarray of float64, shape (topics,), or None
        V[n_k]; the second order needs it.
    """

    most: int
    every: int
    flatten: float
    momentum: float
    totals: npt.NDArray[np.float64]
    even: float
    weight: npt.NDArray[np.float64]
    following: npt.NDArray[np.float64]
    variance: npt.NDArray[np.float64] | None = None


def listing(globals: Arrays, topics: npt.NDArray[np.float64], total: float) -> Listing | None:
    """Take from the globals how responsibilities are kept; None where they are dense."""
    if not globals["active"]:
        return None
    counted, variance = globals["topic_moments"]
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
        variance=variance,
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
        0 or 2.
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
