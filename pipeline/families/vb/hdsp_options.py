"""Options of the hierarchical Dirichlet scaling process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from collapsium.pipeline.families.base import FamilyOptions
from collapsium.pipeline.families.vb.label_scaling import MAX_HESSIAN_SIZE, AnyScaling, InverseGamma, LogLinear
from collapsium.pipeline.families.vb.mean_field import MAX_SWEEPS
from collapsium.storage.errors import OptionError

INITIAL_ALPHA_WITH_LABELS = 1000.0  # Tokens that labels count for at the start

Learned = Literal["gamma", "alpha", "weights", "variance"]


class HdspOptions(FamilyOptions, title="hierarchical Dirichlet scaling process, mean-field variational Bayes"):
    """Options of the family."""

    former_names: ClassVar[Mapping[str, str]] = {"start": "initial_topics"}

    topics: int = Field(200, ge=1, le=65_535, description="truncation K: the largest number of topics")
    scaling: Literal["labels", "linear"] = Field(
        "labels",
        description="how labels scale the proportions: labels, a weight for each label that a document has, "
        "with an inverse-gamma prior; linear, the exponential of a linear function of labels and "
        "covariates, with a normal prior",
    )
    labels: tuple[str, ...] = Field((), description="fields of labels to use (default: all fields of the corpus)")
    covariates: tuple[str, ...] = Field(
        (),
        description="with linear scaling: covariates to use; they are standardised, and a missing value "
        "counts as the mean",
    )
    gamma: float = Field(1.0, ge=1, description="initial concentration gamma of the corpus's topics")
    alpha: float | None = Field(
        None,
        gt=0,
        description="initial concentration alpha of a document's topics (default: 1000 with labels, so that "
        "topics form by labels; else 1). Labels alone predict best with alpha fixed at 1000 "
        "(`learn`: gamma, weights), or at 5 if most labels are missing",
    )
    eta: float = Field(0.1, gt=0, description="Dirichlet parameter eta of each word in a topic; it is not learned")
    weight_shape: float = Field(
        1.0, gt=0, description="labels scaling: initial shape a_w of the weights' inverse-gamma prior"
    )
    weight_rate: float = Field(
        1.0, gt=0, description="labels scaling: initial rate b_w of the weights' inverse-gamma prior"
    )
    weight_variance: float = Field(
        1.0, gt=0, description="linear scaling: initial variance of the weights' normal prior"
    )
    learn: tuple[Learned, ...] = Field(
        ("gamma", "alpha", "weights"),
        description="hyperparameters to learn: gamma, alpha, weights (a_w and b_w), variance (of the linear "
        "weights; it shrinks towards zero if most labels are rare). The weights themselves are "
        "always learned",
    )
    initial_topics: Literal["labels", "lda"] = Field(
        "labels",
        description="labels, from sweeps of LDA that tie topics to labels; lda, from sweeps "
        "of LDA without labels, as in the paper, which mostly gives poorer bounds and predictions",
    )
    lda_sweeps: int = Field(3, ge=1, le=MAX_SWEEPS, description="number of these sweeps, made in the first iteration")
    document_sweeps: int = Field(
        5,
        ge=1,
        le=MAX_SWEEPS,
        description="largest number of passes over a document in an iteration; each pass updates q(pi) and q(z)",
    )
    document_tolerance: float = Field(
        0.001,
        ge=0,
        description="stop the passes over a document when its expected counts change by less than this: in "
        "tokens, the mean over the topics; 0: make all passes",
    )

    def initial_alpha(self, labels: int) -> float:
        """Return the initial concentration of a document's topics, with so many labels."""
        if self.alpha is not None:
            return self.alpha
        return INITIAL_ALPHA_WITH_LABELS if labels else 1.0

    @property
    def label_scaling(self) -> AnyScaling:
        """The scaling function."""
        if self.scaling == "labels":
            return InverseGamma(self.weight_shape, self.weight_rate, "weights" in self.learn)
        return LogLinear(self.weight_variance, "variance" in self.learn)

    @property
    def unused(self) -> dict[str, str]:
        """Options that these leave without effect, and for each what it applies to."""
        if self.scaling == "labels":
            return {"weight_variance": "`scaling` linear, found labels"}
        return dict.fromkeys(("weight_shape", "weight_rate"), "`scaling` labels, found linear")

    def sums_curvature(self, labels: int) -> bool:
        """Return true if the Hessian of the weights is summed, as for linear weights if labels are few."""
        return self.scaling == "linear" and labels**2 * self.topics <= MAX_HESSIAN_SIZE

    @property
    def covariates_need(self) -> str:
        """Options that would make a fit use the covariates of a corpus; empty if it does."""
        scaling = "" if self.scaling == "linear" else "scaling = linear and "
        return "" if self.covariates else f"{scaling}covariates = their names"

    @model_validator(mode="after")
    def _numbers_are_linear(self) -> HdspOptions:
        if self.covariates and self.scaling != "linear":
            raise OptionError("numbers need `scaling` linear; `scaling` labels uses labels only", "covariates")
        return self
