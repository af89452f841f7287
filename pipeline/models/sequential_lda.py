"""Sequential LDA (Du, Buntine and Jin 2010), by collapsed Gibbs sampling over tables or by expected tables.

Documents have proportions mu_d ~ Dir(alpha); those of the first segment vary about them, nu_d1 ~ PDP(a, b, mu_d), and
those of each other segment about the one before, nu_dj ~ PDP(a, b, nu_d,j-1); z ~ nu_dj, phi_k ~ Dir(B/W, ..., B/W).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsar.pipeline import networkdrawing, networks
from collapsar.pipeline.contract import Summary
from collapsar.pipeline.networks import SCHEDULES, NetworkConfig, carry, describe, figures, footprint, objective, update
from collapsar.workers.delta import Arrays
from collapsar.workers.networkgraph import DOCUMENT, SEGMENT, Plan
from collapsar.workers.streams import Stream

if TYPE_CHECKING:
    from collapsar.storage.shard import Documents

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
