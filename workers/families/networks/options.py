"""Options of networks of Dirichlet and Pitman-Yor vectors."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, field_validator, model_validator

from collapsium.storage.errors import OptionError
from collapsium.workers.families.family import FamilyOptions

if TYPE_CHECKING:
    from collapsium.storage.corpus.label_index import LabelTable
    from collapsium.workers.families.networks.graph import Plan

Learned = Literal["alpha", "asymmetric-alpha", "beta", "strength", "discount"]


class NetworkOptions(FamilyOptions):
    """Options of all families of networks."""

    topics: int = Field(ge=1, le=65_535, description="number of topics K")
    alpha: float = Field(0.1, gt=0, description="Dirichlet parameter alpha_k of each topic, in vectors without parents")
    beta: float = Field(
        100.0,
        gt=0,
        description="concentration B of a topic over the words; each word has Dirichlet parameter B/W, W "
        "being the size of the vocabulary",
    )
    strength: float = Field(
        10.0, gt=0, description="concentration b of a vector around its parents; its initial value if it is learned"
    )
    discount: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="discount a of the Pitman-Yor process; 0 is a Dirichlet process. If it is learned and 0, "
        "it starts at 0.1",
    )
    strength_mean: float = Field(1000.0, gt=0, description="mean of the exponential prior of b, if b is learned")
    learn: tuple[Learned, ...] = Field(
        ("strength",),
        description="hyperparameters to learn: alpha (one value), asymmetric-alpha (one value for each "
        "topic), beta, strength (b) and discount (a); b and a have one value for each kind of "
        "vectors",
    )
    inference: Literal["gibbs", "variational"] = Field(
        "gibbs",
        description="gibbs: sample topics and table counts; variational: use their expectations, as CV-HDP "
        "does, which takes fewer sweeps; the discount is then fixed",
    )
    tables: bool = Field(True, description="sample the table counts again after the tokens, so that chains mix faster")

    @property
    def learns_alpha(self) -> bool:
        """True if alpha is learned, one value for all topics or a value for each."""
        return bool({"alpha", "asymmetric-alpha"} & set(self.learn))

    @property
    def unused(self) -> dict[str, str]:
        """Options without effect under these options, and for each the condition under which it applies."""
        return {} if "strength" in self.learn else {"strength_mean": "`learn` strength"}

    @field_validator("learn")
    @classmethod
    def _one_alpha(cls, learn: tuple[Learned, ...]) -> tuple[Learned, ...]:
        if {"alpha", "asymmetric-alpha"} <= set(learn):
            raise ValueError("name either alpha or asymmetric-alpha")
        return learn

    @model_validator(mode="after")
    def _expected_discount(self) -> Self:
        if self.inference == "variational" and "discount" in self.learn:
            raise OptionError("discount is fixed with `inference` variational; leave it out, or use gibbs", "learn")
        return self

    @abstractmethod
    def plan(self, labels: LabelTable | None) -> Plan:
        """Return the kinds of vectors and their parents; raise `OptionError` if the corpus has no labels of a field."""
