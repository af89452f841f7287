"""Ingest texts in two passes: blocks are read and their words counted, then chunks become shards.

Blocks, the order of sums, pruning and shards depend only on the sources and the options, so the corpus has the same
bits for any executor.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.pipeline.executors.base import TLS, Executor, Future, in_order
from collapsium.pipeline.executors.open import open_executor, require_shared
from collapsium.pipeline.executors.schedulers import Scheduler, as_scheduler, check_scheduler, is_elsewhere
from collapsium.storage.building.ingest_record import Cuts, History, Phrasing, Report, Sieve
from collapsium.storage.corpus.manifest import Manifest, ShardRecord
from collapsium.storage.corpus.parquet import UNKNOWN_SHARE
from collapsium.storage.corpus.vocabulary import Vocabulary
from collapsium.storage.corpus.word_rule import lookup_keys
from collapsium.storage.corpus.writer import even_shard_tokens_of
from collapsium.storage.data_types import BAD_BYTES, SCORES
from collapsium.storage.errors import InputError, OptionError, near
from collapsium.storage.io.folder import Folder, created, ensure_free
from collapsium.storage.printable import ShortRepr
from collapsium.storage.readers.base import NOT_IN_VOCABULARY, Dropped, distinct, required_words
from collapsium.storage.readers.open import kind_of_name
from collapsium.storage.readers.read_options import Guess, ReadOptions, distinct_guesses
from collapsium.storage.readers.side_files import Sides
from collapsium.storage.readers.texts.blocks import Block, absolute, are_numbered, chosen_files, cut_blocks, fields_of
from collapsium.storage.readers.texts.fields import DAY_FIRST, DateTally, Fields
from collapsium.storage.readers.texts.segment import LeftOut, Span
from collapsium.storage.readers.texts.tables import first_fields
from collapsium.storage.units import Counting
from collapsium.workers import special_functions as special
from collapsium.workers.ingest import tasks as reading
from collapsium.workers.ingest.chunks import ids_of_numbers, write_table
from collapsium.workers.ingest.normal_forms import require_library
from collapsium.workers.ingest.phrases import FREQUENT, PHRASES, ReadRequest, add_pairs, count_pairs
from collapsium.workers.ingest.tasks import ChunkRecord, PlacedChunk, write_vocabulary
from collapsium.workers.ingest.tokenize import StopWords, load_tokenizer

Ints = npt.NDArray[np.int64]


# Sizes of tasks, which bound memory: tables that a task adds, tokens of a part of pairs.
TABLES_PER_SUM = 8
TOKENS_PER_PART = 8_000_000
MAX_PARTS = 64

# In texts that a segmenter has cut, few words have more than 4 characters in Chinese and Japanese, or 8 in scripts that
# write vowels as marks.
_UNSPACED_SCRIPT = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_SEVERAL_WORDS = r"[\p{Han}\p{Hiragana}\p{Katakana}]{5}|[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]{9}"
MIN_UNSPACED_SHARE = 0.01  # Share of all tokens from which long ones are mentioned
MIN_LONG_SHARE = 0.25  # Share of long tokens in such scripts from which texts count as not cut into words


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
            yield executor.submit(len, table)

    for _ in in_order(executor, joined()):
        pass
    named = tuple(zip(sides[0].to_pylist(), sides[1].to_pylist(), strict=True))
    notes = [replace(note, name=reading.phrase_chunk(note.name)) for note in counted.notes]
    return Phrasing(phrasing.score, phrasing.least, phrasing.threshold, named), Counted(
        notes, tree.total(), counted.empty
    )


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


@dataclass(frozen=True)
class Sources:
    """Sources of texts before they are read."""

    paths: list[str]  # The user's paths
    files: list[Span]  # Their files
    name: str  # Their name in errors
    numbered: bool  # True if their documents have no ids
    left_out: tuple[LeftOut, ...] = ()  # Files of folders that are not read

    def blocks(self, kind: str, options: ReadOptions) -> Iterator[Block]:
        """Cut the files into blocks."""
        return cut_blocks(self.files, kind, options)


def find_sources(paths: list[str], history: History, scheduler: Scheduler) -> Sources:
    """Find the files of sources."""
    files, left_out = chosen_files(paths, history.kind, kind_of_name)
    if is_elsewhere(scheduler):
        files = absolute(files)
    name = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    return Sources(paths, files, name, are_numbered(files, history.kind, history.options), left_out)


def numberings_of(
    sources: Sources, notes: Sequence[ChunkRecord], tagged: bool
) -> list[tuple[tuple[str, int, int], ...]]:
    """Return numbers for documents without ids, which restart in each file and follow its name if there are several."""
    if not sources.numbered:
        return [()] * len(notes)
    paths = list(dict.fromkeys(file.path for file in sources.files))
    alone = len(paths) == 1 and not tagged
    heads = {path: "" if alone else f"{stem}/" for path, stem in zip(paths, distinct(paths), strict=True)}
    so_far = dict.fromkeys(paths, 1)
    numberings = []
    for note in notes:
        parts = []
        for path, count in note.origins:
            parts.append((heads[path], so_far[path], count))
            so_far[path] += count
        numberings.append(tuple(parts))
    return numberings


def report_of(
    sources: Sources, counted: Counted, history: History, sides: Sides | None, earlier: Sequence[Report] = ()
) -> Report:
    """Return the report on the first pass."""
    notes = counted.every
    date, dates = history.options.date, None
    # A field of dates that only a record names may be missing.
    if date is not None and (date not in history.options.optional or any(date in note.seen for note in notes)):
        dates = sum((note.dates for note in notes), DateTally())
    order: tuple[Guess, ...] = ()
    every = sum((report.dates or DateTally() for report in earlier), dates or DateTally())
    # The order of day and month is a guess where it is needed and all dates of the corpus show one.
    if dates is not None and dates.ambiguous and every.order:
        example = every.day_first_example if every.order == DAY_FIRST else every.month_first_example
        order = (Guess("order of days and months", f"{every.order} first, as {example!r} shows", "date_order"),)
    return Report(
        files=len({file.path for file in sources.files}),
        bytes=sum(file.size for file in sources.files),
        documents=counted.documents,
        missing_text=sum(note.missing for note in notes),
        replaced_bytes=sum(note.replaced for note in notes),
        skipped_documents=sum(note.skipped for note in notes),
        source_words=len(counted.words),
        source_tokens=sum(note.tokens for note in notes),
        segments=sum(note.segments for note in notes),
        attachments=sum(note.attachments for note in notes),
        unspaced_tokens=0 if history.options.tokenizer is not None else unspaced_tokens(counted),
        left_out=sources.left_out,
        dates=dates,
        guesses=distinct_guesses(
            history.report.guesses, *(note.guesses for note in notes), () if sides is None else sides.guesses, order
        ),
    )


def unspaced_tokens(counted: Counted) -> int:
    """Return the number of tokens that are several words each, because their script has no spaces between words.

    Texts that a segmenter has cut have long words too, so tokens count only where at least a quarter of those in such
    scripts are long; a few foreign names in other texts do not count at all.
    """
    words, tokens = counted.spelled, counted.column("tokens")
    unspaced = np.asarray(pc.match_substring_regex(words, _UNSPACED_SCRIPT), dtype=bool)
    long = np.asarray(pc.match_substring_regex(words, _SEVERAL_WORDS), dtype=bool)
    of_long = int(tokens[long].sum())
    is_rare = of_long < MIN_UNSPACED_SHARE * tokens.sum() or of_long < MIN_LONG_SHARE * tokens[unspaced].sum()
    return 0 if is_rare else of_long


def unspaced_notice(report: Report, option: str) -> str | None:
    """Return a line for texts whose words are not separated by spaces; None for others."""
    if not report.unspaced_tokens:
        return None
    share = report.unspaced_tokens / max(report.source_tokens, 1)
    return (
        f"{report.unspaced_tokens:,} tokens ({share:.0%}) are whole phrases, because their script (such as Chinese, "
        f"Japanese, Thai, Lao or Khmer) has no spaces between words; {option} names a function that cuts them"
    )


def require_seen(sources: Sources, history: History, counted: Counted) -> None:
    """Refuse a field that no document has, as a misspelt name would make a corpus without labels."""
    if not counted.notes or history.kind in ("mallet", "text"):
        return
    side_fields = () if history.side_files is None else (*history.side_files.labels, *history.side_files.covariates)
    seen = frozenset().union(
        *(note.seen for note in counted.notes), (side_field.partition("=")[2] for side_field in side_fields)
    )
    for field, flag in Fields.of(history.options).required.items():
        if flag not in ("id", "text") and field not in seen:
            known = first_fields(sources.files[0], history.options) if history.kind == "jsonl" else seen
            raise InputError(sources.name, f"no document has a field {field!r} (`{flag}`){near(field, known)}")


SCRATCH = "scratch"


def check_reading(
    history: History, scheduler: Scheduler | None, workers: int | None
) -> tuple[History, Scheduler, StopWords]:
    """Check the options of reading texts before anything is written.

    Returns history: Options with the fields that the format defines; scheduler: The executor; stops: Words that are
    left out
    """
    options = fields_of(history.options, history.kind)
    if options.bad_bytes not in (None, *BAD_BYTES):
        raise OptionError(f"expected {' or '.join(BAD_BYTES)}, found {options.bad_bytes!r}", "bad_bytes")
    if options.tokenizer is not None:
        load_tokenizer(options.tokenizer)
    if options.normalise is not None:
        require_library(options.normalise, options.normalised_by)
    scheduler = as_scheduler(scheduler or "threads")
    check_scheduler(scheduler, workers)
    return replace(history, options=options), scheduler, StopWords.of(options)


def phrasing_of(score: str | None, least: int | None, threshold: float | None) -> Phrasing | None:
    """Return the options of phrases."""
    if score is None:
        if least is not None or threshold is not None:
            raise OptionError("`phrase_count` and `phrase_threshold` require `phrases`, npmi or count")
        return None
    if score not in SCORES:
        raise OptionError(f"expected {' or '.join(SCORES)}, found {score!r}", "phrases")
    if least is not None and least < 1:
        raise OptionError(f"expected 1 or more, found {least}", "phrase_count")
    return Phrasing(score, 5 if least is None else least, SCORES[score] if threshold is None else threshold)


@dataclass(frozen=True)
class RecordedVocabulary:
    """The vocabulary that new texts are matched to, and whether they may have no token of it."""

    vocabulary: Vocabulary
    may_be_empty: bool


def ingest_texts(
    paths: list[str],
    corpus: str | os.PathLike[str],
    history: History,
    *,
    shard_tokens: int | None,
    scheduler: Scheduler | None,
    workers: int | None,
    tls: TLS | None,
    progress: Counting,
    sides: Sides | None = None,
    like: RecordedVocabulary | None = None,
) -> Manifest:
    """Read texts, and write a corpus; see `collapsium.pipeline.ingest`."""
    history, scheduler, stops = check_reading(history, scheduler, workers)
    sources = find_sources(paths, history, scheduler)
    ensure_free(Folder(corpus))
    if like is None:
        words = _Words(required_words(history.options), stops, recorded=False, may_be_empty=False)
    else:
        fixed, counts = like.vocabulary.words, like.vocabulary.tokens
        # A word with tokens was no stop word when the vocabulary was made, even if a list has it today.
        stops = stops.sparing(pa.array(fixed, pa.string()).filter(pa.array(counts > 0)))
        words = _Words(fixed, stops, recorded=True, may_be_empty=like.may_be_empty)
    history = replace(history, options=replace(history.options, vocabulary=None))
    with created(Folder(corpus)) as folder:
        require_shared(folder, scheduler, tls, target=Folder(corpus).url, option="corpus")
        with contextlib.closing(open_executor(scheduler, workers, tls=tls)) as executor:
            return _write(executor, folder, sources, history, words, shard_tokens, progress, sides)


@dataclass(frozen=True)
class _Words:
    """Stop words and an optional fixed vocabulary; `recorded` is True if they come from a record."""

    fixed: list[str] | None
    stops: StopWords
    recorded: bool
    may_be_empty: bool


def _write(
    executor: Executor,
    folder: Folder,
    sources: Sources,
    history: History,
    words: _Words,
    shard_tokens: int | None,
    progress: Counting,
    sides: Sides | None,
) -> Manifest:
    scratch, fixed, stops = folder / SCRATCH, words.fixed, words.stops
    find = history.phrasing is not None and not words.recorded
    known = history.phrasing is not None and words.recorded
    if known:
        leave_phrases(scratch, history.phrasing)
    request = ReadRequest(history.kind, history.options, scratch, sources.numbered, find, known, stops)
    counted = read_all(executor, sources.blocks(history.kind, history.options), request, progress, lambda note: None)  # noqa: ARG005
    numberings = numberings_of(sources, counted.notes, tagged=False)
    require_distinct_ids(counted.notes, numberings)
    require_seen(sources, history, counted)
    report = report_of(sources, counted, history, sides)
    sieve = Sieve(counted.spelled, counted.column("documents"), counted.column("tokens"))
    drop_stopped(sieve, counted.spelled, stops)
    stopped = sieve.dropped
    if find and history.phrasing is not None:
        phrasing, counted = find_phrases(executor, scratch, counted, stops, history.phrasing)
        history, report = replace(history, phrasing=phrasing), replace(report, phrases=len(phrasing.pairs))
        sieve = Sieve(counted.spelled, counted.column("documents"), counted.column("tokens"))
        sieve.dropped = stopped
    if words.recorded:
        sieve.drop_frequent(history.cuts, history.frequent)
    cuts = Cuts() if words.recorded else history.cuts
    rule = history.options.word_rule
    vocabulary, dropped, frequent = _pruned(sieve, counted, cuts, fixed, stops, sources.name, rule)
    frequent = history.frequent if words.recorded else frequent
    left_out = left_out_of(counted.spelled, stops, frequent) if history.options.unknown_share else None
    write_vocabulary(scratch, lookup_keys(vocabulary.words, rule), stops, left_out)
    counted, unmatched = write_side_tables(scratch, counted, numberings, sides)
    rows, empty = write_shards(executor, folder, scratch, counted.notes, numberings, shard_tokens)
    tokens = sum(row.tokens for row in rows)
    if not tokens and not (words.may_be_empty and counted.documents):
        raise InputError(sources.name, "the corpus is empty: expected at least one document with a word")
    record = vocabulary.write(folder)
    report = replace(report, empty_documents=empty, words=len(vocabulary), tokens=tokens, dropped=tuple(dropped))
    report = replace(report, unmatched_rows=unmatched)
    columns = Fields.of(history.options).columns | ({} if sides is None else sides.columns)
    columns |= {} if left_out is None else {UNKNOWN_SHARE: pa.float32()}
    replace(history, fixed_vocabulary=fixed is not None, report=report, frequent=frequent).write(folder)
    scratch.remove()
    manifest = Manifest(
        documents=sum(row.documents for row in rows),
        pairs=sum(row.pairs for row in rows),
        tokens=tokens,
        vocabulary=record,
        fields={name: str(kind) for name, kind in columns.items()},
        shards=tuple(rows),
    )
    manifest.write(folder)
    return manifest


def left_out_of(spelled: pa.Array, stops: StopWords, frequent: Sequence[str]) -> pa.Array:
    """Return the words of texts that are left out on purpose: stop words, short words, and too frequent ones."""
    out = stops.dropped(spelled) | np.asarray(pc.is_in(spelled, value_set=pa.array(frequent, pa.string())), dtype=bool)
    return spelled.filter(pa.array(out))


def leave_phrases(scratch: Folder, phrasing: Phrasing | None) -> None:
    """Write phrases to the scratch folder, for the tasks that join them."""
    pairs = () if phrasing is None else phrasing.pairs
    columns = {side: pa.array([pair[n] for pair in pairs], pa.string()) for n, side in enumerate(("first", "second"))}
    write_table(scratch, PHRASES, pa.table(columns))


def _pruned(
    sieve: Sieve, counted: Counted, cuts: Cuts, fixed: list[str] | None, stops: StopWords, name: str, rule: int
) -> tuple[Vocabulary, list[Dropped], tuple[str, ...]]:
    """Prune the words of the texts without stop words, or a fixed vocabulary, which keeps its order."""
    spelled, documents, tokens = counted.spelled, counted.column("documents"), counted.column("tokens")
    dropped = sieve.dropped
    if fixed is not None:
        words = pa.array(fixed, pa.string())
        keys = pa.array(lookup_keys(fixed, rule), pa.string())
        sieve.drop_named(NOT_IN_VOCABULARY, keys, inverted=True)
        place = np.asarray(pc.fill_null(pc.index_in(keys, value_set=spelled), -1), dtype=np.int64)
        place[stops.dropped(keys)] = -1
        documents, tokens = (np.append(counts, 0)[place] for counts in (documents, tokens))
        spelled, sieve = words, Sieve(words, documents, tokens)
    before = int(sieve.retained.sum())
    sieve.cut(cuts, counted.documents)
    dropped = [*dropped, *sieve.dropped] if fixed is not None else sieve.dropped
    if cuts.drops_words and not sieve.retained.any():
        raise InputError(name, f"no word is left of {before} after pruning by document frequency")
    words = spelled.filter(pa.array(sieve.retained)).to_pylist()
    vocabulary = Vocabulary(words, documents[sieve.retained], tokens[sieve.retained])
    return vocabulary, [rule for rule in dropped if rule.words], sieve.frequent


def drop_stopped(sieve: Sieve, words: pa.Array, stops: StopWords) -> None:
    """Drop stop words and short words from a sieve of `words`."""
    sieve.drop("stop words", stops.stopped(words))
    if stops.min_characters:
        sieve.drop(f"of fewer than {stops.min_characters} characters", stops.short(words))
