"""Open documents of users: corpora, files of any format and texts in memory.

Documents to fit a model to become a corpus; new texts for a model are read as its training documents were read, as a
corpus, in memory, or token by token.
"""

from __future__ import annotations

import os
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.pipeline.corpora.ingest import NewSources, chosen_words, ingest, ingest_like, reading_options
from collapsium.pipeline.corpora.options import IngestOptions, TextsInMemory
from collapsium.pipeline.corpora.recorded_reading import RecordedReading, history_like, recorded_reading
from collapsium.pipeline.corpora.text_ingest import (
    Sources,
    check_reading,
    find_sources,
    leave_phrases,
    require_distinct_ids,
    unspaced_notice,
)
from collapsium.pipeline.corpora.texts_in_memory import (
    ID,
    NAME,
    OPTIONS,
    column_names,
    fields_of,
    in_memory,
    is_lazy,
    named_texts,
    paths_or_texts,
    table_of,
    write_texts,
)
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.schedulers import Scheduler, Scheduling, is_elsewhere
from collapsium.pipeline.monitoring.progress import counter_here
from collapsium.pipeline.options import names_of, paths_of
from collapsium.pipeline.outputs import TEMPORARY
from collapsium.storage.building.ingest_record import History, Report, read_history
from collapsium.storage.building.split import exploded
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.labels import running
from collapsium.storage.corpus.manifest import MANIFEST, VECTORS
from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.word_rule import lookup_keys
from collapsium.storage.corpus.writer import even_shard_tokens_of
from collapsium.storage.data_types import JsonObject, is_annotated
from collapsium.storage.errors import AbsentError, InputError, MismatchError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.parquet import string_array
from collapsium.storage.readers.open import TEXTS, ReadOptions, kind_of_name
from collapsium.storage.readers.texts.blocks import Block, batches_of_table
from collapsium.storage.units import Counting, silent
from collapsium.workers.ingest.chunks import counted_of, stream_of
from collapsium.workers.ingest.phrases import Phrases, ReadRequest, tokens_of_texts
from collapsium.workers.ingest.tasks import ChunkRecord, PlacedChunk, documents_of, shards_of
from collapsium.workers.ingest.tokenize import StopWords
from collapsium.workers.options import former_names

MAX_SHARE = 0.1  # Share of unknown tokens above which a warning is given


@dataclass(frozen=True)
class UnknownWords:
    """Tokens of unknown words among the tokens of documents.

    A word is unknown if it is not in the vocabulary and was not left out on purpose. Words pruned by the corpus's
    ``min_documents`` or ``max_words`` are unknown. Stop words and words that are too frequent for
    ``max_document_share`` are not unknown, and do not count as tokens.
    """

    unknown: int = 0  # Tokens of unknown words, which were dropped
    tokens: int = 0  # Tokens of known and unknown words

    @classmethod
    def of(cls, reports: Iterable[Report]) -> UnknownWords:
        """Return the sums over reports of ingesting or appending."""
        reports = list(reports)
        unknown = sum(report.unknown_tokens for report in reports)
        return cls(unknown, unknown + sum(report.tokens for report in reports))

    @property
    def share(self) -> float | None:
        """Share of tokens of unknown words; None without tokens."""
        return self.unknown / self.tokens if self.tokens else None

    def record(self) -> JsonObject:
        """Return the counts as fields of a JSON object."""
        return {"unknown_tokens": self.unknown, "unknown_share": self.share}

    def text(self) -> str:
        """Return the share in words."""
        share = 0.0 if self.share is None else self.share
        return f"{self.unknown:,} of {self.tokens:,} tokens ({share:.1%}) are words that are not in the vocabulary"

    def warning(self, history: History, *, grow: bool, option: str) -> str | None:
        """Return a warning if the share is above `MAX_SHARE`."""
        if self.share is None or self.share <= MAX_SHARE:
            return None
        first = UnknownWords.of([history.report]).share
        comparison = "" if first is None else f" (first documents: {first:.1%})"
        advice, limit = f"{option} adds new words to the vocabulary", history.cuts.max_words
        if limit is not None:
            advice = f"max_words = {limit} leaves no room for new words; ingest a new corpus to choose its words anew"
        elif grow:
            advice = f"new words must occur in {history.cuts.min_documents} of the added documents (min_documents)"
        return f"added documents: {self.text()}, and were dropped{comparison}; {advice}"


