"""A network of Dirichlet or Pitman-Yor vectors that a user draws, beside a shard (Buntine, Du and Nurmi 2010)."""

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
LABELLED = True
SEGMENTED = True

__all__ = [
    "ARRAYS",
    "LABELLED",
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
