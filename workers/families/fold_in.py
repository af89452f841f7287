"""Fold in unseen documents under fixed topics, and score their held-out tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels import prediction

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Vector = npt.NDArray[np.float64]

FOLD_IN_SWEEPS = 100  # Most zeroth-order sweeps over a document; nearly all documents converge earlier

FOLD_IN_KERNELS = (prediction.fold_in, prediction.pair_probability)


def fold_in_counts(shard: Shard, word_probability: Vector, prior: Vector) -> npt.NDArray[np.float32]:
    """Return the expected counts of unseen documents, fitted by zeroth-order sweeps (CVB0)."""
    counts = np.zeros((shard.documents, prior.size))
    prediction.fold_in(document_pairs(shard), word_probability, prior, FOLD_IN_SWEEPS, counts)
    return counts.astype(np.float32)


def pair_probability(heldout: Shard, theta: Vector, phi: Vector, rest_word: float) -> Vector:
    """Return the predictive probability of each held-out pair: sum_k theta_dk phi_kw, plus that of new topics."""
    probability, rest = np.empty(heldout.pairs), np.maximum(1.0 - theta.sum(axis=1), 0.0)
    rest_words = np.full(len(phi), rest_word)
    prediction.pair_probability(heldout.offsets, heldout.position, theta, phi, rest, rest_words, probability)
    return probability