def additions_of(corpus: Corpus) -> tuple[Report, ...]:
    """Return the reports of all additions to a corpus, the first one first."""
    history = read_history(corpus.folder)
    return () if history is None else history.until(corpus.manifest.documents).appended


Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
# A corpus, paths of texts, or texts in memory: a list, a column or a frame
DocumentSource: TypeAlias = Any
Reading: TypeAlias = Mapping[str, Any]  # Options of reading documents, by name
# Records of runs, models and other folders, which are not sources of texts
OURS = ("run.json", "model.json", "compare.json", "checkpoint.json", "journal.json", "ingest.json")


@dataclass(frozen=True)
class NewDocuments:
    """Documents that a model is applied to."""

    corpus: Corpus  # The documents; documents made of texts are in a temporary folder
    report: Report | None = None  # Report on the reading of texts; None for an existing corpus
    unknown: UnknownWords | None = None  # Number of tokens of texts that are not in the model's vocabulary
    notices: tuple[str, ...] = ()  # Lines for the user


@contextmanager
def documents_for(
    run: str | os.PathLike[str],
    sources: DocumentSource,
    *,
    reading: Reading | None = None,
    scheduler: Scheduler | None = None,
    workers: int | None = None,
    tls: TLS | None = None,
    notice: Callable[[str], None] | None = None,
    progress: Counting = silent,
) -> Iterator[NewDocuments]:
    """Open a corpus, or read texts like a model's documents: files of any format, or texts in memory."""
    with _as_files(run, sources, reading or {}) as (paths, named, in_memory):
        arguments = [name for name, value in named.items() if value is not None]
        if len(paths) == 1 and is_corpus(paths[0]):
            if arguments:
                raise OptionError(f"applies only to texts, and {paths[0]} is a corpus", arguments[0])
            yield NewDocuments(Corpus(paths[0]))
            return
        corpus = next((path for path in paths if is_corpus(path)), None)
        if corpus is not None:
            raise OptionError(f"{corpus}: expected one corpus, or texts, found {len(paths)} names")
        recorded = recorded_reading(run)
        new = new_sources(paths, named)
        # Workers elsewhere do not see the temporary file of texts in memory.
        executor = "threads" if in_memory and scheduler is not None and is_elsewhere(scheduler) else scheduler
        with temporary_folder(run, scheduler) as place:
            how: dict[str, Any] = {"scheduler": executor, "workers": workers, "tls": tls, "progress": progress}
            with as_headings(named):
                ingest_like(recorded, new, place.url, **how)
            documents = new_documents(recorded, Corpus(place.url), read_history(place) or History(""))
            if notice is not None:
                for line in documents.notices:
                    notice(line)
            with _named(place.url, paths):
                yield documents


@contextmanager
def _as_files(
    run: str | os.PathLike[str], documents: DocumentSource, reading: Reading
) -> Iterator[tuple[list[str], Reading, bool]]:
    """Provide the paths of documents and how they are read; texts in memory are in a temporary file."""
    sources = paths_or_texts(documents)
    if not isinstance(sources, TextsInMemory):
        yield list(sources), reading, False
        return
    table, named = table_as_recorded(recorded_reading(run).history, in_memory(sources.texts), reading)
    with tempfile.TemporaryDirectory(prefix="collapsium-", ignore_cleanup_errors=True) as place:
        path = write_texts(table, place)
        with named_texts(path):
            yield [path], named, True


@contextmanager
def as_headings(reading: Reading) -> Iterator[None]:
    """Let errors about segments name the option `headings` if the user gave that."""
    try:
        yield
    except OptionError as error:
        if error.subject != "segments" or reading.get("headings") is None:
            raise
        raise OptionError(error.message.replace("`segments` headings:", "`headings` "), error.parameter) from None


