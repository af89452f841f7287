"""Match the topics of several fits, and measure how stable each topic is over them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.registry import load_family
from collapsium.workers.arrays.state import Rows

Floats = npt.NDArray[np.float64]
MIN_EXPECTED_TOKENS = 0.5
"""Expected count below which a topic counts as empty."""


def stability(reference: Model, others: Sequence[Model]) -> dict[int, float]:
    """Return the stability of a model's topics over other fits to the same vocabulary.

    Topics are matched one to one, with the smallest sum of Hellinger distances between their word probabilities. A
    topic's stability is one minus the mean distance to its matches; without a match the distance is 1. Topics without
    tokens are left out.

    Parameters
    ----------
    reference : Model
        The model.
    others : sequence of Model
        The other fits.

    Returns
    -------
    dict of int to float
        Stability in [0, 1] by the topic's id; empty where there are no others.
    """
    ids = occupied(reference)
    if not others or not ids.size:
        return {}
    distance = np.zeros(ids.size)
    for other in others:
        nearest = np.ones(ids.size)
        for topic, _, apart in matched(reference, other):
            nearest[np.searchsorted(ids, topic)] = apart
        distance += nearest
    return dict(zip(ids.tolist(), (1.0 - distance / len(others)).tolist(), strict=True))


def matched(reference: Model, other: Model) -> list[tuple[int, int, float]]:
    """Match the topics of two models one to one, with the smallest sum of distances.

    Parameters
    ----------
    reference, other : Model
        Two models of the same vocabulary.

    Returns
    -------
    list of (int, int, float)
        Ids of a topic of each model, and the Hellinger distance of their word probabilities. Topics without tokens or
        without a match are left out.
    """
    from scipy.optimize import linear_sum_assignment

    ids, theirs = occupied(reference), occupied(other)
    apart = distances(reference, other)[np.ix_(ids, theirs)]
    rows, columns = linear_sum_assignment(apart)
    return list(zip(ids[rows].tolist(), theirs[columns].tolist(), apart[rows, columns].tolist(), strict=True))


def occupied(model: Model) -> npt.NDArray[np.int64]:
    """Return the ids of the topics that have tokens, ascending."""
    described = load_family(model.record.family).describe(_first_row(model), model.global_state, 1)
    tokens = described.share * float(model.vocabulary.tokens.sum())
    return np.sort(described.ids[tokens >= MIN_EXPECTED_TOKENS])


def _first_row(model: Model) -> Rows:
    return model.rows(0).of_words(slice(1), complete=True)


def distances(one: Model, other: Model) -> Floats:
    """Return the Hellinger distances of two models' topics, sqrt(1 - sum_w sqrt(phi_kw phi_lw)).

    Parameters
    ----------
    one, other : Model
        Two models of the same vocabulary.

    Returns
    -------
    numpy.ndarray of float64, shape (topics of one, topics of the other)
        In [0, 1].
    """
    overlap: Floats | None = None
    words = one.record.blocks[-1]
    cuts = sorted({*one.record.blocks, *other.record.blocks} - {words})
    for low, high in zip(cuts, [*cuts[1:], words], strict=True):
        parts = [np.sqrt(_probability(model, low, high)) for model in (one, other)]
        here = parts[0].T @ parts[1]
        overlap = here if overlap is None else overlap + here
    if overlap is None:
        raise ValueError("a model has at least one block")
    result: Floats = np.sqrt(np.clip(1.0 - overlap, 0.0, 1.0))
    return result


def _probability(model: Model, low: int, high: int) -> Floats:
    """Return the probabilities of the words `low` to `high` - 1 of one block, shape (words, topics)."""
    number = next(block for block, (first, last) in enumerate(model.blocks) if first <= low < last)
    first = model.blocks[number][0]
    rows = model.rows(number).of_words(slice(low - first, high - first), complete=True)
    phi = model.shard_model.probabilities(rows, model.global_state)["word_topic"]
    return np.maximum(np.asarray(phi, dtype=np.float64), 0.0)
