"""Options that the families of collapsed topics share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from collapsium.storage.errors import OptionError
from collapsium.workers.families.cvb.seeds import SeededOptions
from collapsium.workers.options import Formerly


class CollapsedOptions(SeededOptions):
    """Options that the families of collapsed topics share."""

    topics: int
    beta: float
    order: Literal[0, 2]
    responsibilities: Literal["active", "dense"] | None = Field(
        None,
        description="active: each document stores the responsibilities of its active topics, and one "
        "background share for all others; dense: all topics of every pair (default: active with "
        "order 0; order 2 is always dense)",
    )
    most_active: int | None = Field(
        None,
        ge=1,
        description="largest number of active topics of a document (default: with up to 768 distinct words, all if "
        "there are at most 128 topics, and otherwise 24 plus one for every 8 distinct words, but at least 64; with "
        "more distinct words, at most 98,304 divided by their number, but at least 16; with more than 128 topics, in "
        "corpora of 4 million tokens or more, an eighth of that, if held-out tokens are then predicted better)",
    )
    momentum: float = Field(
        0.8,
        ge=0,
        lt=1,
        description="active responsibilities: extrapolate the word counts by this share of their last change "
        "before each sweep; 0: plain updates",
    )
    inverse_temperature: Annotated[float | None, Formerly("flatten")] = Field(
        None,
        gt=0,
        le=1,
        description="active responsibilities: inverse temperature, the power to which a token's responsibilities are "
        "raised before they are normalised. Values below 1 spread a token over more topics, which predicts short "
        "documents better (default: the fit searches for the value that best predicts training tokens which it holds "
        "out; see 'Initialisation, tempering and momentum' in the documentation)",
    )

    @field_validator("responsibilities")
    @classmethod
    def _dense_second_order(
        cls, responsibilities: Literal["active", "dense"] | None, info: ValidationInfo
    ) -> Literal["active", "dense"] | None:
        if responsibilities == "active" and info.data.get("order") == 2:
            raise ValueError("expected 'dense' with `order` 2; active responsibilities take `order` 0")
        return responsibilities

    @property
    def active(self) -> bool:
        """True if responsibilities are sparse, over each document's active topics."""
        return (self.responsibilities or ("active" if self.order == 0 else "dense")) == "active"

    @property
    def unused(self) -> dict[str, str]:
        """Options without effect under these options, and for each the condition under which it applies."""
        applies = "active responsibilities; these are dense"
        return {} if self.active else dict.fromkeys(("most_active", "momentum", "inverse_temperature"), applies)

    @property
    @abstractmethod
    def needs_tables(self) -> bool:
        """True if E[s_k] is summed."""

    @property
    @abstractmethod
    def needs_moments(self) -> bool:
        """True if V[n_kw] and Z[n_kw] are summed."""


class PlainTopicsOptions(CollapsedOptions):
    """Options that LDA and the HDP share."""

    prevalence: str | None = Field(
        None,
        description="formula of fields on which the documents' priors depend, such as '~ party + bs(year, df=5)': "
        "labels, numbers and dates that are stored with the corpus (Dirichlet-multinomial regression; needs the extra "
        "'covariates')",
    )

    @model_validator(mode="after")
    def _prevalence_of_active_topics(self) -> PlainTopicsOptions:
        if self.prevalence is not None and not self.active:
            raise OptionError("takes active responsibilities, with `order` 0", "prevalence")
        return self
