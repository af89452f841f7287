"""Whole counts in named arrays on the driver, for families whose states are named arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.base import Description
from collapsium.pipeline.families.gibbs.sampler import describe_topics, footprint, topic_changes
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.families.dirichlet import DirichletPriors
from collapsium.workers.families.gibbs.states import SampledRows, added_counts

__all__ = ["SCHEDULES", "counted", "describe", "footprint"]

SCHEDULES = ("batch",)


def counted(globals: Arrays, delta: Delta) -> npt.NDArray[np.int64]:
    """Return n_k after a delta, which may have more topics than there were."""
    return added_counts(globals["topic"], topic_changes(delta))


def describe(block: Arrays, globals: Arrays, priors: DirichletPriors, count: int) -> Description:
    """Describe the topics that exist, the largest first, by phi_kw = (b + n_kw) / (B + n_k)."""
    return describe_topics(SampledRows(block["word_topic"]), globals["topic"], priors, count)
