"""Whole counts in named arrays, for families whose states are named arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.delta import Arrays, Delta, Part, fresh
from collapsium.workers.families.cvb.parameters import Parameters
from collapsium.workers.families.dirichlet import DirichletPriors
from collapsium.workers.families.gibbs import token_counts
from collapsium.workers.families.gibbs.states import MAX_TOPICS as MOST
from collapsium.workers.families.gibbs.states import Counts, Vector
from collapsium.workers.families.gibbs.token_counts import delta_ids as ids_of
from collapsium.workers.families.gibbs.token_counts import draw_initial_topics as drawn
from collapsium.workers.families.gibbs.token_counts import padded, widened
from collapsium.workers.families.gibbs.token_sweep import Slots
from collapsium.workers.kernels.gibbs.topics import word_rising

__all__ = [
    "MOST",
    "Counts",
    "Priors",
    "Slots",
    "added",
    "advance",
    "blank",
    "changes",
    "drawn",
    "fold",
    "ids_of",
    "moments",
    "padded",
    "widened",
]


@dataclass(frozen=True)
class Priors(DirichletPriors):
    """Dirichlet parameters of a sampler."""

    def over(self, words: int) -> Parameters:
        """Return the same for a number of words, as predictions take it."""
        return Parameters(self.topics, self.concentration, np.full(words, self.word), self.total)


def blank(words: int, topics: int) -> Arrays:
    """Return the rows of words that have no token yet."""
    return {"word_topic": np.zeros((words, topics), dtype=np.int32)}


def changes(rows: Arrays, row: Counts) -> Part:
    """Return the change of rows, which may have more columns than before."""
    return token_counts.word_changes(rows["word_topic"], row)


def fold(block: Arrays, delta: Delta, priors: Priors) -> tuple[Arrays, Delta]:
    """Add the rows of a delta to a block of the vocabulary; see `GibbsShardModel.fold`."""
    if "word_topic" not in delta:
        return block, Delta()
    after, parts = added(block, delta)
    sums = np.zeros(2)
    word_rising(after, priors.word, sums)
    parts.update(word_rising=fresh(sums[0]), tables_of_words=fresh(sums[1]))
    return {"word_topic": after}, Delta(parts, {"topic": np.arange(parts["topic"].values.size)})


def added(block: Arrays, delta: Delta) -> tuple[Counts, dict[str, Part]]:
    """Return the counts of a block after a delta, and by how much n_k changes (``topic``) and n_kw (``moved``)."""
    return token_counts.add_word_changes(block["word_topic"], delta["word_topic"], delta.ids["word"])


def advance(rows: Arrays, delta: Delta) -> tuple[Arrays, npt.NDArray[np.int64]]:
    """Return a shard's rows after its own changes, and by how much these move n_k."""
    moved = delta["word_topic"]
    return {"word_topic": widened(rows["word_topic"], moved.shape[1]) + moved}, moved.sum(axis=0, dtype=np.int64)


def moments(globals: Arrays) -> Vector:
    """Return n_k as predictions take E[n_k], shape (1, topics)."""
    return np.asarray(globals["topic"], dtype=np.float64)[np.newaxis]
