"""Options by which the words of a topic are ranked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from collapsium.pipeline.options import Options, Value
from collapsium.storage.errors import OptionError

Measure = Literal["probability", "frex", "lift", "relevance"]  # A measure that orders a topic's words


class RankOptions(Options):
    """Measure that orders a topic's words."""

    rank_by: Measure = Field(
        "probability",
        description="order a topic's words by probability; by frex, which prefers words that are both frequent in the "
        "topic and exclusive to it; by lift, the probability divided by the word's share of the corpus; or by "
        "relevance, between probability and lift",
    )
    rank_weight: Annotated[float | None, Value("X", expected="a weight from 0 to 1")] = Field(
        None,
        ge=0,
        le=1,
        description="weight of exclusivity in frex (default: 0.5), or of probability in relevance (default: 0.6)",
    )

    @model_validator(mode="after")
    def _only_weighted_measures(self) -> RankOptions:
        if self.rank_weight is not None and self.rank_by not in ("frex", "relevance"):
            raise OptionError(f"applies to `rank_by` frex and relevance, found {self.rank_by}", "rank_weight")
        return self
