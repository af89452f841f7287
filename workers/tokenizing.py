"""From texts to numbered words: what runs once a distinct run of letters, not once a token.

Text is cut by a kernel into runs of bytes that words can be made of; the pattern of words, which takes Python, looks
only at distinct runs, a small part of all. The words are those that scikit-learn's analyzer finds in the whole text.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsar.storage.errors import OptionError
from collapsar.storage.readers.text import WORD
from collapsar.workers.kernels.runs import number_runs

_LETTERS = b"abcdefghijklmnopqrstuvwxyz0123456789_'"
_SIGMA = "\u03a3"  # the one letter whose lower case depends on letters further off
_SLOTS = 1 << 16
PIECE = 1 << 24  # bytes of text that are cut into runs at once


@dataclass(frozen=True)
class Tokens:
    """The words of texts, in order.

    Attributes
    ----------
    words : list of str
        The word of each number; no order is kept.
    numbers : numpy.ndarray of int32, shape (tokens,)
        The texts' words behind one another.
    offsets : numpy.ndarray of int64, shape (texts + 1,)
        Where each text's words begin.
    """

    words: list[str]
    numbers: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]


class Numbering(dict[str, int]):
    """Numbers words as they come."""

    def __missing__(self, word: str) -> int:
        """Give a new word the next number."""
        self[word] = number = len(self)
        return number


def tokenize(texts: pa.Array, tokenizer: str | None = None) -> Tokens:
    """Cut texts into words.

    Parameters
    ----------
    texts : pyarrow.Array of large_string
        None may be null.
    tokenizer : str, optional
        ``module:function``, from a text to a list of words; by default words of two characters or more in lower case,
        the first a letter.

    Returns
    -------
    Tokens
        Stop words among them.

    Raises
    ------
    OptionError
        There is no such function, or it gives something else than a list of words.
    """
    numbering = Numbering()
    if tokenizer is None:
        parts = [_by_runs(piece, numbering) for piece in _pieces(texts)]
    else:
        parts = [_by_function(texts, tokenizer, numbering)]
    numbers = [part for part, _ in parts]
    lengths = np.concatenate([np.zeros(1, dtype=np.int64), *(part for _, part in parts)])
    return Tokens(
        list(numbering), np.concatenate(numbers) if numbers else np.zeros(0, dtype=np.int32), np.cumsum(lengths)
    )


def _pieces(texts: pa.Array) -> Iterator[pa.Array]:
    """Give whole texts of about `PIECE` bytes together."""
    offsets = _offsets(texts)
    first = 0
    while first < len(texts):
        end = int(np.searchsorted(offsets, offsets[first] + PIECE, side="right")) - 1
        end = min(max(end, first + 1), len(texts))
        yield texts.slice(first, end - first)
        first = end


def _offsets(texts: pa.Array) -> npt.NDArray[np.int64]:
    buffer = texts.buffers()[1]
    if buffer is None or not len(texts):
        return np.zeros(1, dtype=np.int64)
    return np.frombuffer(buffer, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]


def _by_runs(texts: pa.Array, numbering: Numbering) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Give numbers to the words of texts, and count each text's."""
    if pc.any(pc.match_substring(texts, _SIGMA)).as_py():
        texts = pa.array([text.lower() if _SIGMA in text else text for text in texts.to_pylist()], pa.large_string())
    texts = pc.ascii_lower(texts)
    offsets = np.ascontiguousarray(_offsets(texts))
    data = np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)
    most = int(offsets[-1] - offsets[0]) // 2 + len(texts) + 1
    numbers, ends = np.empty(most, dtype=np.int32), np.empty(len(texts), dtype=np.int64)
    first, length = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    room = np.array([_SLOTS], dtype=np.int64)
    distinct = number_runs(data, offsets, _inside(), room, numbers, ends, first, length)
    begins, whole = first[:distinct], bytes(texts.buffers()[2] or b"")
    runs = [whole[a:b] for a, b in zip(begins.tolist(), (begins + length[:distinct]).tolist(), strict=True)]
    words, counts = _words_of(runs, numbering)
    return _expanded(numbers[: int(ends[-1])], ends, words, counts)


@functools.cache
def _inside() -> npt.NDArray[np.uint8]:
    """Return 1 for the bytes of words: letters of ASCII in lower case, digits, and all beyond ASCII."""
    inside = np.zeros(256, dtype=np.uint8)
    inside[list(_LETTERS)] = 1
    inside[128:] = 1
    return inside


def _words_of(runs: list[bytes], numbering: Numbering) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Find the words of each run: their numbers behind one another, and how many each has."""
    texts = b"\n".join(runs).decode().lower().split("\n") if runs else []
    plain = pc.match_substring_regex(pa.array(texts, pa.string()), "^[a-z]{2,}$").to_pylist()
    find = re.compile(WORD).findall
    words: list[int] = []
    counts = np.ones(len(texts), dtype=np.int64)
    for place, (text, whole) in enumerate(zip(texts, plain, strict=True)):
        if whole:
            words.append(numbering[text])
            continue
        found = find(text)
        counts[place] = len(found)
        words.extend(numbering[word] for word in found)
    return np.array(words, dtype=np.int32), counts


def _expanded(
    runs: npt.NDArray[np.int32],
    ends: npt.NDArray[np.int64],
    words: npt.NDArray[np.int32],
    counts: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Put each run's words in its place."""
    starts = np.cumsum(counts) - counts
    each = counts[runs]
    running = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(each)])
    lengths = np.diff(running[np.concatenate([np.zeros(1, dtype=np.int64), ends])])
    if each.size and each.min() == each.max() == 1:
        return words[starts[runs]], lengths
    places = np.repeat(starts[runs] - running[:-1], each) + np.arange(running[-1])
    return words[places], lengths


def _by_function(
    texts: pa.Array, tokenizer: str, numbering: Numbering
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    function = load_tokenizer(tokenizer)
    parts, lengths = [np.zeros(0, dtype=np.int32)], []
    for text in texts:
        try:
            found = function(text.as_py())
        except Exception as error:  # anybody's code
            raise OptionError(f"--tokenizer {tokenizer}: {type(error).__name__}: {error}") from error
        if not isinstance(found, (list, tuple)) or not all(isinstance(word, str) for word in found):
            raise OptionError(f"--tokenizer {tokenizer}: expected a list of words, found {type(found).__name__}")
        parts.append(np.fromiter(map(numbering.__getitem__, map(_plain, found)), np.int32, len(found)))
        lengths.append(len(found))
    return np.concatenate(parts), np.array(lengths, dtype=np.int64)


def _plain(word: str) -> str:
    return word if word.isascii() else word.encode("utf-8", "replace").decode()


@functools.cache
def load_tokenizer(named: str) -> Callable[[str], Any]:
    """Import a function that is named ``module:function``.

    Parameters
    ----------
    named : str
        As the user said it.

    Returns
    -------
    callable
        The function.

    Raises
    ------
    OptionError
        There is none.
    """
    module, _, name = named.partition(":")
    if not module or not name:
        raise OptionError(f"--tokenizer: expected module:function, found {named!r}")
    try:
        function = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(f"--tokenizer {named}: cannot be imported where the work is done ({error})") from None
    if not callable(function):
        raise OptionError(f"--tokenizer {named}: expected a function, found {type(function).__name__}")
    return function
