"""Tasks of ingesting: read blocks and count their words, then write chunks of documents as shards."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.corpus.labels import SEGMENT_COLUMN, running
from collapsium.storage.corpus.list_columns import segment_counts, segment_lists
from collapsium.storage.corpus.manifest import ShardRecord
from collapsium.storage.corpus.parquet import UNKNOWN_SHARE, column_of, decode_table, read_part
from collapsium.storage.corpus.shard import Documents, encode
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.read_options import Guess
from collapsium.storage.readers.side_files import merged
from collapsium.storage.readers.texts.blocks import Block, read_batches
from collapsium.storage.readers.texts.fields import DateTally
from collapsium.storage.readers.texts.gathering import Batch
from collapsium.workers.ingest.chunks import (
    Chunk,
    counted_of,
    counts_of,
    ids_of_numbers,
    read_chunk,
    read_table,
    stream_of,
    sum_counts,
    tokens_of,
    write_table,
)
from collapsium.workers.ingest.dates import counted_dates, ordered_dates
from collapsium.workers.ingest.phrases import PHRASES, ReadRequest, joined_by, named_phrases, read_tokens, without
from collapsium.workers.ingest.tokenize import StopWords
from collapsium.workers.kernels import text as kernels
from collapsium.workers.kernels.text import CountedPairs, TextTokens

if TYPE_CHECKING:
    from collapsium.storage.corpus.corpus import ShardReference


KNOWN, WORDS = "known", "words"  # Names of tables in the scratch folder: ids in the corpus, and vocabulary
LEFT_OUT = "left_out"  # Column of the vocabulary's table that marks words outside it that are left out on purpose
DATE = "date"  # Column of the dates
MAX_NAMED_IDS = 5  # Most ids of a chunk that are named because the corpus has them already


@dataclass(frozen=True)
class ChunkRecord:
    """Record of a chunk for the driver."""

    name: str  # Name in the scratch folder
    ids: pa.Array | None  # Ids of the documents
    origins: tuple[tuple[str, int], ...]  # Files, and the number of documents from each
    # Documents without a text, with bytes that were not UTF-8, and skipped because the corpus has them
    missing: int = 0
    replaced: int = 0
    skipped: int = 0
    known_ids: tuple[str, ...] = ()  # Some ids that the corpus has already
    seen: frozenset[str] = frozenset()  # Fields of the documents
    tokens: int = 0  # Tokens of the documents, before the vocabulary is pruned
    columns: tuple[tuple[str, str], ...] = ()  # Names and types of further columns
    sided: bool = False  # Whether a separate table has the documents' metadata from side files
    segments: int = 0  # Segments of the documents; 0 where there are none
    attachments: int = 0  # Encoded attachments that were left out
    # Numbers of the documents' dates by the way in which they were read
    dates: DateTally = field(default_factory=DateTally)
    guesses: tuple[Guess, ...] = ()  # Guesses about the files

    @property
    def documents(self) -> int:
        """Number of documents."""
        return sum(count for _, count in self.origins)


@dataclass(frozen=True)
class BlockRead:
    """Result of reading a block: records of its chunks, and the documents and tokens of its words."""

    records: tuple[ChunkRecord, ...]
    counts: pa.Table


def read_block(number: int, block: Block, request: ReadRequest) -> BlockRead:
    """Read and tokenize a block, and write its documents to the scratch folder."""
    records, tables = list[ChunkRecord](), list[pa.Table]()
    for part, batch in enumerate(read_batches(block, request.kind, request.options, request.numbered)):
        name = f"{number:07d}-{part:05d}"
        documents, known_ids, skipped = _new_documents(batch, request)
        if (order := request.options.date_order) is not None:
            dates = ordered_dates(documents.extras[DATE], order)
            documents = replace(documents, extras={**documents.extras, DATE: dates})
        tokens = read_tokens(documents.texts, request)
        chunk = stream_of(tokens, documents.ids, documents.extras, documents.segments)
        counted = counted_of(chunk)
        tables.append(counts_of(counted))
        (chunk if request.streams else counted).write(request.scratch, name)
        segments = 0 if documents.segments is None else len(documents.texts)
        records.append(
            ChunkRecord(
                name,
                documents.ids,
                documents.origins,
                missing=documents.missing,
                replaced=documents.replaced,
                skipped=skipped,
                known_ids=known_ids,
                seen=documents.seen,
                tokens=chunk.numbers.size,
                columns=chunk.columns,
                segments=segments,
                attachments=documents.attachments,
                dates=counted_dates(documents.extras[DATE]) if DATE in documents.extras else DateTally(),
                guesses=documents.guesses,
            )
        )
    return BlockRead(tuple(records), sum_counts(tables))


def _new_documents(batch: Batch, request: ReadRequest) -> tuple[Batch, tuple[str, ...], int]:
    """Return a batch without documents of the corpus and their number, or all documents and a few ids of the corpus."""
    if not request.known or batch.ids is None:
        return batch, (), 0
    is_known = pc.is_in(batch.ids, value_set=column_of(_table(request.scratch.address, KNOWN), "id"))
    count = int(pc.sum(is_known).as_py() or 0)
    if not count:
        return batch, (), 0
    if request.skip:
        return batch.take(pc.invert(is_known)), (), count
    return batch, tuple(batch.ids.filter(is_known)[:MAX_NAMED_IDS].to_pylist()), 0


@functools.lru_cache(maxsize=4)
def _table(address: str, name: str) -> pa.Table:
    return read_table(Folder(address), name)


def merge_counts(parts: Sequence[pa.Table | BlockRead]) -> pa.Table:
    """Return the sums of words' documents and tokens."""
    return sum_counts([part.counts if isinstance(part, BlockRead) else part for part in parts])


