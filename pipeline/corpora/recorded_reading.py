"""Recorded options of reading of a corpus, run or model, to read later documents in the same way."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa

from collapsium.pipeline.corpora.options import READING
from collapsium.pipeline.models.model import Model
from collapsium.pipeline.models.registry import load_family
from collapsium.storage.building.ingest_record import History, Report, SideFileColumns, read_history
from collapsium.storage.building.split import covariates_of
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.manifest import DOCUMENTS, MANIFEST, VECTORS
from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.corpus.vocabulary import Vocabulary
from collapsium.storage.corpus.word_rule import RULE
from collapsium.storage.errors import AbsentError, CollapsiumError, OptionError, suggestion
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.base import encoding_guesses
from collapsium.storage.readers.matrices import matrix_inside
from collapsium.storage.readers.open import FORMATS, TEXTS, ReadOptions, guess_format, kind_of_name, resolved_index_base
from collapsium.storage.readers.read_options import Guess, with_guesses
from collapsium.storage.readers.side_files import SideFileRequest, Sides, read_sides
from collapsium.storage.readers.texts.blocks import FIXED, find_files
from collapsium.storage.readers.texts.fields import Fields, named
from collapsium.storage.readers.texts.segment import HEADINGS
from collapsium.storage.readers.texts.stopwords import DEFAULT as STOP_WORDS
from collapsium.storage.readers.texts.tables import columns_of
from collapsium.storage.runs.run import RECORD as RUN_RECORD
from collapsium.storage.runs.run import Run

OWN = (*(kind for kind in TEXTS if kind not in FIXED), "vectors")  # Formats whose documents have fields


def read_side_files(
    files: SideFileRequest, paths: list[str], kind: str, options: ReadOptions
) -> tuple[Sides | None, ReadOptions, SideFileColumns | None]:
    """Read side files, and return the options that are left for the fields of the documents.

    A named field belongs to side files, to the documents, or to both; labels of both are united.
    """
    if not files.files and not files.names:
        return None, options, None
    content = read_sides(files, options)
    names = Fields.of(options)
    # Fields of other formats than tables are unknown before reading.
    is_table = kind in ("csv", "parquet")
    document_columns = columns_of(find_files(paths, kind, kind_of_name)[0], kind, options) if is_table else []
    left = {}
    for flag, named_fields, pairs in (
        ("labels", options.labels, names.labels),
        ("covariates", options.covariates, names.covariates),
    ):
        lost = next((field for _, field in pairs if field not in content.fields), None)
        if lost is not None and kind not in OWN:
            present = f"; there are {named(sorted(content.fields))}" if content.fields else ""
            raise OptionError(
                f"`{flag}` {lost}: no side file has such a field{suggestion(lost, content.fields)}{present}"
            )
        left[flag] = tuple(
            text
            for text, (_, field) in zip(named_fields, pairs, strict=True)
            if field not in content.fields or kind == "jsonl" or field in document_columns
        )
    sides = Sides(content.files, guesses=content.guesses)
    record = SideFileColumns(tuple(sorted(sides.columns)), content.labels, content.covariates, options.id)
    reading = replace(options, labels=left["labels"], covariates=left["covariates"])
    if kind not in OWN and content.fields:
        reading = replace(reading, id=None)
    return sides, reading, record


def read_appended_side_files(
    files: SideFileRequest, record: SideFileColumns | None, options: ReadOptions, fields: Mapping[str, str]
) -> Sides | None:
    """Read side files of documents that are added to a corpus, like the corpus's side files."""
    if record is None and not files.files and not files.names:
        return None
    known = record or SideFileColumns(())
    options = replace(options, labels=known.labels, covariates=known.covariates, id=known.id)
    columns = {name: LABELS if name == "labels" else pa.float64() for name in known.columns}
    covariates = None if known.labels or known.covariates else covariates_of(fields)
    content = read_sides(files, options, covariates)
    return Sides(content.files, columns, content.guesses)


FIELDS = ("title", "date", "labels", "covariates")
# Options of the sources' layout, not of tokenization, which may differ from the recorded ones
OF_SOURCES = (
    "id", "text", *FIELDS, "date_order", "bad_bytes", "index_base", "layer", "transpose", "values", "header",
    "vocabulary", "max_decompressed", "encoding", "separator", "label_separator", "unknown_share",
)  # fmt: skip
OF_COUNTS = (
    "id", "labels", "covariates", "layer", "transpose", "binarise", "index_base", "vocabulary", "max_decompressed",
    "encoding",
)  # fmt: skip
OF_VECTORS = (
    "id", "labels", "covariates", "values", "header", "vocabulary", "max_decompressed", "encoding", "separator",
)  # fmt: skip
OF_SIDE_FILES = ("id", "labels", "covariates", "separator", "label_separator")
OF_STOP_WORDS = ("stop_words", "stop_list")
# Options that may differ, are compared in another way, or follow from the release
NOT_COMPARED = (*OF_SOURCES, *OF_STOP_WORDS, "normalised_by", "word_rule")


