"""A network of Dirichlet or Pitman-Yor vectors that a user draws, by collapsed Gibbs sampling over tables.

Each kind of vectors names its parents: nu_j ~ Dir(alpha) without, nu_j ~ PDP(a, b, sum_l rho_lj nu_l) with, and rho_j ~
Dir(mixing) where there are several (Buntine, Du and Nurmi 2010). z ~ nu_j of the vector that a segment draws from,
phi_k ~ Dir(B/W, ..., B/W).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationInfo, field_validator

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
from collapsium.pipeline.families.networks.specification import (
    Vectors,
    check_network,
    fields_of,
    plan_of,
    read_network,
    source_of_words,
)
from collapsium.workers.arrays.delta import Arrays
from collapsium.workers.arrays.random_streams import Stream

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Documents

CORPUS = "documents"
CHANGE = "moved"
SAMPLER = True

__all__ = ["CORPUS", "SCHEDULES", "carry", "describe", "figures", "footprint", "objective", "update"]


class Config(NetworkConfig, title="a network of Dirichlet or Pitman-Yor vectors that you draw"):
    """Options of the family."""

    network: dict[str, Vectors] = Field(
        description="a TOML file with a table for each kind of vectors: over = corpus, label, document or segment; "
        'parents, such as ["document", "section[-1]"]; otherwise, parents where one is missing'
    )
    words_from: str | None = Field(
        None, description="the kind of vectors that words are drawn from (default: the last)", validate_default=True
    )

    @field_validator("network", mode="before")
    @classmethod
    def _read(cls, given: Any) -> dict[str, Any]:
        return read_network(given)

    @field_validator("network")
    @classmethod
    def _sound(cls, given: dict[str, Vectors]) -> dict[str, Vectors]:
        check_network(given)
        return given

    @field_validator("words_from")
    @classmethod
    def _last(cls, given: str | None, info: ValidationInfo) -> str | None:
        network = info.data.get("network")  # missing where that was refused
        return source_of_words(network, given) if network else given

    @property
    def labels(self) -> tuple[str, ...]:
        """Fields of labels that have vectors."""
        return fields_of(self.network)

    @property
    def takes_labels(self) -> bool:
        """Whether there are vectors over labels."""
        return bool(self.labels)

    @property
    def takes_segments(self) -> bool:
        """Whether there are vectors over segments."""
        return any(one.over == "segment" for one in self.network.values())


def initialise(summary: Summary, config: Config, stream: Stream) -> Arrays:
    """Make the globals before any document has been seen; raise `OptionError` if a field of labels is not there."""
    plan = plan_of(config.network, source_of_words(config.network, config.words_from), summary.labels)
    return networks.initialise(summary, config, plan, table=bool(config.labels))


def truth(summary: Summary, config: Config, stream: Stream) -> tuple[Arrays, Arrays]:
    """Draw topics, and vectors above documents, to simulate from."""
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