def chunk_records(read: BlockRead) -> tuple[ChunkRecord, ...]:
    """Return the records of a block's chunks."""
    return read.records


def ids_of(reference: ShardReference) -> pa.Array:
    """Return the ids of a shard's documents."""
    path, data = read_part(reference.folder, reference.record)
    return column_of(decode_table(data, reference.record.documents, path), "id")


def write_vocabulary(scratch: Folder, words: Sequence[str], stops: StopWords, left_out: pa.Array | None = None) -> None:
    """Write the vocabulary for the tasks of the second pass; stop words keep their number, without their spelling.

    With `left_out`, the words that are left out on purpose, the tasks add each document's share of unknown words.
    """
    column = pa.array(words, pa.string())
    columns = {"word": pc.if_else(pa.array(stops.dropped(column)), pa.scalar(None, pa.string()), column)}
    if left_out is not None:
        marks = np.arange(len(column) + len(left_out)) >= len(column)
        columns = {"word": pa.concat_arrays([columns["word"], left_out]), LEFT_OUT: pa.array(marks)}
    write_table(scratch, WORDS, pa.table(columns))


@functools.lru_cache(maxsize=3)
def _numbered(address: str, name: str) -> Documents:
    """Return a chunk with the vocabulary's word ids, without other words."""
    chunk, words = read_chunk(Folder(address), name), _table(address, WORDS)
    rows = pc.index_in(chunk.words, value_set=words.column("word").combine_chunks())
    place = np.array(pc.fill_null(rows, -1), dtype=np.int32)
    if LEFT_OUT not in words.column_names:
        return documents_of(chunk, place)
    unknown = place == -1
    place[place >= pc.sum(pc.invert(words.column(LEFT_OUT)), min_count=0).as_py()] = -1
    documents = documents_of(chunk, place)
    missed = np.diff(running(np.where(unknown[chunk.numbers], chunk.counts, 0))[chunk.offsets])
    tokens = missed + documents.tokens
    share = pa.array((missed / np.maximum(tokens, 1)).astype(np.float32), mask=tokens == 0)
    return replace(documents, extras={**documents.extras, UNKNOWN_SHARE: share})


def documents_of(chunk: Chunk, place: npt.NDArray[np.int32]) -> Documents:
    """Return a chunk of pairs as documents by the vocabulary's word ids: `place` of each word, negative to drop it."""
    numbers = place[chunk.numbers]
    keep = numbers >= 0
    before = running(keep)
    bounds, offsets = before[chunk.bounds], before[chunk.offsets]
    numbers, counts = numbers[keep], chunk.counts[keep]
    owner = np.repeat(np.arange(bounds.size - 1), np.diff(bounds))
    if np.any((np.diff(numbers) < 0) & (np.diff(owner) == 0)):
        order = np.lexsort((numbers, owner))
        numbers, counts = numbers[order], counts[order]
    ids = pa.nulls(len(chunk), pa.string()) if chunk.ids is None else chunk.ids
    extras = dict(chunk.extras)
    if SEGMENT_COLUMN in extras:
        extras[SEGMENT_COLUMN] = segment_lists(segment_counts(extras[SEGMENT_COLUMN]), np.diff(bounds))
    return Documents(ids, offsets, numbers, counts, extras)