def new_sources(sources: Paths, reading: Reading) -> NewSources:
    """Return sources of new documents with checked options of reading."""
    arguments = {name: value for name, value in reading.items() if value is not None}
    headings = arguments.pop("headings", None)
    if headings is not None:
        if not headings:
            raise OptionError("expected a regular expression", "headings")
        arguments["segments"] = f"headings:{headings}"
    format, options = arguments.pop("format", None), chosen_words(reading_options(arguments))
    named = {field.name: getattr(options, field.name) for field in fields(options)}
    return NewSources(paths_of(sources), format, named, may_be_empty=True)


def new_documents(recorded: RecordedReading, corpus: Corpus, history: History) -> NewDocuments:
    """Return documents that were read as recorded, with the number of unknown tokens and lines for the user."""
    if corpus.holds == VECTORS:
        return NewDocuments(corpus, history.report, notices=tuple(history.report.remarks))
    unknown = UnknownWords.of([history.report])
    lines = [notice_of(recorded, history), *history.report.remarks, warning_of(recorded, unknown)]
    return NewDocuments(corpus, history.report, unknown, tuple(line for line in lines if line is not None))


def notice_of(recorded: RecordedReading, history: History) -> str | None:
    """Return a line on the reading of texts if the record does not determine it; None if it does."""
    return recorded.notice if history.kind in TEXTS else None


def warning_of(recorded: RecordedReading, unknown: UnknownWords) -> str | None:
    """Return a warning if unknown words are much more frequent than among the recorded documents; else None."""
    training = None if recorded.history is None else UnknownWords.of([recorded.history.report]).share
    if (unknown.share or 0.0) <= MAX_SHARE + (training or 0.0):
        return None
    comparison = "" if training is None else f" (training documents: {training:.1%})"
    return f"warning: {unknown.text()} of {recorded.name}{comparison}; the texts may be of another kind"


def is_corpus(path: str) -> bool:
    """Return True if a path is a corpus rather than a source of texts."""
    if is_annotated(path):
        return False
    folder = Folder(path)
    if folder.exists(MANIFEST):
        return True
    if not folder.exists():
        return kind_of_name(path) is None and not any(letter in path for letter in "*?[")
    if not folder.is_folder():
        return False
    record = next((name for name in OURS if folder.exists(name)), None)
    if record is not None:
        raise AbsentError(f"{folder.url}: expected a corpus or texts, found a folder with {record}, but no {MANIFEST}")
    return False


def names_corpus(sources: DocumentSource) -> bool:
    """Return whether sources of documents are a single corpus, and not texts."""
    named = paths_or_texts(sources)
    return not isinstance(named, TextsInMemory) and len(named) == 1 and is_corpus(named[0])


def fields_named(history: History | None, texts: DocumentSource, reading: Reading) -> dict[str, str]:
    """Return the columns that reading texts requires, each with its option; see `table_as_recorded`."""
    return fields_of(_named_as_recorded(ReadOptions() if history is None else history.options, texts, reading))


def _named_as_recorded(options: ReadOptions, texts: DocumentSource, reading: Reading) -> dict[str, Any]:
    """Return the options of reading, with the recorded fields of texts and ids that a frame has."""
    named = {name: value for name, value in reading.items() if value is not None}
    columns = column_names(texts)
    for name in ("text", "id"):
        recorded = getattr(options, name)
        if name not in named and recorded is not None and recorded in columns:
            named[name] = recorded
    return named


