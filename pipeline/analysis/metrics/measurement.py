"""The result of a metric, and what metrics are computed from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from collapsium.pipeline.analysis.metrics.catalogue import Metric
from collapsium.pipeline.analysis.scoring import Named
from collapsium.pipeline.executors.base import Executor
from collapsium.storage.printable import ShortRepr
from collapsium.storage.units import Counting, silent

OF_MEMBERS = "; for an ensemble, the mean of its members' values"


@dataclass(frozen=True)
class MemberValue:
    """The value of a single member of an ensemble, with the member's name, such as ``003``."""

    member: str
    value: float


@dataclass(frozen=True, repr=False)
class Measurement(ShortRepr):
    """A metric's value for a model, or its mean over an ensemble's members.

    Attributes
    ----------
    name : str
        The metric.
    value : float
        The value.
    definition : str
        Its definition, with the numbers of words and documents.
    source : str
        The publication that defines it.
    topics : mapping of int to float
        Values of single topics by their permanent ids, for coherences of a single model; else empty.
    members : tuple of MemberValue
        Values of an ensemble's members; empty for a single model.
    """

    name: str
    value: float
    definition: str
    source: str
    topics: Mapping[int, float] = field(default_factory=dict)
    members: tuple[MemberValue, ...] = ()


@dataclass(frozen=True)
class Job:
    """The models to measure, and where tasks run."""

    named: Named  # The models by their names
    executor: Executor  # Executor of the tasks
    words: int | None = None  # Number of most probable words of each topic, in place of each metric's own
    seed: int = 0  # Seed of random halves of documents, of samples of documents, and of sampling families
    progress: Counting = silent  # Receives the number of documents processed so far

    def words_of(self, metric: Metric) -> int:
        """Return the number of most probable words of each topic that a metric uses."""
        return self.words or metric.words


def measurement(
    metric: Metric,
    named: Named,
    values: Sequence[float],
    placeholders: Mapping[str, object],
    topics: Mapping[int, float] | None = None,
    remark: str = "",
) -> Measurement:
    """Return a metric's measurement."""
    several = len(named) > 1
    return Measurement(
        metric.name,
        math.fsum(values) / len(values),
        metric.definition.format(**placeholders) + (OF_MEMBERS if several else "") + remark,
        metric.source,
        {} if several or topics is None else topics,
        tuple(MemberValue(name, value) for (name, _), value in zip(named, values, strict=True)) if several else (),
    )