def count_chunk_tokens(scratch: Folder, name: str) -> tuple[int, npt.NDArray[np.int32], bool]:
    """Return the number and the positions of a chunk's tokens in the vocabulary."""
    lengths = _numbered(scratch.address, name).tokens
    starts = (np.cumsum(lengths) - lengths)[lengths > 0].astype(np.int32)
    return int(lengths.sum()), starts, bool(lengths[0] == 0)


@dataclass(frozen=True)
class PlacedChunk:
    """A chunk with its position in the corpus."""

    name: str  # The chunk
    before: int  # Tokens of the corpus before it
    last: int  # Tokens of the corpus before the last document with tokens before the chunk; 0 where there is none
    # For documents without ids: prefix, first number, and number of documents
    numbering: tuple[tuple[str, int, int], ...] = ()
    sided: bool = False  # Whether a separate table has the documents' metadata from side files


def shards_of(lengths: npt.NDArray[np.int64], chunk: PlacedChunk, shard_tokens: int) -> npt.NDArray[np.int64]:
    """Return each document's shard: the shard of its first token, or of the document before if it has no tokens."""
    starts = chunk.before + np.cumsum(lengths) - lengths
    by_token = np.where(lengths > 0, starts // shard_tokens, -1)
    shard: npt.NDArray[np.int64] = np.maximum(np.maximum.accumulate(by_token), chunk.last // shard_tokens)
    return shard


def write_shard(
    folder: Folder,
    scratch: Folder,
    number: int,
    chunks: tuple[PlacedChunk, ...],
    shard_tokens: int,
    place: int,
    tagged: bool,
) -> tuple[ShardRecord, int]:
    """Write a shard of the corpus; return its record for the manifest, and its number of documents without a word."""
    parts = []
    for chunk in chunks:
        documents = _numbered(scratch.address, chunk.name)
        rows = np.flatnonzero(shards_of(documents.tokens, chunk, shard_tokens) == number)
        if not rows.size:
            continue
        if chunk.numbering:
            documents = replace(documents, ids=ids_of_numbers(chunk.numbering))
        if chunk.sided:
            table = read_table(scratch, side_table(chunk.name))
            metadata = {column: column_of(table, column) for column in table.column_names}
            documents = replace(documents, extras=merged(documents.extras, metadata))
        parts.append(documents.slice(int(rows[0]), int(rows[-1]) + 1))
    documents = Documents.join(parts)
    data = encode(documents)
    record = ShardRecord(
        file="",
        documents=len(documents),
        pairs=documents.words.size,
        tokens=int(documents.counts.sum(dtype=np.int64)),
        sha256=hashlib.sha256(data).hexdigest(),
        ids_sha256=documents.ids_sha256(),
    )
    file = f"documents/part-{place:05d}{'-' + record.sha256[:12] if tagged else ''}.parquet"
    folder.write(file, data)
    return record.model_copy(update={"file": file}), int((np.diff(documents.offsets) == 0).sum())


def join_phrases(scratch: Folder, name: str, stops: StopWords) -> pa.Table:
    """Join the phrases of a chunk of tokens, write it as pairs named by `phrase_chunk`, and return its counts."""
    chunk = read_chunk(scratch, name)
    tokens = joined_by(tokens_of(chunk), stops, named_phrases(scratch.address, PHRASES))
    segments = segment_counts(chunk.extras[SEGMENT_COLUMN]) if SEGMENT_COLUMN in chunk.extras else None
    counted = counted_of(stream_of(tokens, chunk.ids, chunk.extras, segments))
    counted.write(scratch, phrase_chunk(name))
    return counts_of(counted)


def side_table(name: str) -> str:
    """Return the name of the table of a chunk's metadata from side files."""
    return f"{name}.sides"


def phrase_chunk(name: str) -> str:
    """Return the name of a chunk with joined phrases."""
    return f"{name}-paired"


Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WordPairs:
    """Words to count, and those pairs of them whose co-occurrence is counted."""

    words: int  # Number of words
    keys: Ints  # Ascending; ``first * words + second`` with ``first < second`` for each pair; int64 (pairs,)

    @staticmethod
    def within(groups: Sequence[Ints], words: int) -> WordPairs:
        """Return all pairs of two words of the same group; arrays of `groups` have a row for each group."""
        keys = [np.zeros(0, dtype=np.int64)]
        for rows in groups:
            first, second = np.triu_indices(rows.shape[1], 1)
            low, high = np.minimum(rows[:, first], rows[:, second]), np.maximum(rows[:, first], rows[:, second])
            keys.append((low.astype(np.int64) * words + high)[low < high])
        return WordPairs(words, np.unique(np.concatenate(keys)))

    def positions(self, first: Ints, second: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the position of each pair in `keys`, and whether it is there."""
        keys = np.minimum(first, second) * self.words + np.maximum(first, second)
        positions = np.searchsorted(self.keys, keys)
        positions[positions == self.keys.size] = 0
        is_known = self.keys[positions] == keys if self.keys.size else np.zeros(keys.shape, dtype=bool)
        return positions, is_known

    @cached_property
    def by_word(self) -> CountedPairs:
        """The pairs, listed for each of their two words."""
        first, second = self.keys // self.words, self.keys % self.words
        words = np.concatenate([first, second])
        order = np.argsort(words, kind="stable")
        start = np.concatenate([[0], np.cumsum(np.bincount(words, minlength=self.words))]).astype(np.int64)
        partner = np.concatenate([second, first])[order]
        return CountedPairs(start, partner, np.tile(np.arange(self.keys.size), 2)[order])


@dataclass(frozen=True)
class WindowCounts:
    """Numbers of windows; they add over texts."""

    # All texts, and all windows
    texts: int
    windows: int
    word: Ints  # Windows with each word; int64 (words,)
    pair: Ints  # Windows with both words of each pair of `WordPairs.keys`; int64 (pairs,)

    @staticmethod
    def none(pairs: WordPairs) -> WindowCounts:
        """Return the counts of no texts."""
        return WindowCounts(0, 0, np.zeros(pairs.words, np.int64), np.zeros(pairs.keys.size, np.int64))

    def __add__(self, other: WindowCounts) -> WindowCounts:
        return WindowCounts(
            self.texts + other.texts, self.windows + other.windows, self.word + other.word, self.pair + other.pair
        )

    def __sizeof__(self) -> int:
        return self.word.nbytes + self.pair.nbytes


@dataclass(frozen=True)
class WindowRequest:
    """Words to count in the windows of texts, and options of reading the texts."""

    words: pa.Array  # The words, by their numbers
    pairs: WordPairs  # Pairs of them
    sizes: tuple[int, ...]  # Sizes of windows, in tokens
    reading: ReadRequest  # Options of reading
    by_segment: bool = False  # Whether each segment is a text of its own, which no window leaves


def count_block(block: Block, request: WindowRequest) -> tuple[WindowCounts, ...]:
    """Count words and pairs in the windows of a block of texts, without stop words."""
    reading = request.reading
    counts = [WindowCounts.none(request.pairs) for _ in request.sizes]
    for batch in read_batches(block, reading.kind, reading.options, reading.numbered):
        tokens = without(read_tokens(batch.texts, reading), reading.stops)
        place = np.asarray(pc.fill_null(pc.index_in(tokens.words, value_set=request.words), -1), dtype=np.int64)
        offsets = tokens.offsets
        if batch.segments is not None and not request.by_segment:
            offsets = offsets[running(batch.segments)]
        for number, size in enumerate(request.sizes):
            counts[number] += count_windows(place[tokens.numbers], offsets, request.pairs, size)
    return tuple(counts)


def count_windows(
    numbers: Ints, offsets: Ints, pairs: WordPairs, size: int | None, *, exact: bool = False
) -> WindowCounts:
    """Count words and pairs in all windows of `size` consecutive tokens of each text.

    A text with fewer tokens than `size` is one window, an empty one too.
    """
    counts = WindowCounts.none(pairs)
    texts = TextTokens(np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(numbers, np.int64))
    windows = kernels.count_windows(texts, pairs.by_word, size or 0, int(exact), counts.word, counts.pair)
    return replace(counts, texts=offsets.size - 1, windows=windows)
