"""Ingest texts: find their files and blocks, run the passes, prune the vocabulary, write the manifest, and report."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.pipeline.corpora.passes import (
    Counted,
    find_phrases,
    read_all,
    require_distinct_ids,
    write_shards,
    write_side_tables,
)
from collapsium.pipeline.executors.base import TLS, Executor
from collapsium.pipeline.executors.open import open_executor, require_shared
from collapsium.pipeline.executors.schedulers import Scheduler, as_scheduler, check_scheduler, is_elsewhere
from collapsium.storage.building.ingest_record import Cuts, History, Phrasing, Report, Sieve
from collapsium.storage.corpus.manifest import Manifest
from collapsium.storage.corpus.parquet import UNKNOWN_SHARE
from collapsium.storage.corpus.vocabulary import Vocabulary
from collapsium.storage.corpus.word_rule import lookup_keys
from collapsium.storage.data_types import BAD_BYTES, SCORES
from collapsium.storage.errors import InputError, OptionError, near
from collapsium.storage.io.folder import Folder, created, ensure_free
from collapsium.storage.readers.base import NOT_IN_VOCABULARY, Dropped, distinct, required_words
from collapsium.storage.readers.open import kind_of_name
from collapsium.storage.readers.read_options import Guess, ReadOptions, distinct_guesses
from collapsium.storage.readers.side_files import Sides
from collapsium.storage.readers.texts.blocks import Block, absolute, are_numbered, chosen_files, cut_blocks, fields_of
from collapsium.storage.readers.texts.fields import DAY_FIRST, DateTally, Fields
from collapsium.storage.readers.texts.lines import first_fields
from collapsium.storage.readers.texts.segment import LeftOut, Span
from collapsium.storage.units import Counting
from collapsium.workers.ingest.chunks import write_table
from collapsium.workers.ingest.normal_forms import require_library
from collapsium.workers.ingest.phrases import PHRASES, ReadRequest
from collapsium.workers.ingest.stop_words import StopWords
from collapsium.workers.ingest.tasks import ChunkRecord, write_vocabulary
from collapsium.workers.ingest.tokenize import load_tokenizer

# In texts that a segmenter has cut, few words have more than 4 characters in Chinese and Japanese, or 8 in scripts that
# write vowels as marks.
_UNSPACED_SCRIPT = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_SEVERAL_WORDS = r"[\p{Han}\p{Hiragana}\p{Katakana}]{5}|[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]{9}"
MIN_UNSPACED_SHARE = 0.01  # Share of all tokens from which long ones are mentioned
MIN_LONG_SHARE = 0.25  # Share of long tokens in such scripts from which texts count as not cut into words


@dataclass(frozen=True)
class Sources:
    """Sources of texts before they are read."""

    paths: list[str]  # The user's paths
    files: list[Span]  # Their files
    name: str  # Their name in errors
    numbered: bool  # True if their documents have no ids
    left_out: tuple[LeftOut, ...] = ()  # Files of folders that are not read

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

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
    order = () if dates is None else _order_of(dates, sum((report.dates or DateTally() for report in earlier), dates))
    return Report(
        files=len({file.path for file in sources.files}),
        bytes=sources.bytes,
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


def _order_of(dates: DateTally, every: DateTally) -> tuple[Guess, ...]:
    """Return the guess on the order of day and month, where it is needed and all dates of the corpus show one."""
    if not dates.ambiguous or not every.order:
        return ()
    example = every.day_first_example if every.order == DAY_FIRST else every.month_first_example
    return (Guess("order of days and months", f"{every.order} first, as {example!r} shows", "date_order"),)


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
    if shard_tokens is not None and shard_tokens < 1:
        raise OptionError(f"expected 1 or more, found {shard_tokens}", "shard_tokens")
    history, scheduler, stops = check_reading(history, scheduler, workers)
    sources = find_sources(paths, history, scheduler)
    ensure_free(Folder(corpus))
    if like is None:
        words = _Words(required_words(history.options), stops, recorded=False, may_be_empty=False)
    else:
        words = _Words(like.vocabulary.words, stops, recorded=True, may_be_empty=like.may_be_empty)
        # A word with tokens was no stop word when the vocabulary was made, even if a list has it today.
        counted = pa.array(words.fixed, pa.string()).filter(pa.array(like.vocabulary.tokens > 0))
        words = replace(words, stops=stops.sparing(counted))
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
