"""Match the topics of several fits, and measure how stable each topic is over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from collapsium.pipeline.families.model import Model
from collapsium.pipeline.families.topic_matching import IDENTITY, matched, occupied


class Stability(NamedTuple):
    """Stability of a topic over other fits."""

    value: float  # One minus the mean Hellinger distance to its matches, in [0, 1]
    support: int  # Number of the fits whose match is the same topic, at most `IdentityRule.max_distance` away


def stability(reference: Model, others: Sequence[Model]) -> dict[int, Stability]:
    """Return the stability of a model's topics over other fits to the same vocabulary.

    Topics are matched one to one, with the smallest sum of Hellinger distances between their word probabilities. A
    topic's stability is one minus the mean distance to its matches; without a match the distance is 1. Topics without
    tokens are left out.
    """
    ids = occupied(reference)
    if not others or not ids.size:
        return {}
    distance, support = np.zeros(ids.size), np.zeros(ids.size, dtype=np.int64)
    for other in others:
        nearest = np.ones(ids.size)
        for topic, _, apart in matched(reference, other):
            nearest[np.searchsorted(ids, topic)] = apart
        distance += nearest
        support += nearest <= IDENTITY.max_distance
    values = (1.0 - distance / len(others)).tolist()
    return {topic: Stability(*one) for topic, *one in zip(ids.tolist(), values, support.tolist(), strict=True)}
