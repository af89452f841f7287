"""The two passes of ingesting texts: blocks are read and their words counted, then chunks become shards.

Blocks, the order of sums, pruning and shards depend only on the sources and the options, so the corpus has the same
bits for any executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.pipeline.executors.base import Executor, Future, in_order
from collapsium.storage.building.ingest_record import Phrasing
from collapsium.storage.corpus.manifest import ShardRecord
from collapsium.storage.corpus.writer import even_shard_tokens_of
from collapsium.storage.errors import InputError
from collapsium.storage.io.folder import Folder
from collapsium.storage.printable import ShortRepr
from collapsium.storage.readers.side_files import Sides
from collapsium.storage.readers.texts.blocks import Block
from collapsium.storage.units import Counting
from collapsium.workers import special_functions as special
from collapsium.workers.ingest import tasks as reading
from collapsium.workers.ingest.chunks import ids_of_numbers, write_table
from collapsium.workers.ingest.phrases import FREQUENT, PHRASES, ReadRequest, add_pairs, count_pairs
from collapsium.workers.ingest.stop_words import StopWords
from collapsium.workers.ingest.tasks import ChunkRecord, PlacedChunk

Ints = npt.NDArray[np.int64]


# Sizes of tasks, which bound memory: tables that a task adds, tokens of a part of pairs.
TABLES_PER_SUM = 8
TOKENS_PER_PART = 8_000_000
MAX_PARTS = 64


@dataclass(frozen=True, repr=False)
class Counted(ShortRepr):
    """Result of the first pass: records of all chunks, in order, and a sorted table of words with their counts."""

    notes: list[ChunkRecord]
    words: pa.Table
    empty: tuple[ChunkRecord, ...] = ()  # Chunks whose documents were all left out

    @property
    def every(self) -> list[ChunkRecord]:
        """The records of all chunks."""
        return [*self.notes, *self.empty]

    @property
    def documents(self) -> int:
        """Number of documents."""
        return sum(note.documents for note in self.notes)

    def column(self, name: str) -> Ints:
        """Return ``documents`` or ``tokens`` of each word."""
        return np.asarray(self.words.column(name), dtype=np.int64)

    @property
    def spelled(self) -> pa.Array:
        """The words."""
        return self.words.column("word").combine_chunks()


class Tree:
    """Adds tables of counts as they arrive, in a tree that depends only on their order."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._levels: list[list[Future[pa.Table]]] = []

    def add(self, future: Future[pa.Table], level: int = 0) -> None:
        """Add the future of a table."""
        while len(self._levels) <= level:
            self._levels.append([])
        waiting = self._levels[level]
        waiting.append(future)
        if len(waiting) == TABLES_PER_SUM:
            self._levels[level] = []
            self.add(self._executor.submit(reading.merge_counts, waiting), level + 1)

    def total(self) -> pa.Table:
        """Return the sum, sorted by word."""
        rest = [future for level in self._levels for future in level]
        table = self._executor.collect([self._executor.submit(reading.merge_counts, rest)])[0]
        return table.take(pc.sort_indices(table.column("word")))


def read_all(
    executor: Executor,
    blocks: Iterable[Block],
    request: ReadRequest,
    progress: Counting,
    judge: Callable[[ChunkRecord], None],
) -> Counted:
    """Read all blocks."""
    notes: list[ChunkRecord] = []
    tree = Tree(executor)
    documents = 0

    def begun() -> Iterator[Future[tuple[ChunkRecord, ...]]]:
        for number, block in enumerate(blocks):
            read = executor.submit(reading.read_block, number, block, request)
            tree.add(read)
            yield executor.submit(reading.chunk_records, read)

    for records in in_order(executor, begun()):
        for note in records:
            judge(note)
            documents += note.documents
            notes.append(note)
        progress(documents)
    empty = tuple(note for note in notes if not note.documents)
    return Counted([note for note in notes if note.documents], tree.total(), empty)


