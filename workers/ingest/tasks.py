"""The tasks of ingesting: blocks are read and their words counted, then chunks of documents become shards."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.building.chunks import read_chunk, read_table, write_table
from collapsium.storage.corpus.manifest import ShardRecord
from collapsium.storage.corpus.parquet import column_of, decode_table, read_part
from collapsium.storage.corpus.segments import COLUMN, running, segment_counts, segment_lists
from collapsium.storage.corpus.shard import Documents, encode
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.side_files.table import merged
from collapsium.storage.readers.texts.batches import read_batches
from collapsium.storage.readers.texts.blocks import Block
from collapsium.storage.readers.texts.gathering import Batch
from collapsium.workers.ingest.count import counted_of, counts_of, stream_of, tokens_of
from collapsium.workers.ingest.normal_forms import normalised, require_library
from collapsium.workers.ingest.phrases import joined_by, named_phrases
from collapsium.workers.ingest.stop_words import StopWords
from collapsium.workers.ingest.tokenize import tokenize

if TYPE_CHECKING:
    from collapsium.storage.corpus.corpus import ShardReference

KNOWN, WORDS, PHRASES = "known", "words", "phrases"  # tables in the scratch folder that all tasks may need
NAMED = 5  # ids that are there already, of a chunk, that are named


@dataclass(frozen=True)
class Asked:
    """What the tasks that read blocks share.

    Attributes
    ----------
    kind : str
        The sources' format.
    options : ReadOptions
        Fields and the tokenizer.
    scratch : Folder
        Where chunks are written.
    numbered : bool
        Whether documents get no ids yet.
    streams : bool
        Whether tokens are kept in their order, as phrases are still to be found.
    phrases : bool
        Whether words are joined by the phrases in the scratch folder, of tokens without `stops`.
    stops : StopWords
        Words that are left out; only needed where there are `phrases`, or words are normalised.
    known : bool
        Whether the scratch folder has the ids of documents that are there already.
    skip : bool
        Whether those documents are left out.
    """

    kind: str
    options: ReadOptions
    scratch: Folder
    numbered: bool = False
    streams: bool = False
    phrases: bool = False
    stops: StopWords = field(default_factory=StopWords)
    known: bool = False
    skip: bool = False


@dataclass(frozen=True)
class Note:
    """What the driver knows of a chunk.

    Attributes
    ----------
    name : str
        Its name in the scratch folder.
    ids : pyarrow.Array of string or None
        Its documents' ids.
    origins : tuple of (str, int)
        Files, and how many documents are from each.
    missing, replaced, skipped : int
        Documents without a text, with bytes that were not UTF-8, and left out as they are there already.
    there : tuple of str
        Some ids that are there already.
    seen : frozenset of str
        Fields that occur.
    tokens : int
        Words of its documents, before any cut.
    columns : tuple of (str, str)
        Names and types of its further columns.
    sided : bool
        Whether a table beside the chunk has what side files say of its documents.
    segments : int
        Segments of its documents; 0 where there are none.
    """

    name: str
    ids: pa.Array | None
    origins: tuple[tuple[str, int], ...]
    missing: int = 0
    replaced: int = 0
    skipped: int = 0
    there: tuple[str, ...] = ()
    seen: frozenset[str] = frozenset()
    tokens: int = 0
    columns: tuple[tuple[str, str], ...] = ()
    sided: bool = False
    segments: int = 0

    @property
    def documents(self) -> int:
        """How many it has."""
        return sum(count for _, count in self.origins)


@dataclass(frozen=True)
class BlockRead:
    """What reading a block leaves: notes of its chunks, and a table of its words' documents and tokens."""

    notes: tuple[Note, ...]
    counts: pa.Table


