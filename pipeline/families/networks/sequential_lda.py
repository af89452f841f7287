"""Sequential LDA (Du, Buntine and Jin 2010), by collapsed Gibbs sampling over tables or by expected tables.

Documents have proportions mu_d ~ Dir(alpha); those of the first segment vary about them, nu_d1 ~ PDP(a, b, mu_d), and
those of each other segment about the one before, nu_dj ~ PDP(a, b, nu_d,j-1); z ~ nu_dj, phi_k ~ Dir(B/W, ..., B/W).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.base import Summary
from collapsium.pipeline.families.networks import common as networks
from collapsium.pipeline.families.networks import generative as networkdrawing
from collapsium.pipeline.families.networks.common import (
    SCHEDULES,
    carry,
    describe,
    figures,
    footprint,
    objective,
    update,
)
from collapsium.pipeline.families.networks.options import NetworkConfig
from collapsium.workers.arrays.delta import Arrays
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.networks.graph import DOCUMENT, SEGMENT, Plan

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

CORPUS = "documents"
CHANGE = "moved"
SAMPLER = True
PLAN = Plan(
    kinds=np.array([[DOCUMENT, 1, -1], [SEGMENT, 1, -1]]),
    links=np.array([[1, 1, -1, 0], [1, 0, 0, 1]]),
    mixing=np.ones(2),
    words=1,
)

__all__ = ["CORPUS", "SCHEDULES", "carry", "describe", "figures", "footprint", "objective", "update"]


class Config(NetworkConfig, title="sequential LDA: each segment varies about the one before it"):
    """Options of the family."""


def initialise(summary: Summary, config: Config, stream: Stream) -> Arrays:
    """Make the globals before any document has been seen."""
    return networks.initialise(summary, config, PLAN)


def truth(summary: Summary, config: Config, stream: Stream) -> tuple[Arrays, Arrays]:
    """Draw topics to simulate from."""
    return networkdrawing.truth(summary, config, initialise(summary, config, stream), stream)


def simulate(
    rows: Arrays,
    globals: Arrays,
    documents: int,
    tokens: float,
    stream: Stream,
) -> tuple[Documents, npt.NDArray[np.float64]]:
    """Draw documents of segments, and what whole documents have of the topics."""
    return networkdrawing.simulate(rows, globals, documents, tokens, stream)
