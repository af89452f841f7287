"""Match the topics of several fits, and measure how stable each topic is over them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.topic_matching import matched, occupied


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