def read_block(number: int, block: Block, asked: Asked) -> BlockRead:
    """Read a block, tokenize it, and leave its documents in the scratch folder.

    Parameters
    ----------
    number : int
        Which block.
    block : tuple of Span
        Files, or parts of them.
    asked : Asked
        How.

    Returns
    -------
    BlockRead
        What the driver and the sum of counts need.
    """
    notes: list[Note] = []
    tables: list[pa.Table] = []
    for part, batch in enumerate(read_batches(block, asked.kind, asked.options, asked.numbered)):
        name = f"{number:07d}-{part:05d}"
        kept, there, skipped = _new_ones(batch, asked)
        tokens = tokenize(kept.texts, asked.options.tokenizer)
        if asked.options.normalise is not None:
            require_library(asked.options.normalise, asked.options.normalised_by)
            tokens = normalised(tokens, asked.options.normalise, asked.stops)
        if asked.phrases:
            tokens = joined_by(tokens, asked.stops, named_phrases(asked.scratch.address, PHRASES))
        chunk = stream_of(tokens, kept.ids, kept.extras, kept.segments)
        counted = counted_of(chunk)
        tables.append(counts_of(counted))
        (chunk if asked.streams else counted).write(asked.scratch, name)
        said = (kept.missing, kept.replaced, skipped, there, kept.seen)
        segments = 0 if kept.segments is None else len(kept.texts)
        notes.append(Note(name, kept.ids, kept.origins, *said, chunk.numbers.size, chunk.columns, segments=segments))
    return BlockRead(tuple(notes), merge_counts(tables))


def _new_ones(batch: Batch, asked: Asked) -> tuple[Batch, tuple[str, ...], int]:
    """Return the documents that are not there already, or all and a few ids that are."""
    if not asked.known or batch.ids is None:
        return batch, (), 0
    there = pc.is_in(batch.ids, value_set=_table(asked.scratch.address, KNOWN).column("id").combine_chunks())
    count = int(pc.sum(there).as_py() or 0)
    if not count:
        return batch, (), 0
    if asked.skip:
        return batch.take(pc.invert(there)), (), count
    return batch, tuple(batch.ids.filter(there)[:NAMED].to_pylist()), 0


@functools.lru_cache(maxsize=4)
def _table(address: str, name: str) -> pa.Table:
    return read_table(Folder(address), name)


def merge_counts(parts: Sequence[pa.Table | BlockRead]) -> pa.Table:
    """Add up words' documents and tokens."""
    tables = [part.counts if isinstance(part, BlockRead) else part for part in parts]
    if not tables:
        nothing = pa.array([], pa.int64())
        return pa.table({"word": pa.array([], pa.string()), "documents": nothing, "tokens": nothing})
    if len(tables) == 1:
        return tables[0]
    whole = pa.concat_tables(tables).combine_chunks()
    coded = whole.column("word").combine_chunks().dictionary_encode()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    place, count = np.asarray(coded.indices), len(coded.dictionary)
    sums = {
        name: np.bincount(place, np.asarray(whole.column(name)), count).astype(np.int64)  # exact below 2**53
        for name in ("documents", "tokens")
    }
    return pa.table({"word": coded.dictionary, **sums})


def notes_of(read: BlockRead) -> tuple[Note, ...]:
    """Return what the driver needs of a block."""
    return read.notes


def ids_of(reference: ShardReference) -> pa.Array:
    """Return the ids of a shard's documents."""
    path, data = read_part(reference.folder, reference.record)
    return column_of(decode_table(data, reference.record.documents, path), "id")


def leave_words(scratch: Folder, words: Sequence[str], stops: StopWords) -> None:
    """Leave the vocabulary where the tasks of the second pass find it; stop words keep their place alone."""
    spelled = pa.array(words, pa.string())
    left = pc.if_else(pa.array(stops.dropped(spelled)), pa.scalar(None, pa.string()), spelled)
    write_table(scratch, WORDS, pa.table({"word": left}))


@functools.lru_cache(maxsize=3)
def _numbered(address: str, name: str) -> Documents:
    """Read a chunk with the vocabulary's numbers, without the words that are not in it."""
    folder = Folder(address)
    chunk = read_chunk(folder, name)
    words = _table(address, WORDS).column("word").combine_chunks()
    place = pc.fill_null(pc.index_in(chunk.words, value_set=words), -1)
    numbers = np.asarray(place, dtype=np.int32)[chunk.numbers]
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
    if COLUMN in extras:
        extras[COLUMN] = segment_lists(segment_counts(extras[COLUMN]), np.diff(bounds))
    return Documents(ids, offsets, numbers, counts, extras)


