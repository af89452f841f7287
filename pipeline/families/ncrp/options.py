"""Options of the nested Chinese restaurant process, by variational inference."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator, model_validator

from collapsium.pipeline.families.base import FamilyOptions

ALPHAS, ETAS = (50.0, 20.0, 10.0), (0.2, 0.1)  # defaults: of the first levels; above the leaves, and of them
Learned = Literal["alpha", "eta", "gamma"]


class NcrpOptions(FamilyOptions, title="nested Chinese restaurant process: a tree of topics, variational"):
    """Options of `Ncrp`."""

    depth: int = Field(3, ge=2, le=8, description="levels L of the tree; a document has one path of so many nodes")
    max_nodes: int = Field(400, ge=2, le=4096, description="most nodes that the tree may have")
    leaves: int | None = Field(
        None,
        ge=1,
        description="documents from which clusters begin, which become leaves; by itself half of the documents, "
        "at most 300 and four fifths of max_nodes (in a gradual start: half of it)",
    )
    alpha: tuple[float, ...] = Field(
        (),
        description="Dirichlet parameters of the level proportions, one a level; by itself 50, 20, 10, 5, ...",
    )
    eta: tuple[float, ...] = Field(
        (),
        description="Dirichlet parameter of each word in a node's topic, one value or one a level; by itself 0.2, and "
        "0.1 for leaves, with posterior 'point', and 1 with posterior 'dirichlet'",
    )
    gamma: float = Field(1.0, gt=0, description="concentration of each node's children")
    form: Literal["conditional", "factorised"] = Field(
        "conditional",
        description="conditional: q(c) q(z | c), the tighter bound; factorised: q(c) q(z), that of Wang and Blei",
    )
    posterior: Literal["point", "dirichlet"] = Field(
        "point",
        description="point: each topic at its most probable, which predicts better; dirichlet: a posterior of each, as "
        "Wang and Blei have it, which uses fewer nodes",
    )
    start: Literal["clustering", "gradual"] = Field(
        "clustering",
        description="clustering: leaves from documents, compared and put into groups; gradual: documents enter by and "
        "by, twice as many an iteration or faster, and some begin new paths, as Wang and Blei have it",
    )
    learn: tuple[Learned, ...] = Field((), description="what is learned: alpha, eta (of posterior 'dirichlet'), gamma")
    document_sweeps: int = Field(1, ge=1, description="passes over a document in an iteration")
    grow: int | None = Field(
        None,
        ge=0,
        description="documents an iteration at which the tree may grow, each by a path drawn from its q(c); by itself "
        "0, and 2 after a gradual start",
    )
    prune: float = Field(1e-6, ge=0, description="documents below which a node is dropped")
    merge: float = Field(
        0.95, gt=0, le=1, description="cosine of two sibling leaves' documents above which they become one; 1 for never"
    )
    compare: bool = Field(
        True, description="whether siblings whose evidence is larger together become one, every fifth iteration"
    )
    branching: tuple[int, ...] = Field(
        (3,), description="to simulate from: children of each node, one number for all levels but the last, or a list"
    )

    @field_validator("alpha", "eta", "branching")
    @classmethod
    def _above_zero(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if any(not value > 0 for value in values):
            raise ValueError("expected numbers above zero")
        return values

    @model_validator(mode="after")
    def _one_a_level(self) -> NcrpOptions:
        if self.alpha and len(self.alpha) != self.depth:
            raise ValueError(f"alpha: expected {self.depth} values, one a level, found {len(self.alpha)}")
        if self.eta and len(self.eta) not in (1, self.depth):
            raise ValueError(f"eta: expected 1 value or {self.depth}, one a level, found {len(self.eta)}")
        if len(self.branching) not in (1, self.depth - 1):
            raise ValueError(f"branching: expected 1 value or {self.depth - 1}, found {len(self.branching)}")
        if "eta" in self.learn and self.posterior == "point":
            raise ValueError("learn: eta can be learned with posterior 'dirichlet' alone")
        if self.max_nodes < self.depth:
            raise ValueError(f"max_nodes: expected at least {self.depth}, a node a level")
        return self

    def growing(self) -> int:
        """Return at how many documents the tree may grow."""
        return self.grow if self.grow is not None else 2 if self.start == "gradual" else 0

    def alphas(self) -> npt.NDArray[np.float64]:
        """Return alpha of each level."""
        more = tuple(ALPHAS[-1] * 0.5**n for n in range(1, self.depth))
        return np.array(self.alpha or (ALPHAS + more)[: self.depth])

    def etas(self) -> npt.NDArray[np.float64]:
        """Return eta of each level."""
        if self.eta:
            return np.array(self.eta if len(self.eta) > 1 else self.eta * self.depth)
        if self.posterior == "dirichlet":
            return np.ones(self.depth)
        return np.array([ETAS[0]] * (self.depth - 1) + [ETAS[1]])
