"""Share of unknown words: tokens of added documents whose words the corpus's vocabulary does not have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from collapsium.storage.building.ingest_record import History, Report, read_history
from collapsium.storage.corpus.corpus import Corpus

MAX_SHARE = 0.1
"""Share of unknown tokens above which a warning is due."""


@dataclass(frozen=True)
class UnknownWords:
    """Tokens of unknown words among the tokens of documents.

    A word is unknown if it is not in the vocabulary and was not left out on purpose. Words that the corpus's
    ``min_documents`` or ``max_words`` has pruned are unknown; stop words and words that are too frequent for
    ``max_document_share`` are not, and do not count among the tokens either.

    Attributes
    ----------
    unknown : int
        Tokens of unknown words, which were dropped.
    tokens : int
        Tokens that were kept or unknown.
    """

    unknown: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, reports: Iterable[Report]) -> UnknownWords:
        """Add up what reports of ingesting or appending say."""
        every = list(reports)
        unknown = sum(one.unknown_tokens for one in every)
        return cls(unknown, unknown + sum(one.tokens for one in every))

    @property
    def share(self) -> float | None:
        """Share of the tokens that are of unknown words; None where there is no token."""
        return self.unknown / self.tokens if self.tokens else None

    def record(self) -> dict[str, Any]:
        """Return the fields that JSON has of it."""
        return {"unknown_tokens": self.unknown, "unknown_share": self.share}

    def text(self) -> str:
        """Return the share in words."""
        share = 0.0 if self.share is None else self.share
        return f"{self.unknown:,} of {self.tokens:,} tokens ({share:.1%}) are of words that are not in the vocabulary"

    def warning(self, history: History, *, grow: bool, option: str) -> str | None:
        """Return a warning where the share is above `MAX_SHARE`.

        Parameters
        ----------
        history : History
            Of the corpus.
        grow : bool
            Whether the vocabulary grows.
        option : str
            How the user asks for that.

        Returns
        -------
        str or None
            None where there is nothing to warn of.
        """
        if self.share is None or self.share <= MAX_SHARE:
            return None
        first = UnknownWords.of([history.report]).share
        beside = "" if first is None else f" (of the first documents: {first:.1%})"
        return f"added documents: {self.text()}, and were dropped{beside}; {_advice(history, grow, option)}"


def _advice(history: History, grow: bool, option: str) -> str:
    """Return what a user can do about unknown words."""
    limit = history.cuts.max_words
    if limit is not None:
        return f"max_words = {limit} leaves no room for new words, a new corpus would choose its words anew"
    if grow:
        return f"new words need {history.cuts.min_documents} of the documents that are added together (min_documents)"
    return f"{option} adds new words to the vocabulary"


def additions_of(corpus: Corpus) -> tuple[Report, ...]:
    """Return the reports of all additions to a corpus, the first one first."""
    history = read_history(corpus.folder)
    return () if history is None else history.until(corpus.manifest.documents).appended
