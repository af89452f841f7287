"""Chunks of documents: tokens in their order, and the pairs that are counted of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.building.chunks import Chunk
from collapsium.storage.corpus.segments import COLUMN, running, segment_counts, segment_lists
from collapsium.workers.ingest.tokenize import Tokens


def stream_of(
    tokens: Tokens,
    ids: pa.Array | None,
    extras: dict[str, pa.Array],
    segments: npt.NDArray[np.int64] | None = None,
) -> Chunk:
    """Make a chunk of tokens in their order, its vocabulary sorted.

    Parameters
    ----------
    tokens : Tokens
        Those of each document, or of each segment.
    ids, extras
        As for `Chunk`; segments that are among the columns give way to `segments`.
    segments : numpy.ndarray of int64, shape (documents,), optional
        How many segments each document has; by default there are none.

    Returns
    -------
    Chunk
        With a column of segments, where there are any.
    """
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
    """Return the tokens of a chunk in their order, those of each document or of each segment."""
    return Tokens(chunk.words, chunk.numbers, chunk.bounds)


def counted_of(chunk: Chunk) -> Chunk:
    """Make pairs of a chunk's tokens, in each document or in each segment."""
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
    """Count the documents and tokens of each word of a chunk of pairs; a word of several segments has one document."""
    numbers, width = chunk.numbers, len(chunk.words)
    if COLUMN in chunk.extras and width:
        owner = np.repeat(np.arange(len(chunk), dtype=np.int64), np.diff(chunk.offsets))
        numbers = np.unique(owner * width + numbers) % width
    documents = np.bincount(numbers, minlength=width)
    # Sums of whole numbers far below 2**53 are exact.
    tokens = np.bincount(chunk.numbers, chunk.counts, width).astype(np.int64)
    occur = np.flatnonzero(documents)  # a word may live on in phrases alone
    columns = {"documents": documents[occur].astype(np.int64), "tokens": tokens[occur]}
    return pa.table({"word": chunk.words.take(pa.array(occur)), **columns})
