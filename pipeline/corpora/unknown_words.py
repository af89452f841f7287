"""Measure the share of unknown words: tokens of added documents that are not in the corpus's vocabulary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from collapsium.storage.building.ingest_record import History, Report, read_history
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.data_types import JsonObject

MAX_SHARE = 0.1  # Share of unknown tokens above which a warning is given


@dataclass(frozen=True)
class UnknownWords:
    """Tokens of unknown words among the tokens of documents.

    A word is unknown if it is not in the vocabulary and was not left out on purpose. Words pruned by the corpus's
    ``min_documents`` or ``max_words`` are unknown. Stop words and words that are too frequent for
    ``max_document_share`` are not unknown, and do not count as tokens.
    """

    unknown: int = 0  # Tokens of unknown words, which were dropped
    tokens: int = 0  # Tokens of known and unknown words

    @classmethod
    def of(cls, reports: Iterable[Report]) -> UnknownWords:
        """Return the sums over reports of ingesting or appending."""
        reports = list(reports)
        unknown = sum(report.unknown_tokens for report in reports)
        return cls(unknown, unknown + sum(report.tokens for report in reports))

    @property
    def share(self) -> float | None:
        """Share of tokens of unknown words; None without tokens."""
        return self.unknown / self.tokens if self.tokens else None

    def record(self) -> JsonObject:
        """Return the counts as fields of a JSON object."""
        return {"unknown_tokens": self.unknown, "unknown_share": self.share}

    def text(self) -> str:
        """Return the share in words."""
        share = 0.0 if self.share is None else self.share
        return f"{self.unknown:,} of {self.tokens:,} tokens ({share:.1%}) are words that are not in the vocabulary"

    def warning(self, history: History, *, grow: bool, option: str) -> str | None:
        """Return a warning if the share is above `MAX_SHARE`."""
        if self.share is None or self.share <= MAX_SHARE:
            return None
        first = UnknownWords.of([history.report]).share
        comparison = "" if first is None else f" (first documents: {first:.1%})"
        return f"added documents: {self.text()}, and were dropped{comparison}; {_advice(history, grow, option)}"


def _advice(history: History, grow: bool, option: str) -> str:
    """Return advice on unknown words."""
    limit = history.cuts.max_words
    if limit is not None:
        return f"max_words = {limit} leaves no room for new words; ingest a new corpus to choose its words anew"
    if grow:
        return f"new words must occur in {history.cuts.min_documents} of the added documents (min_documents)"
    return f"{option} adds new words to the vocabulary"


def additions_of(corpus: Corpus) -> tuple[Report, ...]:
    """Return the reports of all additions to a corpus, the first one first."""
    history = read_history(corpus.folder)
    return () if history is None else history.until(corpus.manifest.documents).appended
