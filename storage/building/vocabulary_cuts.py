"""Prune a vocabulary by document frequency and size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.errors import OptionError
from collapsium.storage.readers.base import TOO_FREQUENT, TOO_MANY, TOO_RARE, Dropped


@dataclass(frozen=True)
class Cuts:
    """Rules of vocabulary pruning."""

    min_documents: int = 0  # Words in fewer documents are dropped
    max_document_share: float = 1.0  # Words in a larger share of the documents are dropped
    # Largest number of words after these rules. Words are ranked by documents, then tokens, then spelling.
    max_words: int | None = None

    def __post_init__(self) -> None:
        if self.min_documents < 0:
            raise OptionError(f"expected 0 or more, found {self.min_documents}", "min_documents")
        if not 0 < self.max_document_share <= 1:
            raise OptionError(f"expected a share in (0, 1], found {self.max_document_share}", "max_document_share")
        if self.max_words is not None and self.max_words < 1:
            raise OptionError(f"expected 1 or more, found {self.max_words}", "max_words")

    @property
    def drops_words(self) -> bool:
        """True if any rule can drop a word."""
        return self.min_documents > 0 or self.max_document_share < 1 or self.max_words is not None


class Sieve:
    """Drops words of a counted vocabulary, rule by rule, and counts them."""

    def __init__(self, words: pa.Array, documents: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64]) -> None:
        self._words, self._documents, self._tokens = words, documents, tokens
        self.retained: npt.NDArray[np.bool_] = np.ones(len(words), dtype=bool)
        self.dropped: list[Dropped] = []
        self.frequent: tuple[str, ...] = ()

    def drop(self, rule: str, out: npt.NDArray[np.bool_]) -> None:
        """Drop the words for which `out` is true."""
        removed = self.retained & out
        self.retained &= ~out
        self.dropped.append(Dropped(rule, int(removed.sum()), int(self._tokens[removed].sum())))

    def drop_frequent(self, cuts: Cuts, names: tuple[str, ...]) -> None:
        """Drop the words that `Cuts.max_document_share` dropped from earlier documents."""
        if names:
            self.drop_named(_too_frequent(cuts), pa.array(names, pa.string()))

    def drop_named(self, rule: str, names: pa.Array, *, inverted: bool = False) -> None:
        """Drop the words in `names` or, if `inverted` is true, all words that are not in `names`."""
        among = np.asarray(pc.is_in(self._words, value_set=names), dtype=bool)
        self.drop(rule, ~among if inverted else among)

    def cut(self, cuts: Cuts, documents: int, spare: pa.Array | None = None) -> None:
        """Drop words by their documents."""
        spared = pa.array([], pa.string()) if spare is None else spare
        may = ~np.asarray(pc.is_in(self._words, value_set=spared), dtype=bool)
        if cuts.min_documents > 0:
            self.drop(f"{TOO_RARE}{cuts.min_documents} documents", may & (self._documents < cuts.min_documents))
        if cuts.max_document_share < 1:
            max_documents = cuts.max_document_share * documents
            frequent = self.retained & may & (self._documents > max_documents)
            self.frequent = tuple(self._words.filter(pa.array(frequent)).to_pylist())
            self.drop(_too_frequent(cuts), frequent)
        if cuts.max_words is not None:
            room = max(cuts.max_words - len(spared), 0)
            places = np.flatnonzero(self.retained & may)
            ranks = np.empty(len(self._words), dtype=np.int64)
            ranks[np.asarray(pc.sort_indices(self._words), dtype=np.int64)] = np.arange(len(self._words))
            order = np.lexsort((ranks[places], -self._tokens[places], -self._documents[places]))
            beyond = np.zeros(len(self._words), dtype=bool)
            beyond[places[order[room:]]] = True
            self.drop(f"{TOO_MANY}{cuts.max_words} words", beyond)


def _too_frequent(cuts: Cuts) -> str:
    return f"{TOO_FREQUENT}{cuts.max_document_share:g} of the documents"