def weigh_chunk(scratch: Folder, name: str) -> tuple[int, npt.NDArray[np.int32], bool]:
    """Count the tokens of a chunk that are left.

    Parameters
    ----------
    scratch : Folder
        Where it lies.
    name : str
        The chunk.

    Returns
    -------
    tokens : int
        All of them.
    starts : numpy.ndarray of int32
        Those before each document that has any.
    leads : bool
        Whether its first document has none.
    """
    lengths = _numbered(scratch.address, name).tokens
    starts = (np.cumsum(lengths) - lengths)[lengths > 0].astype(np.int32)
    return int(lengths.sum()), starts, bool(lengths[0] == 0)


@dataclass(frozen=True)
class Piece:
    """A chunk as a shard sees it.

    Attributes
    ----------
    name : str
        The chunk.
    before : int
        Tokens of the corpus before it.
    last : int
        Tokens before the last document before it that has any; 0 where there is none.
    numbering : tuple of (str, int, int)
        Of documents without ids, what goes before the number, the first number, and how many there are.
    sided : bool
        Whether a table beside it has what side files say of its documents.
    """

    name: str
    before: int
    last: int
    numbering: tuple[tuple[str, int, int], ...] = ()
    sided: bool = False


def shards_of(lengths: npt.NDArray[np.int64], piece: Piece, shard_tokens: int) -> npt.NDArray[np.int64]:
    """Return each document's shard: that of its first token, or of the document before it where it has none."""
    starts = piece.before + np.cumsum(lengths) - lengths
    found = np.where(lengths > 0, starts // shard_tokens, -1)
    shard: npt.NDArray[np.int64] = np.maximum(np.maximum.accumulate(found), piece.last // shard_tokens)
    return shard


def write_shard(
    folder: Folder, scratch: Folder, number: int, pieces: tuple[Piece, ...], shard_tokens: int, place: int, tagged: bool
) -> tuple[ShardRecord, int]:
    """Write a shard.

    Parameters
    ----------
    folder, scratch : Folder
        The corpus, and where the chunks lie.
    number : int
        Which of the shards that are written.
    pieces : tuple of Piece
        The chunks that may hold its documents.
    shard_tokens : int
        Tokens of a shard.
    place : int
        Which shard of the corpus it is.
    tagged : bool
        Whether the file's name says what it holds, so that no other content can ever stand in it.

    Returns
    -------
    record : ShardRecord
        The shard's row of the manifest.
    empty : int
        Documents without a word.
    """
    parts = []
    for piece in pieces:
        documents = _numbered(scratch.address, piece.name)
        mine = np.flatnonzero(shards_of(documents.tokens, piece, shard_tokens) == number)
        if not mine.size:
            continue
        if piece.numbering:
            documents = replace(documents, ids=ids_of_numbers(piece.numbering))
        if piece.sided:
            table = read_table(scratch, sided(piece.name))
            beside = {column: column_of(table, column) for column in table.column_names}
            documents = replace(documents, extras=merged(documents.extras, beside))
        parts.append(documents.slice(int(mine[0]), int(mine[-1]) + 1))
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


def ids_of_numbers(numbering: Sequence[tuple[str, int, int]]) -> pa.Array:
    """Return the ids of numbered documents."""
    return pa.array(
        [f"{head}{n}" for head, first, count in numbering for n in range(first, first + count)], pa.string()
    )


def pair_up(scratch: Folder, name: str, stops: StopWords) -> pa.Table:
    """Join the phrases of a chunk of tokens, and leave it as pairs under the name that `paired` gives.

    Parameters
    ----------
    scratch : Folder
        Where it and the phrases lie.
    name : str
        The chunk.
    stops : StopWords
        Words that are left out.

    Returns
    -------
    pyarrow.Table
        Its words' documents and tokens.
    """
    chunk = read_chunk(scratch, name)
    tokens = joined_by(tokens_of(chunk), stops, named_phrases(scratch.address, PHRASES))
    segments = segment_counts(chunk.extras[COLUMN]) if COLUMN in chunk.extras else None
    counted = counted_of(stream_of(tokens, chunk.ids, chunk.extras, segments))
    counted.write(scratch, paired(name))
    return counts_of(counted)


def sided(name: str) -> str:
    """Return the name of the table of what side files say of a chunk's documents."""
    return f"{name}.sides"


def paired(name: str) -> str:
    """Return the name of a chunk whose phrases are joined."""
    return f"{name}-paired"
