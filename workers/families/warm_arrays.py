"""Arrays from which a shard's first local state is made: those of another run, or of a start."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.state import Arrays

FloatT = TypeVar("FloatT", np.float32, np.float64)


def proportions_and_topics(
    warm: Arrays, words: int, dtype: type[FloatT]
) -> tuple[npt.NDArray[FloatT], npt.NDArray[FloatT]]:
    """Return the proportions of a shard's documents, and the probabilities of its words, from which a fit begins."""
    theta = np.ascontiguousarray(warm["document_topic"], dtype=dtype)
    if "word_topic" not in warm:
        return theta, np.ones((words, theta.shape[1]), dtype=dtype)
    return theta, np.ascontiguousarray(warm["word_topic"], dtype=dtype)