def table_as_recorded(
    history: History | None, texts: DocumentSource, reading: Reading
) -> tuple[pa.Table, dict[str, Any]]:
    """Return texts in memory as a table, and how it is read: by the recorded fields where the frame has them."""
    options = ReadOptions() if history is None else history.options
    named = _named_as_recorded(options, texts, reading)
    fields = fields_of(named)
    every = [options.title, options.date, *options.labels, *options.covariates]
    optional = [item.partition("=")[2] or item for item in every if item]
    table = table_of(texts, fields, optional)
    text = next(iter(fields))
    named |= {"text": text, "format": "parquet"}
    if "id" not in named:
        named["id"] = next(name for name in ("id", "document", "number") if name not in (text, *table.schema.names))
        numbers = pa.array([str(number) for number in range(1, table.num_rows + 1)], pa.string())
        table = table.append_column(named["id"], numbers)
    return table, named


@contextmanager
def _named(url: str, paths: Sequence[str]) -> Iterator[None]:
    """Replace the temporary corpus in errors by the texts that it was made of."""
    shown = (
        "AnnData"
        if is_annotated(paths[0])
        else paths[0]
        if len(paths) == 1
        else f"{paths[0]} and {len(paths) - 1} more"
    )
    try:
        yield
    except MismatchError as error:
        if type(error) is not MismatchError or url not in str(error):
            raise
        raise MismatchError(str(error).replace(url, shown)) from error
    except InputError as error:
        if type(error) is not InputError or error.path != url:
            raise
        raise InputError(shown, error.expected, error.where) from error


@contextmanager
def temporary_folder(run: str | os.PathLike[str], scheduler: Scheduler | None) -> Iterator[Folder]:
    """Yield a folder that every worker sees and that is made at the first write, and remove it afterwards."""
    if scheduler is None or not is_elsewhere(scheduler):
        with tempfile.TemporaryDirectory(prefix="collapsium-", ignore_cleanup_errors=True) as name:
            yield Folder(Path(name) / "texts")
        return
    place = Folder(f"{Folder(run).address}/.texts-{uuid.uuid4().hex[:8]}")
    try:
        yield place
    finally:
        place.remove()


@dataclass(frozen=True)
class TokenTexts:
    """Texts that are read block by block, as tokens in their order."""

    sources: Sources  # The files
    request: ReadRequest  # Options of reading
    by_segment: bool  # Whether each segment is a document, as in a corpus of `explode`

    @property
    def name(self) -> str:
        """Name of the texts in errors."""
        return self.sources.name

    def blocks(self) -> Iterator[Block]:
        """Cut the texts into blocks, one for a task."""
        return self.sources.blocks(self.request.kind, self.request.options)


@contextmanager
def token_texts(
    run: str | os.PathLike[str],
    texts: DocumentSource,
    reading: Reading,
    scheduling: Scheduling,
) -> Iterator[TokenTexts]:
    """Open texts to be read like a model's documents."""
    with _as_files(run, texts, reading) as (paths, named, _):
        recorded = recorded_reading(run)
        new = new_sources(paths, named)
        with as_headings(named):
            history = history_like(recorded, list(new.paths), new.options, new.format)
        if history.kind not in TEXTS:
            raise OptionError(
                f"{new.paths[0]}: windows of tokens need texts in their order ({', '.join(TEXTS)}), found word counts "
                f"(format {history.kind})"
            )
        history, scheduler, stops = check_reading(history, scheduling.scheduler, scheduling.workers)
        vocabulary = recorded.vocabulary
        # A word with tokens was no stop word when the vocabulary was made, even if a list has it today.
        stops = stops.sparing(pa.array(vocabulary.words, pa.string()).filter(pa.array(vocabulary.tokens > 0)))
        sources = find_sources(list(new.paths), history, scheduler)
        joined = history.phrasing is not None
        with temporary_folder(run, scheduler) as place:
            if joined:
                leave_phrases(place, history.phrasing)
            request = ReadRequest(history.kind, history.options, place, sources.numbered, phrases=joined, stops=stops)
            yield TokenTexts(sources, request, history.exploded)


Ints = npt.NDArray[np.int64]

NONE = Documents(string_array([]), np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))
UNKNOWN, LEFT_OUT = -1, -2  # In place of the number of a word that the vocabulary lacks, and of one left out on purpose
MAX_REMEMBERED = 1 << 16  # Most words outside the vocabulary whose kind is remembered, a few megabytes


