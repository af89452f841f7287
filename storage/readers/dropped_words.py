"""Words that were dropped from a vocabulary, by rule."""

from __future__ import annotations

from dataclasses import dataclass

NOT_IN_VOCABULARY = "not in the vocabulary"
TOO_RARE, TOO_MANY, TOO_FREQUENT = "in fewer than ", "beyond ", "in more than "
"""Beginnings of the texts of the rules `Cuts.min_documents`, `max_words` and `max_document_share`."""


@dataclass(frozen=True)
class Dropped:
    """The number of words that a rule has dropped, and of their tokens."""

    rule: str
    words: int
    tokens: int

    @property
    def unknown(self) -> bool:
        """True if the vocabulary lacks the words for their rarity, unlike stop words, which were dropped on purpose."""
        return self.rule == NOT_IN_VOCABULARY or self.rule.startswith((TOO_RARE, TOO_MANY))
