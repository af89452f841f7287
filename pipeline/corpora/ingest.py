"""Make corpora: ingest files, split corpora, and make documents of segments."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from dataclasses import fields as fields_of
from typing import Any

from collapsium.pipeline.corpora.options import READING, IngestOptions
from collapsium.pipeline.corpora.recorded_reading import (
    RecordedReading,
    format_of,
    history_like,
    read_side_files,
    recorded_reading,
    vocabulary_of,
    with_guesses_of_counts,
)
from collapsium.pipeline.corpora.text_ingest import RecordedVocabulary, ingest_texts, phrasing_of
from collapsium.pipeline.corpora.texts_in_memory import ID, NAME, check_lazy, is_lazy, require_fields, write_partition
from collapsium.pipeline.corpora.texts_in_memory import fields_of as columns_named
from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.open import dask_collections, require_shared
from collapsium.pipeline.executors.schedulers import Scheduler, Scheduling
from collapsium.pipeline.monitoring.progress import Counter, shows
from collapsium.pipeline.options import keywords, names_of, paths_of
from collapsium.pipeline.outputs import overwrites, place_for
from collapsium.storage.building.ingest import RelabelledSource, ingest_vectors
from collapsium.storage.building.ingest import ingest as ingest_source
from collapsium.storage.building.ingest_record import Cuts, History, Report
from collapsium.storage.building.split import explode_corpus
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import Manifest
from collapsium.storage.corpus.word_rule import RULE
from collapsium.storage.data_types import has_named_matrix, is_annotated
from collapsium.storage.errors import InputError, MismatchError, NoVocabularyError, OptionError, suggestion
from collapsium.storage.io.encodings import checked_encoding
from collapsium.storage.io.folder import Folder, ensure_free
from collapsium.storage.readers.base import Source
from collapsium.storage.readers.open import (
    TEXTS,
    ReadOptions,
    open_source,
    open_vectors,
)
from collapsium.storage.readers.read_options import checked_separator
from collapsium.storage.readers.side_files import SideFileRequest, Sides
from collapsium.storage.readers.texts.stopwords import parse_stop_words
from collapsium.storage.units import Counting, silent
from collapsium.workers.ingest.normal_forms import library_of


@dataclass(frozen=True)
class NewSources:
    """New sources and the options of their reading."""

    paths: Sequence[str]  # Files, folders and globs
    format: str | None = None  # Their format; by default recognised by the first name, or else the recorded one
    # The user's options of reading; see `collapsium.storage.readers.open.ReadOptions`
    options: Mapping[str, Any] = field(default_factory=dict)
    may_be_empty: bool = False  # True if sources without a word of the vocabulary are permitted


def ingest_like(
    recorded: RecordedReading,
    sources: NewSources,
    corpus: str | os.PathLike[str],
    *,
    history: History | None = None,
    sides: Sides | None = None,
    shard_tokens: int | None = None,
    scheduler: Scheduler | None = None,
    workers: int | None = None,
    tls: TLS | None = None,
    progress: Counting = silent,
) -> Manifest:
    """Write new documents as a corpus with the vocabulary of a record."""
    paths = list(paths_of(sources.paths))
    ensure_free(Folder(corpus))
    history = history or history_like(recorded, paths, sources.options, sources.format)
    how: dict[str, Any] = {"shard_tokens": shard_tokens, "sides": sides, "progress": progress}
    if history.kind == "vectors":
        vectors, expected = open_vectors(paths, history.options), recorded.vocabulary.words
        columns = vectors.columns()
        if columns != expected:
            pairs = zip(columns, expected, strict=False)
            differing = (f"{column!r} for {word!r}" for column, word in pairs if column != word)
            first = next(differing, f"{len(columns)} columns")
            named = f"the {len(expected)} columns of {recorded.name}, in their order"
            raise MismatchError(f"{vectors.name}: expected {named}, found {first}")
        return ingest_vectors(vectors, corpus, history=history, **how)
    if history.kind not in TEXTS:
        history = with_guesses_of_counts(history, paths)
        source = RelabelledSource(_counted(recorded, paths, history), recorded.vocabulary.words)
        # Without a common word, the documents are of another kind.
        may_be_empty = sources.may_be_empty and source.knows_words
        return ingest_source(source, corpus, history=_plain(history), may_be_empty=may_be_empty, **how)
    how |= {"scheduler": scheduler, "workers": workers, "tls": tls}
    how["like"] = RecordedVocabulary(recorded.vocabulary, sources.may_be_empty)
    if not history.exploded:
        return ingest_texts(paths, corpus, history, **how)
    target = Folder(corpus)
    head, _, name = target.address.rpartition("/")
    unexploded = Folder(f"{head or '.'}/.{name}.{uuid.uuid4().hex[:8]}.whole")
    try:
        ingest_texts(paths, unexploded.url, replace(history, exploded=False), **how)
        return explode_corpus(Corpus(unexploded.url), corpus)
    finally:
        unexploded.remove()


def _plain(history: History) -> History:
    """Return a history of word counts without the settings of texts, and without the path of a file of ids."""
    options = replace(history.options, id=None) if history.kind in ("mtx", "npz") else history.options
    return replace(history, options=options, phrasing=None, exploded=False)


def _counted(recorded: RecordedReading, paths: list[str], history: History) -> Source:
    """Open word counts with their vocabulary file or, if there is none, with the recorded words."""
    try:
        return open_source(paths, history.kind, history.options)
    except NoVocabularyError as error:
        history_of_record = recorded.history
        pruned = (
            history_of_record is None
            or history_of_record.kind in TEXTS
            or history_of_record.report.words < history_of_record.report.source_words
        )
        if pruned:
            raise NoVocabularyError(
                error.path,
                f"expected the words of its numbers: they may differ from {recorded.name}'s, whose vocabulary was "
                "made of texts or pruned; name the file of words that belongs to it (`vocabulary` FILE)",
            ) from None
        return open_source(paths, history.kind, replace(history.options, vocabulary=tuple(recorded.vocabulary.words)))


def reading_options(arguments: Mapping[str, Any]) -> ReadOptions:
    """Return checked options of reading."""
    unknown = next((name for name in arguments if name not in READING), None)
    if unknown is not None:
        raise OptionError(f"unknown option {unknown!r}{suggestion(unknown, READING)}")
    return _reading_of(IngestOptions(**arguments))


def _reading_of(options: IngestOptions) -> ReadOptions:
    """Return the options that readers take."""
    reading = {name: getattr(options, name) for name in READING}
    words = None if options.stop_words is None else names_of(options.stop_words, "stop_words")
    transpose = None if options.transpose is None else options.transpose == "yes"
    return ReadOptions(**{**reading, "stop_words": words, "transpose": transpose})


@shows("reading documents")
@keywords(options=IngestOptions, scheduling=Scheduling)
@overwrites("corpus")
def ingest(
    sources: Any,
    corpus: str | os.PathLike[str] | None = None,
    *,
    options: IngestOptions,
    scheduling: Scheduling,
    progress: Counting = silent,
) -> Manifest | Corpus:
    """Read files of texts, word counts or vectors, and write a corpus.

    Texts are read and tokenized on workers; the corpus does not depend on their number.

    Parameters
    ----------
    sources : path, AnnData, sequence of these, or Dask frame, column or bag
        Files, folders or, for texts, globs; local or fsspec URLs. Or AnnData objects, in memory, backed or lazy. Or a
        Dask collection of texts, whose partitions its workers write beside the corpus, so that none is collected here.
    corpus : str or path-like, optional
        Folder to make. By default the corpus is temporary, and is removed when the returned object is collected.
    options : IngestOptions
        Format and fields of the sources, words, pruning of the vocabulary, and size of shards.

    Returns
    -------
    Manifest or Corpus
        The corpus's manifest or, without `corpus`, the corpus;
        `collapsium.storage.building.ingest_record.read_history` returns what was dropped.

    Raises
    ------
    CollapsiumError
        A source is missing or damaged, the folder exists, or an option belongs to another format. No folder is left.
    """
    if corpus is None:
        with place_for(None, "corpus") as place:
            shared = Folder(place.path.rpartition("/")[0])
            require_shared(shared, scheduling.scheduler, scheduling.tls, target=None, option="corpus")
            ingest(sources, place.path, **dict(options), **dict(scheduling), progress=progress)
            return place.with_temporary(Corpus(place.path))
    if is_lazy(sources):
        with _partitions(sources, corpus, options, scheduling.scheduler, progress) as folder:
            files = {**dict(options), **dict(scheduling), "format": "parquet"}
            return ingest(folder, corpus, **files, progress=progress)
    paths = _paths_of_sources(sources)
    cuts = Cuts(options.min_documents, options.max_document_share, options.max_words)
    reading = chosen_words(_reading_of(options))
    phrasing = phrasing_of(options.phrases, options.phrase_count, options.phrase_threshold)
    ensure_free(Folder(corpus))
    if isinstance(reading.vocabulary, str):
        reading = replace(reading, vocabulary=vocabulary_of(reading.vocabulary))
    side_files = SideFileRequest(options.label_files, options.label_names)
    executor = dict(scheduling)
    how: dict[str, Any] = {"shard_tokens": options.shard_tokens, "progress": progress}
    if options.like is not None:
        if cuts.drops_words or phrasing is not None:
            raise OptionError(
                "`min_documents`, `max_document_share`, `max_words` and `phrases`: not allowed with `like`, whose "
                "record determines words and phrases"
            )
        recorded = recorded_reading(options.like)
        named = {field.name: getattr(reading, field.name) for field in fields_of(reading)}
        history = history_like(recorded, paths, named, options.format, sides=bool(side_files.files))
        _require_files(history.kind, reading, side_files)
        sides, reading, side_record = read_side_files(side_files, paths, history.kind, history.options)
        history = replace(history, options=reading, side_files=side_record)
        new = NewSources(paths, options.format, named)
        return ingest_like(recorded, new, corpus, history=history, sides=sides, **how, **executor)
    kind, guesses = format_of(paths, options.format)
    _require_files(kind, reading, side_files)
    columns, reading, side_record = read_side_files(side_files, paths, kind, reading)
    _require_own(kind, reading, cuts, options.phrases)
    report = Report(guesses=guesses)
    history = History(kind, reading, cuts, phrasing=phrasing, side_files=side_record, report=report)
    how["sides"] = columns
    if kind == "vectors":
        return ingest_vectors(open_vectors(paths, reading, strict=True), corpus, history=history, **how)
    if kind in TEXTS:
        return ingest_texts(paths, corpus, history, **executor, **how)
    history = with_guesses_of_counts(history, paths)
    source = open_source(paths, kind, history.options)
    history = replace(_plain(history), fixed_vocabulary=True)
    return ingest_source(source, corpus, cuts=cuts, history=history, **how)


def _paths_of_sources(sources: object) -> list[str]:
    """Return the paths, or AnnData objects, that are ingested."""
    if has_named_matrix(sources) and not is_annotated(sources):
        raise OptionError(f"expected an AnnData object, found {type(sources).__name__}; pass its to_adata()", "sources")
    try:
        paths = list(paths_of(sources))
    except OptionError as error:
        raise OptionError(
            f"{error.message}; `fit` takes texts in memory, and estimators take matrices", "sources"
        ) from None
    if not paths:
        raise OptionError("expected at least one source")
    return paths


@contextmanager
def _partitions(
    texts: Any, corpus: str | os.PathLike[str], options: IngestOptions, scheduler: Scheduler, progress: Counting
) -> Iterator[str]:
    """Let the workers write the partitions of a Dask collection beside the corpus, which all of them have to see."""
    fields = columns_named(dict(options))
    check_lazy(texts, fields)
    ensure_free(Folder(corpus))
    folder = Folder(f"{Folder(corpus).address}.{uuid.uuid4().hex[:8]}.texts")
    try:
        require_shared(folder, scheduler, None, target=Folder(corpus).url, option="corpus")
        optional = () if options.id else (ID,)
        dask, arguments = dask_collections(), (folder, fields, optional)
        parts = dask.partitions(texts)
        # A caller's function counts the documents as they are ingested, after all partitions are computed.
        show = progress.of_partitions(len(parts)) if isinstance(progress, Counter) else silent
        written = dask.compute_partitions(parts, write_partition, arguments, scheduler, lambda part: show(part.rows))
        require_fields(written, fields)
        yield folder.address
    except InputError as error:
        # Files of the folder are unknown to the caller.
        head, _, file = error.path.rpartition("/")
        if folder.address not in (head, error.path):
            raise
        partition = ""
        if head == folder.address:
            partition = f"partition {int(file.removeprefix('part-').removesuffix('.parquet'))}"
        where = ", ".join(filter(None, (partition, error.where)))
        raise InputError(NAME, error.expected, where) from None
    finally:
        folder.remove()


def chosen_words(options: ReadOptions) -> ReadOptions:
    """Return checked options of words, with the stop words read from files."""
    if options.min_characters is not None and options.min_characters < 1:
        raise OptionError(f"expected a whole number of 1 or more, found {options.min_characters!r}", "min_characters")
    options = replace(
        options,
        encoding=checked_encoding(options.encoding),
        separator=checked_separator(options.separator),
        label_separator=checked_separator(options.label_separator, "label_separator"),
    )
    languages, words = parse_stop_words(options.stop_words, options.encoding)
    library = None if options.normalise is None else library_of(options.normalise)
    stop_list = (*options.stop_list, *words)
    return replace(options, stop_words=languages, stop_list=stop_list, normalised_by=library, word_rule=RULE)


def _require_own(kind: str, options: ReadOptions, cuts: Cuts, phrases: str | None) -> None:
    """Refuse options that do not apply to the format."""
    texts: dict[str, object] = {
        "stop_words": options.stop_words,
        "min_characters": options.min_characters,
        "normalise": options.normalise,
        "text": options.text,
        "title": options.title,
        "date": options.date,
        "date_order": options.date_order,
        "covariates": options.covariates,
        "tokenizer": options.tokenizer,
        "bad_bytes": options.bad_bytes,
        "phrases": phrases,
        "segments": options.segments,
        "unknown_share": options.unknown_share,
    }
    words: dict[str, object] = {
        "min_documents": cuts.min_documents,
        "max_document_share": cuts.max_document_share < 1,
        "max_words": cuts.max_words,
    }
    vectors: dict[str, object] = {"values": options.values, "header": options.header}
    if options.layer is not None and kind != "anndata":
        raise OptionError(f"applies only to AnnData, found the format {kind}", "layer")
    if options.transpose is not None and kind not in ("mtx", "npz"):
        raise OptionError(f"applies only to mtx and npz, found the format {kind}", "transpose")
    if options.binarise and kind not in ("anndata", "mtx", "npz"):
        raise OptionError(f"applies only to anndata, mtx and npz, found the format {kind}", "binarise")
    if options.index_base is not None and kind != "svmlight":
        raise OptionError(f"applies only to svmlight, found the format {kind}", "index_base")
    if kind == "vectors":
        wrong, owner = {**texts, **words}, "documents; vectors have no words"
    elif kind in TEXTS:
        wrong, owner = vectors, "vectors (`format` vectors)"
    else:
        named = {"labels": options.labels, "covariates": options.covariates}
        wrong, owner = vectors if kind == "anndata" else vectors | named, "texts, vectors and AnnData"
        del texts["covariates"]
        with_ids = kind in ("anndata", "mtx", "npz")
        name = next((name for name, value in {**texts, "id": options.id and not with_ids}.items() if value), None)
        if name is not None:
            owner = "texts, vectors, AnnData, matrices and side files" if name == "id" else "texts"
            raise OptionError(f"applies only to {owner}; the format {kind} has word counts", name)
    for name, value in wrong.items():
        if value:
            raise OptionError(f"applies only to {owner}", name)


def _require_files(kind: str, options: ReadOptions, side_files: SideFileRequest) -> None:
    """Refuse options about the layout of files if no file has such a layout."""
    of_text = kind != "parquet" or side_files.files or isinstance(options.vocabulary, str) or options.stop_list
    if options.encoding is not None and not of_text:
        raise OptionError(f"applies only to files of text, found the format {kind}", "encoding")
    if options.separator is not None and kind not in ("csv", "vectors") and not side_files.files:
        raise OptionError(f"applies only to tables (csv, vectors, side files), found the format {kind}", "separator")
    if options.label_separator is not None and not side_files.files:
        raise OptionError("applies only to side files (`label_files`)", "label_separator")


@shows("exploding documents")
@keywords()
@overwrites("out")
def explode(
    corpus: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *, progress: Counting = silent
) -> Manifest | Corpus:
    """Make a corpus whose documents are the segments of another.

    The segments of a document, empty ones included, become documents with the ids ``ID#1``, ``ID#2`` and so on, and
    with its title, date, labels and covariates. The vocabulary and the division into shards stay the same.

    Parameters
    ----------
    corpus : str or path-like
        A corpus with segments (`ingest` with `segments`).
    out : str or path-like, optional
        Folder to make. By default the corpus is temporary, and is removed when the returned object is collected.

    Returns
    -------
    Manifest or Corpus
        Manifest of the new corpus or, without `out`, the corpus.

    Raises
    ------
    CollapsiumError
        The corpus is damaged or has no segments, or the folder exists. No folder is left.
    """
    with place_for(out, "corpus") as place:
        manifest = explode_corpus(Corpus(corpus), place.path, progress=progress)
        return manifest if out is not None else place.with_temporary(Corpus(place.path))