@dataclass(frozen=True)
class TextsRead:
    """Texts in memory as documents."""

    documents: Documents  # Documents with the vocabulary's word ids
    unknown: Ints  # Tokens of each document that are not in the vocabulary, without stop words; int64 (documents,)
    notice: str | None  # A line on the reading of texts, if the record does not determine it
    warning: str | None  # A line on unknown words, if they are many

    def shards(self) -> list[Documents]:
        """Return the documents in the shards that a corpus of them would have."""
        lengths = self.documents.tokens
        shard = shards_of(lengths, PlacedChunk(NAME, 0, 0), even_shard_tokens_of(int(lengths.sum())))
        bounds = np.flatnonzero(np.diff(shard, prepend=-1, append=-1)).tolist()
        return [self.documents.slice(first, last) for first, last in pairwise(bounds)]


@dataclass(frozen=True)
class _Prepared:
    """The parts of reading that all texts with the same options share."""

    reading: dict[str, Any]  # The options that the user named
    history: History
    stops: StopWords
    words: dict[str, int]  # Number of each word of the vocabulary, by its spelling in texts
    phrases: Phrases | None


class TextReader:
    """Reads texts in memory as documents of a model; what depends on the vocabulary is prepared once."""

    def __init__(self, recorded: RecordedReading) -> None:
        self._recorded = recorded
        self._prepared: _Prepared | None = None
        self._outside: dict[str, int] = {}

    def read(self, table: pa.Table, reading: Mapping[str, Any]) -> TextsRead:
        """Return the texts of a table as documents; `reading` has the options of `ingest` that the user names."""
        reading = dict(reading)
        prepared = self._prepared
        if prepared is None or prepared.reading != reading:
            new = new_sources(NAME, reading)
            with as_headings(reading):
                history = history_like(self._recorded, list(new.paths), new.options, new.format)
            history, _, stops = check_reading(history, None, None)
            if prepared is None:
                vocabulary = self._recorded.vocabulary
                # A word with tokens was no stop word when the vocabulary was made, even if a list has it today.
                stops = stops.sparing(pa.array(vocabulary.words, pa.string()).filter(pa.array(vocabulary.tokens > 0)))
                keys = lookup_keys(vocabulary.words, history.options.word_rule)
                stopped = stops.dropped(pa.array(keys, pa.string())).tolist()
                words = {key: number for number, (key, out) in enumerate(zip(keys, stopped, strict=True)) if not out}
                phrases = None
                if history.phrasing is not None:
                    pairs = history.phrasing.pairs
                    phrases = Phrases.of(*(pa.array([pair[n] for pair in pairs], pa.string()) for n in range(2)))
                prepared = _Prepared(reading, history, stops, words, phrases)
            # Vocabulary, stop words and phrases are the record's, whatever fields a table has.
            prepared = self._prepared = replace(prepared, reading=reading, history=history)
        history, stops = prepared.history, prepared.stops
        parts, unknown, records = list[Documents](), list[Ints](), list[ChunkRecord]()
        for batch in batches_of_table(table, NAME, history.options):
            records.append(ChunkRecord(NAME, batch.ids, batch.origins))
            tokens = tokens_of_texts(batch.texts, history.options, stops, prepared.phrases)
            chunk = counted_of(stream_of(tokens, batch.ids, batch.extras, batch.segments))
            numbers = self._numbers(chunk.words.to_pylist(), prepared)
            documents = documents_of(chunk, numbers)
            before = running(np.where(numbers[chunk.numbers] == UNKNOWN, chunk.counts, 0))
            parts.append(exploded(documents) if history.exploded else documents)
            unknown.append(np.diff(before[chunk.bounds if history.exploded else chunk.offsets]))
        require_distinct_ids(records, [()] * len(records))
        joined, missed = Documents.join(parts or [NONE]), np.concatenate([np.zeros(0, dtype=np.int64), *unknown])
        lost = int(missed.sum())
        count = UnknownWords(lost, lost + int(joined.counts.sum(dtype=np.int64)))
        return TextsRead(joined, missed, notice_of(self._recorded, history), warning_of(self._recorded, count))

    def _numbers(self, words: list[str], prepared: _Prepared) -> npt.NDArray[np.int32]:
        """Return the number of each word, or a negative code for words without a number."""
        known, outside = prepared.words, self._outside
        numbers = [known.get(word, outside.get(word)) for word in words]
        unknown = [word for word, number in zip(words, numbers, strict=True) if number is None]
        if unknown:
            frequent = frozenset(prepared.history.frequent)
            dropped = prepared.stops.dropped(pa.array(unknown, pa.string())).tolist()
            kinds = {
                word: LEFT_OUT if out or word in frequent else UNKNOWN
                for word, out in zip(unknown, dropped, strict=True)
            }
            numbers = [kinds[word] if number is None else number for word, number in zip(words, numbers, strict=True)]
            if len(outside) + len(kinds) > MAX_REMEMBERED:
                self._outside = kinds
            else:
                outside.update(kinds)
        return np.array(numbers, dtype=np.int32)


