"""Words that are dropped from texts: stop words as the tokenizer yields them, their contractions, and short words."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.corpus.word_rule import lower_case
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts.stopwords import stop_words
from collapsium.workers.ingest.tokenize import tokenize

_APOSTROPHES = "'\u2019\u02bc"  # Apostrophes that the tokenizer leaves inside words


@dataclass(frozen=True)
class StopWords:
    """Words that are dropped."""

    words: tuple[str, ...] = ()  # The stop words, sorted
    min_characters: int = 0  # Least characters of a word; shorter words are dropped too
    spared: tuple[str, ...] = ()  # Words that are not dropped all the same

    @staticmethod
    def of(options: ReadOptions) -> StopWords:
        """Return the words that are dropped from texts by the options of reading them.

        The lists pass through the tokenizer, so that they match its words.
        """
        entries = frozenset(
            lower_case(entry, options.word_rule) for entry in stop_words(options.stop_words).union(options.stop_list)
        )
        # Parts of entries that have several words may have a different meaning; signs at the ends of an entry, such as
        # in ``'ll`` and ``etc.``, are no separators.
        simple = []
        for entry in sorted(entries):
            is_sign = [unicodedata.category(letter)[0] in "PSZ" and letter not in _APOSTROPHES for letter in entry]
            spaced = "".join(" " if sign else letter for sign, letter in zip(is_sign, entry, strict=True))
            if " " not in spaced.strip(f" {_APOSTROPHES}"):
                simple.append(entry)
        tokenized = tokenize(
            pa.array(simple, pa.large_string()), options.tokenizer, options.word_rule
        ).words.to_pylist()
        return StopWords(tuple(sorted(entries.union(tokenized))), options.min_characters or 0)

    def sparing(self, words: pa.Array) -> StopWords:
        """Return the same, except that none of `words` is dropped."""
        return replace(self, spared=tuple(words.filter(pa.array(self.dropped(words))).to_pylist()))

    def short(self, words: pa.Array) -> npt.NDArray[np.bool_]:
        """Return whether each word has too few letters."""
        short = np.asarray(pc.less(pc.utf8_length(words), self.min_characters), dtype=bool)
        return short & ~_among(words, self.spared)

    def stopped(self, words: pa.Array) -> npt.NDArray[np.bool_]:
        """Return whether each word is a stop word, or a contraction of stop words."""
        stopped = _among(words, self.words)
        joined = np.asarray(pc.match_substring_regex(words, f"[{_APOSTROPHES}]"), dtype=bool)
        at = np.flatnonzero(joined & ~stopped)
        if at.size and self.words:
            known = frozenset(self.words)
            stopped[at] = [is_contraction(word, known) for word in words.take(pa.array(at)).to_pylist()]
        return stopped & ~_among(words, self.spared)

    def dropped(self, words: pa.Array) -> npt.NDArray[np.bool_]:
        """Return whether each word is dropped."""
        return self.stopped(words) | self.short(words)


def _among(words: pa.Array, known: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    return np.array(pc.is_in(words, value_set=pa.array(known, pa.string())), dtype=bool)


def is_contraction(word: str, stops: frozenset[str]) -> bool:
    """Return whether a word with apostrophes consists only of stop words and single letters."""
    plain = re.sub(f"[{_APOSTROPHES}]", "'", word)
    if plain in stops:
        return True
    *before, last = (part for part in plain.split("'") if part)
    # A part may be a stop word without its last vowel, as ``lorsqu`` for ``lorsque``.
    spelled = [next((part + vowel for vowel in ("", *"aeiou") if part + vowel in stops), part) for part in before]
    parts = [*spelled, last]
    return any(part in stops for part in parts) and all(part in stops or len(part) == 1 for part in parts)
