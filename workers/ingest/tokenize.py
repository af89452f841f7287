"""From texts to numbered words: what runs once a distinct run of letters, not once a token.

Text is cut by a kernel into runs of bytes that words can be made of; the pattern of words, which takes Python, looks
only at distinct runs, a small part of all. The words are those that scikit-learn's analyzer finds in the whole text.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.errors import OptionError
from collapsium.storage.readers.texts.text import WORD
from collapsium.storage.readers.texts.values import clean
from collapsium.workers.kernels.text import expand_runs, number_runs

_LETTERS = b"abcdefghijklmnopqrstuvwxyz0123456789_'"
_SIGMA = "\u03a3"  # the one letter whose lower case depends on letters further off
_SLOTS = 1 << 16
PIECE = 1 << 24  # bytes of text that are cut into runs at once


@dataclass(frozen=True)
class Tokens:
    """The words of texts, in order.

    Attributes
    ----------
    words : pyarrow.Array of string
        The word of each number, each once; no order is kept.
    numbers : numpy.ndarray of int32, shape (tokens,)
        The texts' words behind one another.
    offsets : numpy.ndarray of int64, shape (texts + 1,)
        Where each text's words begin.
    """

    words: pa.Array
    numbers: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]


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
    if tokenizer is not None:
        return _by_function(texts, tokenizer)
    parts = [_by_runs(piece) for piece in _pieces(texts)]
    if len(parts) == 1:
        return parts[0]
    words = pc.unique(pa.concat_arrays([pa.array([], pa.string()), *(part.words for part in parts)]))
    places = [np.asarray(pc.index_in(part.words, value_set=words), dtype=np.int32) for part in parts]
    numbers = [place[part.numbers] for place, part in zip(places, parts, strict=True)]
    lengths = [np.diff(part.offsets) for part in parts]
    return Tokens(words, _joined(numbers, np.int32), np.cumsum(_joined([[0], *lengths], np.int64)))


def _joined(parts: Sequence[Any], dtype: Any) -> Any:
    return np.concatenate(parts).astype(dtype, copy=False) if len(parts) else np.zeros(0, dtype)


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


def _by_runs(texts: pa.Array) -> Tokens:
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
    numbers = numbers[: int(ends[-1]) if ends.size else 0]
    words, places, counts = _words_of(_runs_at(data, first[:distinct], length[:distinct]))
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    tokens = np.empty(int(counts[numbers].sum()), dtype=np.int32)
    lengths = np.empty(len(texts), dtype=np.int64)
    expand_runs(numbers, ends, starts, places, tokens, lengths)
    return Tokens(words, tokens, np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)]))


def _runs_at(data: npt.NDArray[np.uint8], first: npt.NDArray[np.int64], length: npt.NDArray[np.int64]) -> pa.Array:
    """Copy the runs out of the text."""
    ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(length)])
    places = np.repeat(first - ends[:-1], length) + np.arange(ends[-1])
    buffers = [None, pa.py_buffer(ends.astype(np.int64)), pa.py_buffer(np.ascontiguousarray(data[places]))]
    return pa.Array.from_buffers(pa.large_string(), length.size, buffers).cast(pa.string())


@functools.cache
def _inside() -> npt.NDArray[np.uint8]:
    """Return 1 for the bytes of words: letters of ASCII in lower case, digits, and all beyond ASCII."""
    inside = np.zeros(256, dtype=np.uint8)
    inside[list(_LETTERS)] = 1
    inside[128:] = 1
    return inside


def _words_of(runs: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Find the words of distinct runs: the words, each once, those of each run, and how many each has."""
    whole = pc.match_substring_regex(runs, "^[a-z]{2,}$")
    plain, others = runs.filter(whole), runs.filter(pc.invert(whole))
    find = re.compile(WORD).findall
    found = [find(text) for text in "\n".join(others.to_pylist()).lower().split("\n")] if len(others) else []
    rest = pa.array([word for words in found for word in words], pa.string())
    words = pc.unique(pa.concat_arrays([plain, rest]))
    among = np.asarray(whole, dtype=bool)
    counts = np.ones(len(runs), dtype=np.int64)
    counts[~among] = [len(words) for words in found]
    starts = np.cumsum(counts) - counts
    places = np.empty(int(counts.sum()), dtype=np.int32)
    alone = np.zeros(places.size, dtype=bool)
    alone[starts[among]] = True
    places[alone] = np.arange(len(plain), dtype=np.int32)  # distinct runs, so distinct words, and the first ones
    places[~alone] = np.asarray(pc.index_in(rest, value_set=words), dtype=np.int32)
    return words, places, counts


def _by_function(texts: pa.Array, tokenizer: str) -> Tokens:
    function = load_tokenizer(tokenizer)
    numbering: dict[str, int] = {}
    parts, lengths = [np.zeros(0, dtype=np.int32)], [0]
    for text in texts:
        try:
            found = function(text.as_py())
        except Exception as error:  # anybody's code
            raise OptionError(f"--tokenizer {tokenizer}: {type(error).__name__}: {error}") from error
        if not isinstance(found, (list, tuple)) or not all(isinstance(word, str) for word in found):
            raise OptionError(f"--tokenizer {tokenizer}: expected a list of words, found {type(found).__name__}")
        numbers = [numbering.setdefault(clean(word), len(numbering)) for word in found if word]
        parts.append(np.array(numbers, dtype=np.int32))
        lengths.append(len(numbers))
    return Tokens(pa.array(numbering, pa.string()), np.concatenate(parts), np.cumsum(lengths, dtype=np.int64))


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
