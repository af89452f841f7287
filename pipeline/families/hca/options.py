"""Options of hierarchical component analysis."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from collapsium.pipeline.families.base import FamilyOptions
from collapsium.pipeline.families.hca.posterior import Prior

SHRINKING = 0.35  # nodes of a level for each of the level below


class HcaOptions(FamilyOptions, title="hierarchical component analysis: a Gaussian tree on vectors, variational"):
    """Options of the family."""

    depth: int = Field(2, ge=1, le=8, description="levels L of the tree: components that a vector has")
    max_nodes: int = Field(30, ge=1, le=1024, description="most nodes that the tree may have")
    gamma: float = Field(1.0, gt=0, description="concentration of each node's children")
    form: Literal["conditional", "factorised"] = Field(
        "conditional",
        description="conditional: q(c) q(x | c), the tighter bound; factorised: q(c) q(x), that of Wang and Blei",
    )
    prior_variance: float = Field(1000.0, gt=0, description="variance s0 of each loading, and of the mean")
    tau_shape: float = Field(0.001, gt=0, description="shape of tau's Gamma prior; tau: precision of the noise")
    tau_rate: float = Field(0.001, gt=0, description="rate of tau's Gamma prior")
    prune: float = Field(1e-6, ge=0, description="vectors below which a node is dropped")
    merge: float = Field(
        0.95, gt=0, le=1, description="cosine of two sibling leaves' vectors above which they become one; 1 for never"
    )
    split: bool = Field(
        True, description="whether leaves are split on trial, in a full tree with a merge elsewhere (SMEM)"
    )
    compare: bool = Field(True, description="whether siblings become one where the bound is larger then")
    branching: tuple[int, ...] = Field(
        (3,), description="to simulate from: children of each node, one number for all levels but the last, or a list"
    )
    loading_scale: float = Field(3.0, gt=0, description="to simulate from: standard deviation of loadings and mean")
    noise_scale: float = Field(0.3, gt=0, description="to simulate from: standard deviation of the noise")

    @field_validator("branching")
    @classmethod
    def _above_zero(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 1:
            raise ValueError("expected numbers above zero")
        return value

    @model_validator(mode="after")
    def _a_node_a_level(self) -> HcaOptions:
        if self.max_nodes < self.depth:
            raise ValueError(f"max_nodes: expected at least {self.depth}, a node a level")
        if len(self.branching) not in (1, self.depth - 1):
            raise ValueError(f"branching: expected one value, or {self.depth - 1} with a depth of {self.depth}")
        return self

    def prior(self) -> Prior:
        """Return the priors."""
        return Prior(self.prior_variance, self.tau_shape, self.tau_rate)

    def sizes(self) -> list[int]:
        """Return the initial number of nodes of each level: a root, and as many leaves as leave room for the others."""
        for leaves in range(self.max_nodes, 0, -1):
            above = [
                max(1, round(leaves * SHRINKING ** (self.depth - 1 - level))) for level in range(1, self.depth - 1)
            ]
            sizes = [1, *above, leaves][-self.depth :] if self.depth > 1 else [1]
            if sum(sizes) <= self.max_nodes:
                return [*sizes[:-1], sizes[-1] + self.max_nodes - sum(sizes)] if self.depth > 1 else sizes
        return [1] * self.depth
