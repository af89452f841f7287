"""Partially labeled LDA by collapsed Gibbs sampling, beside a shard (Ramage, Manning and Dumais 2011).

Each label has some topics of its own, and so has a background that all documents share.
"""

from __future__ import annotations

from collapsium.workers.families.gibbs.label_arrays import LABEL_TOPICS_ARRAYS
from collapsium.workers.families.gibbs.labelled import (
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

ARRAYS = LABEL_TOPICS_ARRAYS
LABELLED = True

__all__ = [
    "ARRAYS",
    "LABELLED",
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
