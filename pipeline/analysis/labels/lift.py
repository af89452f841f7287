"""Rank the topics of a label by lift: how much more of a topic the label's documents have than all documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Added to both shares before they are compared, so that rare topics do not head a ranking by a few tokens
SMOOTHING = 0.01
MIN_OVERALL = 1e-9  # Lower bound on a topic's share, against division by zero


@dataclass(frozen=True)
class Lifted:
    """A topic and how much a label raises it."""

    topic: int  # The topic's id
    share: float  # Its share conditional on the label
    lift: float  # That share divided by its share of the corpus


def smoothed_lift(share: float, overall: float) -> float:
    """Return the ratio of two shares after one percent is added to both."""
    return (share + SMOOTHING) / (overall + SMOOTHING)


def by_lift(shares: Iterable[tuple[int, float]], overall: Mapping[int, float], count: int) -> list[Lifted]:
    """Return the topics that a label raises most."""
    ranked = sorted(shares, key=lambda pair: (-smoothed_lift(pair[1], overall.get(pair[0], 0.0)), pair[0]))[:count]
    topics = [Lifted(topic, share, share / max(overall.get(topic, 0.0), MIN_OVERALL)) for topic, share in ranked]
    return [topic for rank, topic in enumerate(topics) if rank == 0 or topic.lift > 1.0]
