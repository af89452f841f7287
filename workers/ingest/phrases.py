"""Phrases of two words: count neighbouring words, and join the words of phrases.

Texts are read as tokens by the options of an ingest: words, their normal forms, and phrases.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.workers.ingest.chunks import read_chunk, read_table, tokens_of, write_table
from collapsium.workers.ingest.normal_forms import normalised, require_library
from collapsium.workers.ingest.tokenize import StopWords, Tokens, tokenize

JOIN = "_"  # Separator of the words of a phrase
FREQUENT = "frequent"  # Name of the table of words that phrases may consist of


@dataclass(frozen=True)
class Phrases:
    """Pairs of words that are phrases."""

    words: pa.Array  # Words that occur in phrases
    # Index of the first word times the number of words, plus index of the second; sorted; int64
    keys: npt.NDArray[np.int64]

    @staticmethod
    def of(first: pa.Array, second: pa.Array) -> Phrases:
        """Return the phrases of first and second words."""
        words = pc.unique(pa.concat_arrays([first, second])) if len(first) else pa.array([], pa.string())
        places = [np.asarray(pc.index_in(column, value_set=words), dtype=np.int64) for column in (first, second)]
        return Phrases(words, np.sort(places[0] * max(len(words), 1) + places[1]))


@functools.lru_cache(maxsize=1)
def named_phrases(address: str, name: str) -> Phrases:
    """Read phrases from a scratch folder."""
    table = read_table(Folder(address), name)
    return Phrases.of(*(table.column(column).combine_chunks() for column in ("first", "second")))


def without(tokens: Tokens, stops: StopWords) -> Tokens:
    """Return tokens without stop words."""
    keep = ~stops.dropped(tokens.words)[tokens.numbers]
    running = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])
    return Tokens(tokens.words, tokens.numbers[keep], running[tokens.offsets])


def joined_by(tokens: Tokens, stops: StopWords, phrases: Phrases) -> Tokens:
    """Return tokens without stop words, the words of phrases joined from the left, each word in at most one phrase."""
    tokens = without(tokens, stops)
    if tokens.numbers.size < 2 or not phrases.keys.size:
        return tokens
    place = pc.fill_null(pc.index_in(tokens.words, value_set=phrases.words), -1)
    keys = _keys(tokens, np.asarray(place, dtype=np.int64), len(phrases.words))
    at = np.minimum(np.searchsorted(phrases.keys, keys), phrases.keys.size - 1)
    hit = (keys >= 0) & (phrases.keys[at] == keys)
    # In a run of pairs that are all phrases, every second pair is joined.
    begins = np.maximum.accumulate(np.where(hit & ~np.concatenate([[False], hit[:-1]]), np.arange(hit.size), 0))
    joined = np.flatnonzero(hit & ((np.arange(hit.size) - begins) % 2 == 0))
    width = len(tokens.words)
    pairs, which = np.unique(
        tokens.numbers[joined].astype(np.int64) * width + tokens.numbers[joined + 1], return_inverse=True
    )
    both = (tokens.words.take(pa.array(index)) for index in (pairs // width, pairs % width))
    names = pc.binary_join_element_wise(*both, JOIN)
    # Words keep their numbers, because they precede phrases.
    words = pc.unique(pa.concat_arrays([tokens.words, names]))
    numbers = tokens.numbers.copy()
    numbers[joined] = np.asarray(pc.index_in(names, value_set=words), dtype=np.int32)[which]
    keep = np.ones(numbers.size, dtype=bool)
    keep[joined + 1] = False
    running = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])
    return Tokens(words, numbers[keep], running[tokens.offsets])


def _keys(tokens: Tokens, place: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
    """Return the key of each token and the next, -1 if one is unknown or they are of different texts."""
    places = place[tokens.numbers]
    first, second = places[:-1], places[1:]
    keys = np.where((first >= 0) & (second >= 0), first * width + second, -1)
    ends = tokens.offsets[1:-1]
    keys[ends[(ends > 0) & (ends < tokens.numbers.size)] - 1] = -1
    return keys


def count_pairs(scratch: Folder, name: str, stops: StopWords, parts: int) -> None:
    """Count pairs of neighbouring words in a chunk, and write the counts to several files."""
    frequent = read_table(scratch, FREQUENT).column("word").combine_chunks()
    chunk = read_chunk(scratch, name)
    tokens = without(tokens_of(chunk), stops)
    place = pc.fill_null(pc.index_in(tokens.words, value_set=frequent), -1)
    keys = _keys(tokens, np.asarray(place, dtype=np.int64), len(frequent)) if tokens.numbers.size > 1 else np.zeros(0)
    pairs, counts = np.unique(keys[keys >= 0].astype(np.int64), return_counts=True)
    for part in range(parts):
        inside = pairs % parts == part
        table = pa.table({"key": pairs[inside], "count": counts[inside].astype(np.int64)})
        write_table(scratch, f"{name}.pairs-{part:03d}", table)


def add_pairs(scratch: Folder, names: Sequence[str], part: int, least: int) -> pa.Table:
    """Return a part of the pairs with their counts over all chunks, without rare pairs."""
    tables = [read_table(scratch, f"{name}.pairs-{part:03d}") for name in names]
    keys, counts = (
        np.concatenate([np.asarray(table.column(name), dtype=np.int64) for table in tables])
        for name in ("key", "count")
    )
    pairs, index = np.unique(keys, return_inverse=True)
    sums = np.bincount(index, counts, pairs.size).astype(np.int64)
    return pa.table({"key": pairs[sums >= least], "count": sums[sums >= least]})


PHRASES = "phrases"  # Name of the table of phrases in the scratch folder


@dataclass(frozen=True)
class ReadRequest:
    """Options that all tasks of reading blocks share."""

    kind: str  # Format of the sources
    options: ReadOptions  # Fields and the tokenizer
    scratch: Folder  # Folder to which chunks are written
    numbered: bool = False  # Whether documents get their ids later, by number
    streams: bool = False  # Whether tokens are written in their order, because phrases are not known yet
    # Whether the words of the phrases in the scratch folder are joined, in tokens without `stops`
    phrases: bool = False
    # Words that are dropped; needed only with `phrases` or normal forms
    stops: StopWords = field(default_factory=StopWords)
    known: bool = False  # Whether the scratch folder has the ids of documents in the corpus
    skip: bool = False  # Whether documents in the corpus are skipped


def read_tokens(texts: pa.Array, request: ReadRequest) -> Tokens:
    """Return the tokens of texts, with joined phrases if the request names them."""
    phrases = named_phrases(request.scratch.address, PHRASES) if request.phrases else None
    return tokens_of_texts(texts, request.options, request.stops, phrases)


def tokens_of_texts(texts: pa.Array, options: ReadOptions, stops: StopWords, phrases: Phrases | None) -> Tokens:
    """Return the tokens of texts as words in their normal forms, with joined phrases."""
    tokens = tokenize(texts, options.tokenizer, options.word_rule)
    if options.normalise is not None:
        require_library(options.normalise, options.normalised_by)
        tokens = normalised(tokens, options.normalise, stops)
    return tokens if phrases is None else joined_by(tokens, stops, phrases)
