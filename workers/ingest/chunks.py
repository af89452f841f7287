"""Chunks of documents between two passes of an ingest: as token sequences or word-count pairs, and in a scratch folder.

Files are in Arrow's IPC format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.corpus.labels import SEGMENT_COLUMN, running
from collapsium.storage.corpus.list_columns import segment_bounds, segment_counts, segment_lists
from collapsium.storage.corpus.parquet import column_of
from collapsium.storage.io.folder import Folder
from collapsium.storage.printable import ShortRepr
from collapsium.workers.ingest.tokenize import Tokens


@dataclass(frozen=True, repr=False)
class Chunk(ShortRepr):
    """Documents whose words are numbered by the vocabulary of a block of text."""

    words: pa.Array  # The word of each number
    # First pair, or token, of each document, and the end of the last; int64 (documents + 1,)
    offsets: npt.NDArray[np.int64]
    # Words of pairs, ascending in each document or segment; or words of tokens, in the order of the text; int32
    numbers: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]  # Counts of pairs; ones for tokens; int32
    ids: pa.Array | None  # The documents' ids; None if the documents will be numbered
    # Further columns; ``segments`` are numbers of pairs, or of tokens
    extras: dict[str, pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.offsets.size - 1

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Names and types of its further columns."""
        return tuple((name, str(column.type)) for name, column in self.extras.items())

    @property
    def bounds(self) -> npt.NDArray[np.int64]:
        """Offsets of the segments, or of the documents if there are no segments."""
        segments = self.extras.get("segments")
        return self.offsets if segments is None else segment_bounds(segments)

    def write(self, folder: Folder, name: str) -> None:
        """Write the chunk as two files."""
        offsets = pa.array(self.offsets)
        ids = pa.nulls(len(self), pa.string()) if self.ids is None else self.ids
        columns = {
            "id": ids,
            "numbers": pa.LargeListArray.from_arrays(offsets, pa.array(self.numbers)),
            "counts": pa.LargeListArray.from_arrays(offsets, pa.array(self.counts)),
            **{f"extra-{name}": column for name, column in self.extras.items()},
        }
        write_table(folder, f"{name}.documents", pa.table(columns))
        write_table(folder, f"{name}.words", pa.table({"word": self.words}))


def read_chunk(folder: Folder, name: str) -> Chunk:
    """Read a chunk."""
    table = read_table(folder, f"{name}.documents")
    numbers, counts, ids = (column_of(table, name) for name in ("numbers", "counts", "id"))
    offsets = np.asarray(numbers.offsets, dtype=np.int64) if len(numbers) else np.zeros(1, dtype=np.int64)
    return Chunk(
        column_of(read_table(folder, f"{name}.words"), "word"),
        offsets,
        np.asarray(numbers.values, dtype=np.int32),
        np.asarray(counts.values, dtype=np.int32),
        None if len(ids) and ids.null_count else ids,
        {
            column.removeprefix("extra-"): column_of(table, column)
            for column in table.column_names
            if column.startswith("extra-")
        },
    )


def write_table(folder: Folder, name: str, table: pa.Table) -> None:
    """Write a table in Arrow's IPC format, lightly compressed."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    folder.write(name, memoryview(sink.getvalue()))


def read_table(folder: Folder, name: str) -> pa.Table:
    """Read a table that `write_table` wrote."""
    return pa.ipc.open_file(pa.BufferReader(folder.read(name))).read_all()


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
        extras = extras | {SEGMENT_COLUMN: segment_lists(segments, np.diff(offsets))}
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
    if SEGMENT_COLUMN in extras:
        segments = segment_counts(extras[SEGMENT_COLUMN])
        extras = extras | {SEGMENT_COLUMN: segment_lists(segments, np.diff(offsets))}
        offsets = offsets[running(segments)]
    numbers = (keys % width).astype(np.int32)
    return Chunk(chunk.words, offsets, numbers, counts.astype(np.int32), chunk.ids, extras)


def counts_of(chunk: Chunk) -> pa.Table:
    """Return the documents and tokens of each word of a chunk of pairs; segments of a document count once."""
    numbers, width = chunk.numbers, len(chunk.words)
    if SEGMENT_COLUMN in chunk.extras and width:
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
