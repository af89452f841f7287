"""Labeled LDA by collapsed Gibbs sampling (Ramage, Hall, Nallapati and Manning 2009).

Each label is a topic, and a document's tokens have those of its labels; a document without labels may have all.
"""

from __future__ import annotations

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
