"""Split texts into numbered words, with work in Python for each distinct run of letters, not for each token.

A kernel splits text into runs of bytes that words can contain. The pattern of words, which is matched in Python, sees
only distinct runs, a small part of all. The first version of the word rule yields the words of scikit-learn's analyzer.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.corpus.word_rule import FIRST_RULE, RULE, composed, lower_case, spelled, word_pattern
from collapsium.storage.errors import OptionError
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts.fields import clean
from collapsium.storage.readers.texts.stopwords import stop_words
from collapsium.workers.kernels.text import expand_runs, number_runs
from collapsium.workers.options import import_named

# 1 for each byte that words can contain: ASCII letters in lower case, digits, and bytes beyond ASCII
_INSIDE = np.zeros(256, dtype=np.uint8)
_INSIDE[[*b"abcdefghijklmnopqrstuvwxyz0123456789_'", *range(128, 256)]] = 1
_SIGMA = "\u03a3"  # The one letter whose lower case depends on letters further off
_MAX_SLOTS = 1 << 16  # Slots of the hash table of runs at the start; a short text needs fewer
PIECE = 1 << 24  # Bytes of text that are split into runs at once


@dataclass(frozen=True)
class Tokens:
    """The words of texts, in order."""

    words: pa.Array  # Distinct words, in no order; a number is an index into these
    numbers: npt.NDArray[np.int32]  # Words of the texts, one text after another; int32 (tokens,)
    offsets: npt.NDArray[np.int64]  # Index of each text's first word; int64 (texts + 1,)


def tokenize(texts: pa.Array, tokenizer: str | None = None, rule: int = RULE) -> Tokens:
    """Return the words of texts."""
    if tokenizer is not None:
        return _by_function(texts, tokenizer, rule)
    # About `PIECE` bytes of texts are split at a time.
    offsets, firsts = _offsets(texts), [0]
    while firsts[-1] < len(texts):
        end = int(np.searchsorted(offsets, offsets[firsts[-1]] + PIECE, side="right")) - 1
        firsts.append(min(max(end, firsts[-1] + 1), len(texts)))
    parts = [_by_runs(texts.slice(first, end - first), rule) for first, end in pairwise(firsts)]
    if len(parts) == 1:
        return parts[0]
    words = pc.unique(pa.concat_arrays([pa.array([], pa.string()), *(part.words for part in parts)]))
    places = [np.asarray(pc.index_in(part.words, value_set=words), dtype=np.int32) for part in parts]
    numbers = [np.zeros(0, np.int32), *(place[part.numbers] for place, part in zip(places, parts, strict=True))]
    lengths = [np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)]
    return Tokens(words, np.concatenate(numbers), np.cumsum(np.concatenate(lengths)))


def _offsets(texts: pa.Array) -> npt.NDArray[np.int64]:
    buffer = texts.buffers()[1]
    if buffer is None or not len(texts):
        return np.zeros(1, dtype=np.int64)
    return np.frombuffer(buffer, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]


def _by_runs(texts: pa.Array, rule: int) -> Tokens:
    if pc.any(pc.match_substring(texts, _SIGMA)).as_py():
        texts = pa.array([text.lower() if _SIGMA in text else text for text in texts.to_pylist()], pa.large_string())
    texts = pc.ascii_lower(texts)
    offsets = np.ascontiguousarray(_offsets(texts))
    data = np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)
    max_runs = int(offsets[-1] - offsets[0]) // 2 + len(texts) + 1
    numbers, ends = np.empty(max_runs, dtype=np.int32), np.empty(len(texts), dtype=np.int64)
    first, length = np.empty(max_runs, dtype=np.int64), np.empty(max_runs, dtype=np.int64)
    room = np.array([min(1 << (2 * max_runs).bit_length(), _MAX_SLOTS)], dtype=np.int64)
    distinct = int(number_runs(data, offsets, _INSIDE, room, numbers, ends, first, length))
    numbers = numbers[: int(ends[-1]) if ends.size else 0]
    # Copy the distinct runs out of the text.
    first, length = first[:distinct], length[:distinct]
    bounds = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(length)])
    letters = data[np.repeat(first - bounds[:-1], length) + np.arange(bounds[-1])]
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(letters)]
    runs = pa.Array.from_buffers(pa.large_string(), distinct, buffers).cast(pa.string())
    words, places, counts = _words_of(runs, rule)
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    tokens = np.empty(int(counts[numbers].sum()), dtype=np.int32)
    lengths = np.empty(len(texts), dtype=np.int64)
    expand_runs(numbers, ends, starts, places, tokens, lengths)
    return Tokens(words, tokens, np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)]))


def _words_of(runs: pa.Array, rule: int) -> tuple[pa.Array, npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return the distinct words of distinct runs, the words' indices run by run, and the number of words by run."""
    is_word = pc.match_substring_regex(runs, "^[a-z]{2,}$")
    plain, mixed = runs.filter(is_word), runs.filter(pc.invert(is_word))
    find = word_pattern(rule).findall
    lines = lower_case("\n".join(mixed.to_pylist()), rule).split("\n") if len(mixed) else []
    words_of_mixed = [find(line) for line in lines]
    rest = pa.array([word for words in words_of_mixed for word in words], pa.string())
    words = pc.unique(pa.concat_arrays([plain, rest]))
    is_plain = np.asarray(is_word, dtype=bool)
    counts = np.ones(len(runs), dtype=np.int64)
    counts[~is_plain] = [len(words) for words in words_of_mixed]
    starts = np.cumsum(counts) - counts
    places = np.empty(int(counts.sum()), dtype=np.int32)
    alone = np.zeros(places.size, dtype=bool)
    alone[starts[is_plain]] = True
    # Distinct runs are distinct words here, and come first.
    places[alone] = np.arange(len(plain), dtype=np.int32)
    places[~alone] = np.asarray(pc.index_in(rest, value_set=words), dtype=np.int32)
    return words, places, counts


def _by_function(texts: pa.Array, tokenizer: str, rule: int) -> Tokens:
    function = load_tokenizer(tokenizer)
    numbering: dict[str, int] = {}
    parts, lengths = [np.zeros(0, dtype=np.int32)], [0]
    for text in texts:
        try:
            words = function(text.as_py() if rule == FIRST_RULE else composed(text.as_py()))
        # The function is the user's, and may raise anything.
        except Exception as error:
            raise OptionError(f"{tokenizer!r} failed: {type(error).__name__}: {error}", "tokenizer") from error
        if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
            raise OptionError(f"expected a list of words, found {type(words).__name__} from {tokenizer!r}", "tokenizer")
        spellings = [spelled(clean(word), rule) for word in words]
        numbers = [numbering.setdefault(spelling, len(numbering)) for spelling in spellings if spelling]
        parts.append(np.array(numbers, dtype=np.int32))
        lengths.append(len(numbers))
    return Tokens(pa.array(numbering, pa.string()), np.concatenate(parts), np.cumsum(lengths, dtype=np.int64))


@functools.cache
def load_tokenizer(address: str) -> Callable[[str], object]:
    """Return the function at an address ``module:function``."""
    module, _, name = address.partition(":")
    if not module or not name:
        raise OptionError(f"expected module:function, found {address!r}", "tokenizer")
    try:
        function = import_named(address)
    # Importing a module of the user may raise anything.
    except Exception as error:
        raise OptionError(f"{address!r} cannot be imported on the workers ({error})", "tokenizer") from None
    if not callable(function):
        raise OptionError(f"expected a function, found {type(function).__name__} at {address!r}", "tokenizer")
    loaded: Callable[[str], object] = function
    return loaded


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