def find_phrases(
    executor: Executor, scratch: Folder, counted: Counted, stops: StopWords, phrasing: Phrasing
) -> tuple[Phrasing, Counted]:
    """Find phrases of two words, and join them.

    A pair a b that occurs n_ab times, among n tokens of v words, has the score ln(n_ab n / (n_a n_b)) / -ln(n_ab / n)
    with ``npmi``, or (n_ab - minimum) v / (n_a n_b) with ``count``.

    Returns phrasing: The score with the phrases; counted: Records and counts of the chunks whose phrases are joined
    """
    words, tokens = counted.spelled, counted.column("tokens")
    tokens = np.where(stops.dropped(words), 0, tokens)
    frequent = tokens >= max(phrasing.least, 1)
    names = [note.name for note in counted.notes]
    write_table(scratch, FREQUENT, pa.table({"word": words.filter(pa.array(frequent))}))
    parts = min(max(int(tokens.sum()) // TOKENS_PER_PART, 1), MAX_PARTS)
    for _ in in_order(executor, (executor.submit(count_pairs, scratch, name, stops, parts) for name in names)):
        pass
    sums = (executor.submit(add_pairs, scratch, names, part, max(phrasing.least, 1)) for part in range(parts))
    pairs = pa.concat_tables(list(in_order(executor, sums)))
    keys, counts = (np.asarray(column, dtype=np.int64) for column in pairs.columns)
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    frequent_words, of = words.filter(pa.array(frequent)), tokens[frequent]
    first, second = keys // max(len(frequent_words), 1), keys % max(len(frequent_words), 1)
    total, kinds = int(tokens.sum()), int((tokens > 0).sum())
    score = phrase_scores(phrasing, counts, of[first], of[second], total, kinds)
    chosen = score > phrasing.threshold
    sides = [frequent_words.take(pa.array(side[chosen])) for side in (first, second)]
    write_table(scratch, PHRASES, pa.table({"first": sides[0], "second": sides[1]}))
    tree = Tree(executor)

    def joined() -> Iterator[Future[int]]:
        for name in names:
            table = executor.submit(reading.join_phrases, scratch, name, stops)
            tree.add(table)
            yield executor.submit(_rows, table)

    for _ in in_order(executor, joined()):
        pass
    named = tuple(zip(sides[0].to_pylist(), sides[1].to_pylist(), strict=True))
    notes = [replace(note, name=reading.phrase_chunk(note.name)) for note in counted.notes]
    return Phrasing(phrasing.score, phrasing.least, phrasing.threshold, named), Counted(
        notes, tree.total(), counted.empty
    )


def _rows(table: pa.Table) -> int:
    return int(table.num_rows)


def phrase_scores(
    phrasing: Phrasing, pairs: Ints, first: Ints, second: Ints, tokens: int, words: int
) -> npt.NDArray[np.float64]:
    """Return the scores of pairs of words; see `find_phrases`."""
    if phrasing.score == "count":
        return (pairs - phrasing.least) / first / second * words
    share = pairs / tokens
    with np.errstate(divide="ignore", invalid="ignore"):
        score = special.log(share / ((first / tokens) * (second / tokens))) / -special.log(share)
    return np.where(pairs == tokens, 0.0, score)


def write_shards(
    executor: Executor,
    folder: Folder,
    scratch: Folder,
    notes: Sequence[ChunkRecord],
    numberings: Sequence[tuple[tuple[str, int, int], ...]],
    shard_tokens: int | None,
    behind: int | None = None,
) -> tuple[list[ShardRecord], int]:
    """Write the chunks' documents as shards, with the vocabulary in the scratch folder.

    Returns rows: Rows of the manifest; empty: Number of documents without a word
    """
    weighed = (executor.submit(reading.count_chunk_tokens, scratch, note.name) for note in notes)
    weights = list(in_order(executor, weighed))
    size = shard_tokens or even_shard_tokens_of(sum(tokens for tokens, _, _ in weights))
    plan: dict[int, list[PlacedChunk]] = {}
    before = last = 0
    for note, numbering, (tokens, starts, leads) in zip(notes, numberings, weights, strict=True):
        piece = PlacedChunk(note.name, before, last, numbering, note.sided)
        shards = set(np.unique((before + starts.astype(np.int64)) // size).tolist()) | (
            {last // size} if leads else set()
        )
        for shard in shards:
            plan.setdefault(shard, []).append(piece)
        last = before + int(starts[-1]) if starts.size else last
        before += tokens
    written = (
        executor.submit(
            reading.write_shard, folder, scratch, shard, tuple(plan[shard]), size, place, behind is not None
        )
        for place, shard in enumerate(sorted(plan), start=behind or 0)
    )
    results = list(in_order(executor, written))
    return [row for row, _ in results], sum(empty for _, empty in results)


def write_side_tables(
    scratch: Folder,
    counted: Counted,
    numberings: Sequence[tuple[tuple[str, int, int], ...]],
    sides: Sides | None,
) -> tuple[Counted, int]:
    """Write the labels and covariates of each chunk's documents to the scratch folder, for the tasks of the shards.

    Returns counted: Records of the chunks with the further columns; unmatched: Number of rows of side files whose id no
    document has
    """
    if sides is None:
        return counted, 0
    notes, first = [], 0
    for note, numbering in zip(counted.notes, numberings, strict=True):
        ids = ids_of_numbers(numbering) if note.ids is None else note.ids
        write_table(scratch, reading.side_table(note.name), pa.table(sides.of(ids, first)))
        types = {name: str(kind) for name, kind in sides.columns.items()}
        notes.append(replace(note, sided=True, columns=tuple({**dict(note.columns), **types}.items())))
        first += note.documents
    return replace(counted, notes=notes), sides.judge(first)


def require_distinct_ids(notes: Sequence[ChunkRecord], numberings: Sequence[tuple[tuple[str, int, int], ...]]) -> None:
    """Refuse documents that share an id."""
    if any(numberings):
        return
    arrays = [note.ids for note in notes if note.ids is not None]
    if not arrays:
        return
    every = pa.chunked_array(arrays)
    if pc.count_distinct(every).as_py() == len(every):
        return
    seen: set[str] = set()
    for note in notes:
        ids = iter([] if note.ids is None else note.ids.to_pylist())
        for path, count in note.origins:
            for _ in range(count):
                name = next(ids)
                if name in seen:
                    raise InputError(path, f"the document id {name!r} occurs twice", "field 'id'")
                seen.add(name)
