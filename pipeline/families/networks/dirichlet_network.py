"""Networks of Dirichlet or Pitman-Yor vectors that a user defines, with sampled or expected tables.

Each kind of vectors names its parents: nu_j ~ Dir(alpha) without, nu_j ~ PDP(a, b, sum_l rho_lj nu_l) with, and rho_j ~
Dir(mixing) where there are several (Buntine, Du and Nurmi 2010). z ~ nu_j of the vector that a segment draws from,
phi_k ~ Dir(B/W, ..., B/W).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field, ValidationInfo, field_validator

from collapsium.pipeline.families.networks.family import NetworkFamily
from collapsium.pipeline.families.networks.options import NetworkOptions
from collapsium.pipeline.families.networks.specification import (
    Vectors,
    check_network,
    fields_of,
    plan_of,
    read_network,
    source_of_words,
)
from collapsium.pipeline.options import require_named
from collapsium.workers.families.networks.dirichlet_network import ExpectedDirichletNetwork, SampledDirichletNetwork
from collapsium.workers.families.networks.graph import Plan

if TYPE_CHECKING:
    from collapsium.storage.corpus.label_index import LabelTable


class DirichletNetworkOptions(NetworkOptions, title="network of Dirichlet or Pitman-Yor vectors that you define"):
    """Options of the family."""

    network: dict[str, Vectors] = Field(
        description="TOML file with one table for each kind of vectors: over = corpus, label, document or "
        'segment; parents, such as ["document", "section[-1]"]; otherwise, the parents to use '
        "where one of these does not exist"
    )
    words_from: str | None = Field(
        None,
        description="kind of vectors from which a token's topic is drawn (default: the last)",
        validate_default=True,
    )

    @field_validator("network", mode="before")
    @classmethod
    def _read(cls, network: object, info: ValidationInfo) -> Mapping[str, object]:
        if isinstance(network, str):
            require_named(info)
        return read_network(network)

    @field_validator("network")
    @classmethod
    def _consistent(cls, network: dict[str, Vectors]) -> dict[str, Vectors]:
        check_network(network)
        return network

    @field_validator("words_from")
    @classmethod
    def _last(cls, words_from: str | None, info: ValidationInfo) -> str | None:
        # The network is missing if it was refused.
        network = info.data.get("network")
        return source_of_words(network, words_from) if network else words_from

    @property
    def labels(self) -> tuple[str, ...]:
        """Fields of labels that have vectors."""
        return fields_of(self.network)

    @property
    def takes_labels(self) -> bool:
        """True if there are vectors over labels."""
        return bool(self.labels)

    @property
    def takes_segments(self) -> bool:
        """True if there are vectors over segments."""
        return any(vectors.over == "segment" for vectors in self.network.values())


class DirichletNetwork(NetworkFamily[DirichletNetworkOptions]):
    """Network that a user defines."""

    shard_model = SampledDirichletNetwork
    expected_model = ExpectedDirichletNetwork
    Options = DirichletNetworkOptions

    def plan(self, options: DirichletNetworkOptions, labels: LabelTable | None) -> Plan:
        """Return the plan of the network; raise `OptionError` if the corpus has no labels of a field."""
        return plan_of(options.network, source_of_words(options.network, options.words_from), labels)
