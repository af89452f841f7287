"""Partially labeled LDA by collapsed Gibbs sampling (Ramage, Manning and Dumais 2011).

Each label has topics of its own, and so has a background that all documents share; a document's tokens have the topics
of its labels and of the background.
"""

from __future__ import annotations

from pydantic import Field

from collapsium.workers.families.gibbs.allowed_topics import TopicSizes
from collapsium.workers.families.gibbs.label_topics import LabelTopicsFamily, LabelTopicsOptions


class PartiallyLabeledLdaOptions(
    LabelTopicsOptions, title="partially labeled LDA (several topics for each label), collapsed Gibbs sampling"
):
    """Options of the family."""

    topics_per_label: int = Field(2, ge=1, description="number of topics N of each label")
    background: int | None = Field(
        None,
        ge=0,
        description="number of topics that all documents share (default: as many as a label has); with 0, "
        "documents without labels may use all topics",
    )

    @property
    def sizes(self) -> TopicSizes:
        """Topics of each label, and of the background."""
        background = self.topics_per_label if self.background is None else self.background
        return TopicSizes(self.topics_per_label, background)


class PartiallyLabeledLda(LabelTopicsFamily[PartiallyLabeledLdaOptions]):
    """Partially labeled LDA."""

    Options = PartiallyLabeledLdaOptions
