"""Probability of a sample of the nested Chinese restaurant process, as a function of its hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.families.ncrp.gibbs_state import GibbsNcrpGlobalState, Histograms
from collapsium.workers.special_functions import gammaln

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SampleProbability:
    """Log probability of a sample of paths and levels, in parts that each depend on one hyperparameter."""

    words: int  # W
    tokens: list[Ints]  # n_i of the nodes of the level
    word_histogram: Ints  # Words and nodes of the level that have each count; int64 (levels, word counts)
    word_counts: Ints  # The counts; int64 (word counts,)
    # Documents that have each count of tokens at a level and, last, in all; int64 (level counts, levels + 1)
    level_histogram: Ints
    level_counts: Ints  # The counts; int64 (level counts,)
    # Documents that pass each, and its children; int64 (inner nodes,)
    passing: Ints
    children: Ints
    seats: Ints  # Documents that pass each; int64 (nodes but the root,)

    @classmethod
    def of(cls, global_state: GibbsNcrpGlobalState, histograms: Histograms) -> SampleProbability:
        """Return the probability of the sample of a round."""
        parent, depth = global_state.node_parent, global_state.alpha.size
        documents, tokens = (
            counts.astype(np.int64, copy=False) for counts in (global_state.node_documents, global_state.topic)
        )
        level, group = global_state.levels, histograms.group_ids
        group_level = np.where(group < depth, group, level[np.maximum(group - depth, 0)])
        word_histogram = np.zeros((depth, histograms.word_histogram.shape[1]), dtype=np.int64)
        np.add.at(word_histogram, group_level, histograms.word_histogram)
        inner = np.flatnonzero((level >= 0) & (level < depth - 1) & (documents > 0))
        below = np.flatnonzero(level > 0)
        return cls(
            global_state.words,
            [tokens[level == one] for one in range(depth)],
            word_histogram,
            histograms.word_count_ids,
            histograms.level_histogram,
            histograms.level_count_ids,
            documents[inner],
            np.bincount(parent[below], minlength=parent.size)[inner],
            documents[below],
        )

    def log_words(self, level: int, eta: float) -> float:
        """Return sum_i log G(W eta) / G(W eta + n_i) + sum_iw log G(eta + n_iw) / G(eta) over the nodes of a level."""
        total = self.words * eta
        log_rising = self.word_histogram[level] * (gammaln(eta + self.word_counts) - gammaln(eta))
        return float(log_rising.sum() + (gammaln(total) - gammaln(total + self.tokens[level])).sum())

    def log_level(self, level: int, alpha: float) -> float:
        """Return sum_d log G(alpha + n_dl) / G(alpha)."""
        rising = gammaln(alpha + self.level_counts) - gammaln(alpha)
        return float((self.level_histogram[:, level] * rising).sum())

    def log_documents(self, total: float) -> float:
        """Return sum_d log G(A) / G(A + n_d)."""
        return float((self.level_histogram[:, -1] * (gammaln(total) - gammaln(total + self.level_counts))).sum())

    def log_paths(self, gamma: float) -> float:
        """Return sum_i K_i log gamma + log G(gamma) / G(gamma + m_i) over the inner nodes."""
        falling = gammaln(gamma) - gammaln(gamma + self.passing)
        return float(self.children.sum() * special.log(gamma) + falling.sum())

    def log_seats(self) -> float:
        """Return sum_j log G(m_j) over all nodes but the root: the part of the paths that does not depend on gamma."""
        return float(gammaln(self.seats).sum())
