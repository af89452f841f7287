"""Labeled LDA by collapsed Gibbs sampling, beside a shard (Ramage, Hall, Nallapati and Manning 2009).

Each label is a topic; a document has those of its labels, or all where it has none.
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