def options_of_reading(documents: DocumentSource) -> tuple[str, ...]:
    """Return the names of the options of `ingest` that apply to documents: none to a corpus, all to files."""
    if names_corpus(documents):
        return ()
    return OPTIONS if isinstance(paths_or_texts(documents), TextsInMemory) else tuple(IngestOptions.model_fields)


def reading_of(options: dict[str, Any], documents: DocumentSource, family: Iterable[str]) -> dict[str, Any]:
    """Return the options of reading documents, and remove them from a fit's options; none for a corpus."""
    known = options_of_reading(documents)
    names = (*known, *former_names(IngestOptions)) if known else ()
    reading = {name: options.pop(name) for name in names if name in options}
    if "covariates" in reading and "covariates" in set(family):
        options["covariates"] = tuple(item.partition("=")[0] for item in names_of(reading["covariates"], "covariates"))
    return reading


def ingest_documents(
    documents: DocumentSource, corpus: str, reading: Mapping[str, object], scheduler: Scheduler
) -> Corpus:
    """Write a corpus of files, or of texts in memory, as `ingest` would of a file of them."""
    progress, sources = counter_here("reading documents"), paths_or_texts(documents)
    how: dict[str, Any] = {**reading, "progress": progress}
    if not isinstance(sources, TextsInMemory):
        ingest(sources, corpus, scheduler=scheduler, **how)
    elif is_lazy(sources.texts):
        ingest(sources.texts, corpus, scheduler=scheduler, **how)
    else:
        table = table_of(in_memory(sources.texts), fields_of(reading), () if reading.get(ID) else (ID,))
        if not table.num_rows:
            raise OptionError("expected at least one text")
        with tempfile.TemporaryDirectory(prefix=TEMPORARY, ignore_cleanup_errors=True) as temporary:
            path = write_texts(table, temporary)
            local = "serial" if scheduler == "serial" else "threads"
            with named_texts(path):
                ingest(path, corpus, format="parquet", scheduler=local, **how)
    history = read_history(Folder(corpus))
    notice = None if history is None else unspaced_notice(history.report, "`tokenizer`")
    if notice is not None:
        warnings.warn(notice, UserWarning, stacklevel=2)
    return Corpus(corpus)


@contextmanager
def corpus_of(
    documents: DocumentSource, reading: Mapping[str, object], scheduler: Scheduler = "threads"
) -> Iterator[Corpus]:
    """Open a corpus, or make a temporary one of other documents."""
    if names_corpus(documents):
        corpus = documents if isinstance(documents, Corpus) else Corpus(documents)
        if reading:
            raise OptionError(f"applies only to texts, and {corpus.url} is a corpus", next(iter(reading)))
        yield corpus
        return
    with tempfile.TemporaryDirectory(prefix=TEMPORARY, ignore_cleanup_errors=True) as place:
        yield ingest_documents(documents, os.path.join(place, "corpus"), reading, scheduler)  # noqa: PTH118
