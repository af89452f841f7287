"""Labeled LDA (Ramage, Hall, Nallapati and Manning 2009) and partially labeled LDA (Ramage, Manning and Dumais 2011).

In labeled LDA each label is a topic, and a document's tokens have the topics of its labels; a document without labels
may have all. In partially labeled LDA each label has several topics, and so has a background that all documents share.
Both are fitted by collapsed Gibbs sampling.
"""

from __future__ import annotations

from pydantic import Field

from collapsium.workers.families.gibbs.allowed_topics import TopicSizes
from collapsium.workers.families.gibbs.label_topics import LabelTopicsFamily, LabelTopicsOptions


class LabeledLdaOptions(LabelTopicsOptions, title="labeled LDA (one topic for each label), collapsed Gibbs sampling"):
    """Options of the family."""

    @property
    def sizes(self) -> TopicSizes:
        """Topics of each label, and of the background."""
        return TopicSizes(per_label=1, background=0)


class LabeledLda(LabelTopicsFamily[LabeledLdaOptions]):
    """Labeled LDA."""

    Options = LabeledLdaOptions


class PartiallyLabeledLdaOptions(
    LabelTopicsOptions, title="partially labeled LDA (several topics for each label), collapsed Gibbs sampling"
):
    """Options of the family."""

    topics_per_label: int = Field(2, ge=1, description="number of topics N of each label")
    background: int | None = Field(
        None,
        ge=0,
        description="number of topics that all documents share (default: the number of topics per label); with 0, "
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
