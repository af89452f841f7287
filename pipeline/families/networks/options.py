"""Options of networks of Dirichlet and Pitman-Yor vectors."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from collapsium.pipeline.families.base import FamilyOptions

Learned = Literal["alpha", "asymmetric-alpha", "beta", "strength", "discount"]


class NetworkOptions(FamilyOptions):
    """Options of all families of networks."""

    topics: int = Field(ge=1, le=65_535, description="number of topics K")
    alpha: float = Field(0.1, gt=0, description="Dirichlet parameter of each topic in vectors without parents, alpha_k")
    beta: float = Field(
        100.0,
        gt=0,
        description="concentration of a topic over the words, B; each word has B/W, W being the vocabulary",
    )
    strength: float = Field(
        10.0, gt=0, description="b, how near a vector is to its parents; where it is learned, the first value"
    )
    discount: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="a of the Pitman-Yor process; 0 is a Dirichlet. Learned, it begins at 0.1 if it is 0",
    )
    strength_mean: float = Field(1000.0, gt=0, description="mean of the exponential prior of b, where it is learned")
    learn: tuple[Learned, ...] = Field(
        ("strength",),
        description="what is learned: alpha (one value for all), asymmetric-alpha (a value a topic), beta, strength "
        "(b) and discount (a), one of each for each kind of vectors",
    )
    inference: Literal["gibbs", "variational"] = Field(
        "gibbs",
        description="gibbs: topics and tables are drawn; variational: both are expected, as CV-HDP expects them, which "
        "takes fewer sweeps; it holds the discount",
    )
    tables: bool = Field(
        True, description="whether numbers of tables are drawn anew beside the tokens, so that chains mix faster"
    )

    @property
    def learns_alpha(self) -> bool:
        """Whether alpha is learned, one value for all topics or a value for each."""
        return bool({"alpha", "asymmetric-alpha"} & set(self.learn))

    @field_validator("learn")
    @classmethod
    def _one_alpha(cls, learn: tuple[Learned, ...]) -> tuple[Learned, ...]:
        if {"alpha", "asymmetric-alpha"} <= set(learn):
            raise ValueError("name either alpha or asymmetric-alpha")
        return learn

    @model_validator(mode="after")
    def _expected_discount(self) -> Self:
        if self.inference == "variational" and "discount" in self.learn:
            raise ValueError("inference = variational holds the discount; leave it out of learn, or take gibbs")
        return self
