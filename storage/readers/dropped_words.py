"""Words that were dropped from a vocabulary, by rule."""

from __future__ import annotations

from dataclasses import dataclass

NOT_IN_VOCABULARY = "not in the vocabulary"
TOO_RARE, TOO_MANY = "in fewer than ", "beyond "  # how the rules of `Cuts.min_documents` and `Cuts.max_words` begin
TOO_FREQUENT = "in more than "


@dataclass(frozen=True)
class Dropped:
    """What a rule has dropped: how many words, and their tokens."""

    rule: str
    words: int
    tokens: int

    @property
    def unknown(self) -> bool:
        """Whether the vocabulary lacks the words though nobody chose to leave out these: stop words are no such."""
        return self.rule == NOT_IN_VOCABULARY or self.rule.startswith((TOO_RARE, TOO_MANY))
