"""Chunks of documents as token sequences and as word-count pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.building.chunks import Chunk
from collapsium.storage.corpus.list_columns import segment_counts, segment_lists
from collapsium.storage.corpus.segments import COLUMN, running
from collapsium.workers.ingest.tokenize import Tokens


def stream_of(
    tokens: Tokens,
    ids: pa.Array | None,
    extras: dict[str, pa.Array],
    segments: npt.NDArray[np.int64] | None = None,
) -> Chunk:
    """Return a chunk of tokens in their order, with a sorted vocabulary."""
    order = pc.sort_indices(tokens.words)
    rank = np.empty(len(order), dtype=np.int32)
    rank[np.asarray(order)] = np.arange(len(order), dtype=np.int32)
    words, offsets = tokens.words.take(order), tokens.offsets
    if segments is not None:
        extras = extras | {COLUMN: segment_lists(segments, np.diff(offsets))}
        offsets = offsets[running(segments)]
    ones = np.ones(tokens.numbers.size, dtype=np.int32)
    return Chunk(words, offsets, rank[tokens.numbers], ones, ids, extras)


def tokens_of(chunk: Chunk) -> Tokens:
    """Return the tokens of a chunk in their order, by document or by segment."""
    return Tokens(chunk.words, chunk.numbers, chunk.bounds)


def counted_of(chunk: Chunk) -> Chunk:
    """Return a chunk of word-count pairs from one of tokens, by document or by segment."""
    width, bounds = max(len(chunk.words), 1), chunk.bounds
    owner = np.repeat(np.arange(bounds.size - 1, dtype=np.int64), np.diff(bounds))
    keys, counts = np.unique(owner * width + chunk.numbers, return_counts=True)
    offsets = np.searchsorted(keys, np.arange(bounds.size, dtype=np.int64) * width).astype(np.int64)
    extras = chunk.extras
    if COLUMN in extras:
        segments = segment_counts(extras[COLUMN])
        extras = extras | {COLUMN: segment_lists(segments, np.diff(offsets))}
        offsets = offsets[running(segments)]
    numbers = (keys % width).astype(np.int32)
    return Chunk(chunk.words, offsets, numbers, counts.astype(np.int32), chunk.ids, extras)


def counts_of(chunk: Chunk) -> pa.Table:
    """Return the documents and tokens of each word of a chunk of pairs; segments of a document count once."""
    numbers, width = chunk.numbers, len(chunk.words)
    if COLUMN in chunk.extras and width:
        owner = np.repeat(np.arange(len(chunk), dtype=np.int64), np.diff(chunk.offsets))
        numbers = np.unique(owner * width + numbers) % width
    documents = np.bincount(numbers, minlength=width)
    # Sums of integers far below 2**53 are exact.
    tokens = np.bincount(chunk.numbers, chunk.counts, width).astype(np.int64)
    # Words that occur in phrases alone have no documents.
    occur = np.flatnonzero(documents)
    columns = {"documents": documents[occur].astype(np.int64), "tokens": tokens[occur]}
    return pa.table({"word": chunk.words.take(pa.array(occur)), **columns})


def sum_counts(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the sums of the tables that `counts_of` returns."""
    if not tables:
        no_counts = pa.array([], pa.int64())
        return pa.table({"word": pa.array([], pa.string()), "documents": no_counts, "tokens": no_counts})
    if len(tables) == 1:
        return tables[0]
    joined = pa.concat_tables(tables).combine_chunks()
    coded = joined.column("word").combine_chunks().dictionary_encode()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    place, count = np.asarray(coded.indices), len(coded.dictionary)
    # Sums of integers below 2**53 are exact.
    sums = {
        name: np.bincount(place, np.asarray(joined.column(name)), count).astype(np.int64)
        for name in ("documents", "tokens")
    }
    return pa.table({"word": coded.dictionary, **sums})


def ids_of_numbers(numbering: Sequence[tuple[str, int, int]]) -> pa.Array:
    """Return the ids of numbered documents."""
    return pa.array(
        [f"{head}{n}" for head, first, count in numbering for n in range(first, first + count)], pa.string()
    )
