"""The segmented topic model by collapsed Gibbs sampling, beside a shard (Du, Buntine and Jin 2010).

mu_d ~ Dir(alpha) of a document, nu_dj ~ PDP(a, b, mu_d) of each of its segments.
"""

from __future__ import annotations

from collapsium.workers.families.networks.arrays import NETWORK_ARRAYS
from collapsium.workers.families.networks.family import (
    advance,
    blank,
    finish,
    fold,
    infer,
    kernels,
    lengths,
    predict,
    probabilities,
    settle,
    start,
    sweep,
    take,
)

ARRAYS = NETWORK_ARRAYS
SEGMENTED = True

__all__ = [
    "ARRAYS",
    "SEGMENTED",
    "advance",
    "blank",
    "finish",
    "fold",
    "infer",
    "kernels",
    "lengths",
    "predict",
    "probabilities",
    "settle",
    "start",
    "sweep",
    "take",
]
