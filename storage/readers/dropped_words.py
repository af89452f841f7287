"""Numbers of words that each rule dropped from a vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

NOT_IN_VOCABULARY = "not in the vocabulary"
# Beginnings of the texts of the rules `Cuts.min_documents`, `max_words` and `max_document_share`
TOO_RARE, TOO_MANY, TOO_FREQUENT = "in fewer than ", "beyond ", "in more than "


@dataclass(frozen=True)
class Dropped:
    """Number of words that a rule has dropped, and of their tokens."""

    rule: str
    words: int
    tokens: int

    @property
    def unknown(self) -> bool:
        """True if the words are absent from the vocabulary because they are rare, unlike stop words."""
        return self.rule == NOT_IN_VOCABULARY or self.rule.startswith((TOO_RARE, TOO_MANY))
