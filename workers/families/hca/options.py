"""Options of hierarchical component analysis."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from collapsium.storage.errors import OptionError
from collapsium.workers.families.family import FamilyOptions
from collapsium.workers.families.hca.posterior import Prior

PARENTS_PER_NODE = 0.35  # Nodes of a level for each node of the level below, by default


class HcaOptions(FamilyOptions, title="hierarchical component analysis: a Gaussian tree on vectors, variational"):
    """Options of the family."""

    drawn = ("branching", "loading_scale", "noise_scale")
    depth: int = Field(
        2,
        ge=1,
        le=8,
        description="number of levels L of the tree; a vector is explained by one component of each level",
    )
    max_nodes: int = Field(30, ge=1, le=1024, description="largest number of nodes of the tree")
    gamma: float = Field(
        1.0,
        gt=0,
        description="concentration of the nested Chinese restaurant process: larger values give a node more children",
    )
    form: Literal["conditional", "factorised"] = Field(
        "conditional",
        description="variational family: conditional, q(c) q(x | c), the tighter bound; factorised, q(c) "
        "q(x), as in Wang and Blei",
    )
    prior_variance: float = Field(1000.0, gt=0, description="prior variance s0 of each loading, and of the mean")
    tau_shape: float = Field(0.001, gt=0, description="shape of the Gamma prior of tau, the precision of the noise")
    tau_rate: float = Field(0.001, gt=0, description="rate of the Gamma prior of tau")
    prune: float = Field(1e-6, ge=0, description="remove a node whose expected number of vectors is smaller")
    merge: float = Field(
        0.95, gt=0, le=1, description="merge two sibling leaves if the cosine of their vectors is larger; 1: never"
    )
    split: bool = Field(True, description="try to split leaves; in a full tree, together with a merge elsewhere (SMEM)")
    compare: bool = Field(True, description="merge siblings if that raises the bound")
    branching: tuple[int, ...] = Field(
        (3,),
        description="simulate: children of each node, one number for all levels but the last, or a list with "
        "one number for each",
    )
    loading_scale: float = Field(3.0, gt=0, description="simulate: standard deviation of the loadings and the mean")
    noise_scale: float = Field(0.3, gt=0, description="simulate: standard deviation of the noise")

    @field_validator("branching")
    @classmethod
    def _above_zero(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 1:
            raise ValueError(f"expected numbers above zero, found {list(value)}")
        return value

    @model_validator(mode="after")
    def _a_node_a_level(self) -> HcaOptions:
        if self.max_nodes < self.depth:
            raise OptionError(f"expected at least {self.depth}, one per level, found {self.max_nodes}", "max_nodes")
        if len(self.branching) not in (1, self.depth - 1):
            raise OptionError(f"expected 1 value or {self.depth - 1}, found {len(self.branching)}", "branching")
        return self

    def prior(self) -> Prior:
        """Return the priors."""
        return Prior(self.prior_variance, self.tau_shape, self.tau_rate)

    def sizes(self) -> list[int]:
        """Return the initial number of nodes of each level: a root, and as many leaves as leave room for the others."""
        for leaves in range(self.max_nodes, 0, -1):
            above = [
                max(1, round(leaves * PARENTS_PER_NODE ** (self.depth - 1 - level)))
                for level in range(1, self.depth - 1)
            ]
            sizes = [1, *above, leaves][-self.depth :] if self.depth > 1 else [1]
            if sum(sizes) <= self.max_nodes:
                return [*sizes[:-1], sizes[-1] + self.max_nodes - sum(sizes)] if self.depth > 1 else sizes
        return [1] * self.depth
