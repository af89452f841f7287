"""Rank the topics of a label by lift: how much more of a topic the label's documents have than all documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SMOOTHING = 0.01
"""Added to both shares before they are compared, so that rare topics do not head a ranking by a few tokens."""
LEAST_OVERALL = 1e-9


@dataclass(frozen=True)
class Lifted:
    """A topic given a label.

    Attributes
    ----------
    topic : int
        Its id.
    share : float
        Its share given the label.
    lift : float
        That over its share in the corpus.
    """

    topic: int
    share: float
    lift: float


def smoothed_lift(share: float, overall: float) -> float:
    """Return the lift by which topics are ranked: both shares plus one percent."""
    return (share + SMOOTHING) / (overall + SMOOTHING)


def by_lift(shares: Iterable[tuple[int, float]], overall: Mapping[int, float], count: int) -> list[Lifted]:
    """Return the topics that a label raises most.

    Parameters
    ----------
    shares : iterable of (int, float)
        Topics' ids and shares given the label.
    overall : mapping of int to float
        Their shares in the corpus.
    count : int
        Topics at most.

    Returns
    -------
    list of Lifted
        By falling smoothed lift; behind the first only topics that the label raises.
    """
    ranked = sorted(shares, key=lambda one: (-smoothed_lift(one[1], overall.get(one[0], 0.0)), one[0]))[:count]
    found = [Lifted(topic, share, share / max(overall.get(topic, 0.0), LEAST_OVERALL)) for topic, share in ranked]
    return [one for place, one in enumerate(found) if place == 0 or one.lift > 1.0]