@dataclass(frozen=True)
class RecordedReading:
    """Recorded reading of the documents of a corpus or of a model's training corpus."""

    name: str  # Path of the folder with the record, for errors
    holds: str  # ``documents`` or ``vectors``
    history: History | None  # The record; None without one, as for corpora of `simulate`
    vocabulary: Vocabulary  # The words, or the columns of vectors

    @property
    def notice(self) -> str | None:
        """A line on the reading of texts if the record does not determine it; None if it does."""
        if self.holds == VECTORS or (self.history is not None and self.history.kind in TEXTS):
            return None
        why = "has no record of the reading of its documents"
        if self.history is not None and self.history.kind:
            why = f"was made of word counts (format {self.history.kind})"
        return f"{self.name} {why}: texts are tokenized by the default tokenizer, and words matched to its vocabulary"


def recorded_reading(path: str | os.PathLike[str]) -> RecordedReading:
    """Return the recorded reading of documents."""
    folder = Folder(path)
    if folder.exists(MANIFEST):
        corpus = Corpus(path)
        return RecordedReading(corpus.url, corpus.holds, read_history(folder), corpus.vocabulary)
    return reading_of_model(Model(path), folder.url)


def reading_of_model(model: Model, name: str | None = None) -> RecordedReading:
    """Return the recorded reading of a model's training documents; see `recorded_reading`."""
    history = read_history(model.folder) or _of_corpus(model.folder)
    holds = load_family(model.record.family).corpus_kind
    return RecordedReading(name or model.folder.url, holds, history, model.vocabulary)


def _of_corpus(place: Folder) -> History | None:
    """Return the record of the training corpus that a model's or checkpoint's run names; None if it is missing."""
    for _ in range(2):
        parent = place.address.rpartition("/")[0]
        if not parent:
            return None
        place = Folder(parent)
        if not place.exists(RUN_RECORD):
            continue
        try:
            named = Run(parent).place_of("corpus")
            return read_history(Folder(named)) if named is not None and Folder(named).exists(MANIFEST) else None
        except (CollapsiumError, KeyError, TypeError, OSError, ImportError, ValueError):
            return None
    return None


def vocabulary_of(path: str | os.PathLike[str]) -> str | tuple[str, ...]:
    """Return the words of a corpus, run or model, or the path of a file of words."""
    folder = Folder(path)
    if not folder.is_folder():
        return os.fspath(path)
    try:
        return tuple(recorded_reading(path).vocabulary.words)
    except AbsentError as error:
        raise AbsentError(f"{error}; expected a file of words, a corpus, a run or a model (`vocabulary`)") from None


def history_for(recorded: History | None, kind: str) -> History:
    """Return the recorded reading, restricted to the options that a format has."""
    record = recorded or History("", ReadOptions(word_rule=RULE))
    options = record.options
    if kind in FIXED and kind != record.kind:
        options = replace(
            options, id=None, text=None, title=None, date=None, date_order=None, labels=(), covariates=(),
            index_base=None,
        )  # fmt: skip
    elif record.kind in FIXED and kind != record.kind:
        options = replace(options, labels=(), index_base=None)
    return replace(record, kind=kind, options=options)


