"""Named tuples of arrays that kernels of several families take, and constants of their vectors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.argument_types import Array, Float32Vector, Int32Vector, Int64Vector, Number
from collapsium.workers.kernels.jit import helper

UNWEIGHTED = np.zeros(0, dtype=np.float32)  # Weights of pairs whose tokens all weigh one

LANES = 8  # Numbers of a vector: a register of AVX2
ONE_BITS = 0x3F800000  # The bits of 1.0 in float32, read as an integer


class DocumentPairs(NamedTuple):
    """Documents as pairs of a word and its count."""

    offsets: Int64Vector  # Index of each document's first pair; the last is the number of pairs; (documents + 1,)
    position: Int32Vector  # Row of each pair's word, in arrays with one row per word; (pairs,)
    counts: Int32Vector  # Tokens of each pair; (pairs,)
    # Weight of each token of a pair; empty where all weigh one. Expected counts are sums of weights.; (pairs,)
    weights: Float32Vector = UNWEIGHTED


@helper
def token_weight(weights: Array, pair: int) -> Number:
    """Return the weight of each token of a pair."""
    return float(weights[pair]) if weights.size else 1.0
