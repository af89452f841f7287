"""Options of the nested Chinese restaurant process, by variational inference."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator, model_validator

from collapsium.storage.errors import OptionError
from collapsium.workers.families.family import FamilyOptions
from collapsium.workers.options import Formerly

# Default alpha of the first levels; default eta of the levels above the leaves, and of the leaves
ALPHAS, ETAS = (50.0, 20.0, 10.0), (0.2, 0.1)
Learned = Literal["alpha", "eta", "gamma"]


class NcrpOptions(FamilyOptions, title="nested Chinese restaurant process: a tree of topics, variational"):
    """Options of `Ncrp`."""

    drawn = ("branching",)
    depth: int = Field(
        3, ge=2, le=8, description="number of levels L of the tree; each document has one path of L nodes"
    )
    max_nodes: int = Field(400, ge=2, le=4096, description="largest number of nodes of the tree")
    leaves: int | None = Field(
        None,
        ge=1,
        description="number of documents that the initial clusters start from, each of which becomes a leaf "
        "(default: half of the documents, at most 300 and four fifths of max_nodes, or half of it "
        "with initial_tree gradual)",
    )
    alpha: tuple[float, ...] = Field(
        (),
        description="Dirichlet parameters of the level proportions, a list with one for each level (default: "
        "50, 20, 10, 5, ...)",
    )
    eta: tuple[float, ...] = Field(
        (),
        description="Dirichlet parameter of each word in a node's topic: one value, or a list with one for "
        "each level (default: 0.2, and 0.1 at leaves; 1 with posterior dirichlet)",
    )
    gamma: float = Field(
        1.0,
        gt=0,
        description="concentration of the nested Chinese restaurant process: larger values give a node more children",
    )
    form: Literal["conditional", "factorised"] = Field(
        "conditional",
        description="variational family: conditional, q(c) q(z | c), the tighter bound; factorised, q(c) "
        "q(z), as in Wang and Blei",
    )
    posterior: Literal["point", "dirichlet"] = Field(
        "point",
        description="of the topics: point, the most probable value, which predicts better; dirichlet, a full "
        "posterior as in Wang and Blei, which uses fewer nodes",
    )
    initial_tree: Annotated[Literal["clustering", "gradual"], Formerly("start")] = Field(
        "clustering",
        description="clustering, documents are clustered into leaves and these into groups; "
        "gradual, the documents are admitted over the first iterations, at least twice as many "
        "each time, and some open new paths, as in Wang and Blei",
    )
    learn: tuple[Learned, ...] = Field(
        (), description="hyperparameters to learn: alpha, eta (with posterior dirichlet), gamma"
    )
    document_sweeps: int = Field(1, ge=1, description="passes over a document in an iteration")
    new_paths: Annotated[int | None, Formerly("grow")] = Field(
        None,
        ge=0,
        description="number of documents in an iteration that may open a new path, drawn from their q(c) "
        "(default: 0, or 2 with initial_tree gradual)",
    )
    prune: float = Field(1e-6, ge=0, description="remove a node whose expected number of documents is smaller")
    merge: float = Field(
        0.95, gt=0, le=1, description="merge two sibling leaves if the cosine of their documents is larger; 1: never"
    )
    compare: bool = Field(True, description="every fifth iteration, merge siblings if that raises the evidence")
    branching: tuple[int, ...] = Field(
        (3,),
        description="simulate: children of each node, one number for all levels but the last, or a list with "
        "one number for each",
    )

    @field_validator("alpha", "eta", "branching")
    @classmethod
    def _above_zero(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if any(not value > 0 for value in values):
            raise ValueError(f"expected numbers above zero, found {list(values)}")
        return values

    @model_validator(mode="after")
    def _one_a_level(self) -> NcrpOptions:
        if self.alpha and len(self.alpha) != self.depth:
            raise OptionError(f"expected {self.depth} values, one per level, found {len(self.alpha)}", "alpha")
        if self.eta and len(self.eta) not in (1, self.depth):
            raise OptionError(f"expected 1 value or {self.depth}, one per level, found {len(self.eta)}", "eta")
        if len(self.branching) not in (1, self.depth - 1):
            raise OptionError(f"expected 1 value or {self.depth - 1}, found {len(self.branching)}", "branching")
        if "eta" in self.learn and self.posterior == "point":
            raise OptionError("eta can be learned only with `posterior` dirichlet", "learn")
        if self.max_nodes < self.depth:
            raise OptionError(f"expected at least {self.depth}, one per level, found {self.max_nodes}", "max_nodes")
        return self

    def growing(self) -> int:
        """Return at how many documents the tree may grow."""
        return self.new_paths if self.new_paths is not None else 2 if self.initial_tree == "gradual" else 0

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


SampledLearned = Literal["eta", "alpha", "gamma"]


class GibbsNcrpOptions(FamilyOptions, title="nested Chinese restaurant process: a tree of topics, Gibbs sampling"):
    """Options of `GibbsNcrp`."""

    drawn = ("branching",)
    depth: int = Field(3, ge=2, le=8, description="number of levels L of the tree, root and leaves included")
    eta: tuple[float, ...] = Field(
        (0.1,),
        description="Dirichlet parameter eta of each word at a node: one value, or a list with one for each "
        "level; smaller values give more nodes",
    )
    alpha: tuple[float, ...] = Field(
        (1.0,),
        description="Dirichlet parameter alpha of each level in a document: one value, or a list with one for "
        "each level",
    )
    gamma: float = Field(
        1.0, gt=0, description="concentration of the nested Chinese restaurant process; larger values give more nodes"
    )
    learn: tuple[SampledLearned, ...] = Field(
        ("eta", "alpha", "gamma"),
        description="hyperparameters to sample: eta, alpha, gamma. Each starts at its option, which is the "
        "mean of its exponential prior; eta and alpha have one value for each level",
    )
    entry: Literal["apart", "together"] = Field(
        "apart",
        description="initial path of a document: apart, a new path; together, the path that best fits its words, "
        "which ends with fewer nodes",
    )
    branching: tuple[int, ...] = Field(
        (3,),
        description="simulate: children of each node, one number for all levels but the last, or a list with "
        "one number for each",
    )

    @field_validator("eta", "alpha", "branching")
    @classmethod
    def _above_zero(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not value or min(value) < 1e-9:
            raise ValueError(f"expected numbers above zero, found {list(value)}")
        return value

    @model_validator(mode="after")
    def _as_many_as_levels(self) -> GibbsNcrpOptions:
        for name, expected in (("eta", self.depth), ("alpha", self.depth), ("branching", self.depth - 1)):
            if len(getattr(self, name)) not in (1, expected):
                raise OptionError(f"expected 1 value or {expected}, found {len(getattr(self, name))}", name)
        return self