def history_like(
    recorded: RecordedReading,
    paths: Sequence[str],
    arguments: Mapping[str, Any],
    format: str | None = None,
    *,
    sides: bool = False,
) -> History:
    """Return the reading of new sources, as recorded."""
    kind, guesses = "vectors", tuple[Guess, ...]()
    if recorded.holds != VECTORS:
        kind, guesses = format_of(paths, format, "" if recorded.history is None else recorded.history.kind)
        if kind not in FORMATS:
            raise OptionError(f"unknown format {kind!r}{suggestion(kind, FORMATS)}", "format")
        if kind == "vectors":
            raise OptionError(f"{paths[0]}: expected {DOCUMENTS} as {recorded.name} has, found the format {kind}")
    history = history_for(recorded.history, kind)
    if kind not in TEXTS:
        applicable = OF_SIDE_FILES if sides else ()
        having = "has vectors" if kind == "vectors" else "has word counts"
        allowed = (*applicable, *(OF_VECTORS if kind == "vectors" else OF_COUNTS))
        for name, value in arguments.items():
            if name in READING and name not in allowed and value is not False and value not in (None, ()):
                flag = "headings" if name == "segments" and str(value).startswith(HEADINGS) else name
                raise OptionError(f"applies only to texts; the format {kind} {having}", flag)
    _require_as_recorded(recorded, arguments)
    named = {name: value for name, value in arguments.items() if name in OF_SOURCES and value not in (None, ())}
    if history.kind in TEXTS and "vocabulary" in named:
        raise OptionError(f"the words of texts are looked up in the vocabulary of {recorded.name}", "vocabulary")
    options = replace(history.options, **{"vocabulary": None, "max_decompressed": None, **named})
    options = with_guesses(options, history.report.guesses)
    fields_of_record = [getattr(options, name) for name in FIELDS if name not in named]
    flat = [text for value in fields_of_record for text in ((value,) if isinstance(value, str) else value or ())]
    optional = tuple(text.partition("=")[2] or text for text in flat)
    return replace(
        history,
        options=replace(options, optional=optional),
        fixed_vocabulary=True,
        side_files=None,
        appended=(),
        report=Report(guesses=guesses),
    )


def format_of(paths: Sequence[str], format: str | None, recorded: str | None = None) -> tuple[str, tuple[Guess, ...]]:
    """Return the format of sources, with the guess if no option names it.

    Later sources whose names imply no format have the recorded one if that is a format of texts.
    """
    if format is not None:
        return format, ()
    kind = guess_format(paths, recorded)
    return kind, (Guess("format", kind, "format"),)


def with_guesses_of_counts(history: History, paths: Sequence[str]) -> History:
    """Return a reading of word counts with the first index of SVMlight files, and with all guesses."""
    if history.kind == "anndata":
        return history
    options = resolved_index_base(list(paths), history.kind, history.options)
    guesses = encoding_guesses([matrix_inside(path) or path for path in paths])
    if options.index_base != history.options.index_base:
        guesses += (Guess("first index", str(options.index_base), "index_base"),)
    report = replace(history.report, guesses=(*history.report.guesses, *guesses))
    return replace(history, options=options, report=report)


def _require_as_recorded(recorded: RecordedReading, arguments: Mapping[str, Any]) -> None:
    """Refuse options that contradict the record, and recorded code or patterns that the user does not name."""
    options = (recorded.history or History("")).options
    languages, words = arguments.get("stop_words"), arguments.get("stop_list") or ()
    chosen, default = (set((names or STOP_WORDS).split(",")) for names in (languages, options.stop_words))
    # The default may be named.
    differ = chosen != default or set(words) != set(options.stop_list)
    if (languages is not None or words) and differ:
        lists = [
            "" if not stop_words else f" and a list of {len(stop_words):,} words"
            for stop_words in (words, options.stop_list)
        ]
        raise OptionError(
            f"`stop_words` {','.join(sorted(chosen))}{lists[0]}: the documents of {recorded.name} were read with "
            f"{','.join(sorted(default))}{lists[1]}; read new ones in the same way"
        )
    for field in fields(ReadOptions):
        value, recorded_value = arguments.get(field.name), getattr(options, field.name)
        if field.name in NOT_COMPARED or value in (None, ()) or value == recorded_value:
            continue
        flag = field.name
        how = "without it" if recorded_value is None else f"with `{flag}` {recorded_value}"
        raise OptionError(
            f"`{flag}` {value}: the documents of {recorded.name} were read {how}; read new ones in the same way"
        )
    require_named_again(recorded.name, options, arguments.get("tokenizer"), arguments.get("segments"))


def require_named_again(name: str, options: ReadOptions, tokenizer: str | None, segments: str | None) -> None:
    """Refuse to run recorded code or regular expressions that the user does not name.

    The record may be untrusted. A function runs with the user's rights, and a regular expression may not end.
    """
    if options.tokenizer is not None and tokenizer is None:
        raise OptionError(
            f"{name}: its texts are tokenized by the function {options.tokenizer}; if you trust it, name it again "
            f"(`tokenizer` {options.tokenizer})"
        )
    if options.segments is not None and options.segments.startswith(HEADINGS) and segments is None:
        pattern = options.segments.removeprefix(HEADINGS)
        raise OptionError(
            f"{name}: its texts are divided by the regular expression {pattern!r}; if you trust it, name it again "
            f"(`headings` {pattern!r}, or for ingest `segments` {options.segments!r})"
        )
