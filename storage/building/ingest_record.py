"""``ingest.json`` of a corpus: how its documents were read and tokenized, and what was dropped and why.

What is added later is read the same way. Nothing in it is a path, a URL or a time: the same sources give the same one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import pydantic

from collapsium.storage.building.vocabulary_cuts import Cuts
from collapsium.storage.choices import SCORES
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import DamagedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump, read_record
from collapsium.storage.readers.dropped_words import Dropped
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.short_repr import ShortRepr, short

FILE, KIND, VERSION = "ingest.json", "collapsium-ingest", 6
_SOMETIMES = ("unmatched_rows", "segments")  # of a report
_LISTS = ("labels", "covariates")
# Of one reading alone; every other option is recorded where it is not the default.
_NEVER = ("vocabulary", "max_decompressed", "optional")
MAX_LETTERS = 1000  # of the shortest word that is kept
_ALWAYS = ("id", "text", "title", "date", "stop_words", "tokenizer", "bad_bytes", "index_base")


@dataclass(frozen=True, repr=False)
class Report(ShortRepr):
    """What was read, and what was dropped and why.

    Attributes
    ----------
    files, bytes : int
        What was read, compressed or not.
    documents : int
        Documents that were written.
    empty_documents : int
        Those without a word that is kept; they are kept too.
    missing_text : int
        Those without a text.
    replaced_bytes : int
        Those with bytes that are not UTF-8.
    skipped_documents : int
        Documents that were left out as they were there already.
    words_found, words : int
        Distinct words found, and kept.
    tokens_found, tokens : int
        Their tokens; a phrase is one.
    phrases : int
        Pairs of words that are phrases.
    dropped : tuple of Dropped
        Words that a rule has dropped, in the order in which the rules were applied.
    unmatched_rows : int
        Ids of side files that no document has.
    segments : int
        Segments of the documents; 0 where there are none.
    """

    files: int = 0
    bytes: int = 0
    documents: int = 0
    empty_documents: int = 0
    missing_text: int = 0
    replaced_bytes: int = 0
    skipped_documents: int = 0
    words_found: int = 0
    words: int = 0
    tokens_found: int = 0
    tokens: int = 0
    phrases: int = 0
    dropped: tuple[Dropped, ...] = ()
    unmatched_rows: int = 0
    segments: int = 0

    @property
    def unknown_tokens(self) -> int:
        """Tokens of words that the vocabulary does not have, without those of stop words and of frequent words."""
        return sum(one.tokens for one in self.dropped if one.unknown)


@dataclass(frozen=True, repr=False)
class Beside(ShortRepr):
    """What came of side files, so that documents that are added get the same columns.

    Attributes
    ----------
    columns : tuple of str
        Columns of the corpus that they gave.
    labels, covariates : tuple of str
        ``NAME=FIELD`` of their records.
    id : str or None
        The field of the ids that was said.
    """

    columns: tuple[str, ...]
    labels: tuple[str, ...] = ()
    covariates: tuple[str, ...] = ()
    id: str | None = None


@dataclass(frozen=True, repr=False)
class Phrasing(ShortRepr):
    """How phrases of two words are found.

    Attributes
    ----------
    score : str
        ``npmi`` or ``count``.
    least : int
        Times that a phrase must occur.
    threshold : float
        Its score is above this.
    pairs : tuple of (str, str)
        The phrases that were found.
    """

    score: str
    least: int
    threshold: float
    pairs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, repr=False)
class History(ShortRepr):
    """How a corpus came about.

    Attributes
    ----------
    kind : str
        The format of its sources.
    options : ReadOptions
        Fields, stop words and the tokenizer; no path.
    cuts : Cuts
        Which words were kept.
    given : bool
        Whether the vocabulary was given.
    phrasing : Phrasing or None
        The phrases.
    report : Report
        What ingesting dropped.
    appended : tuple of Report
        What each addition dropped.
    beside : Beside or None
        What side files gave.
    frequent : tuple of str
        Words that were dropped as too many documents hold them, which are dropped of documents that are added too.
    flattened : bool
        Whether the corpus's documents are the segments of those that were read.
    """

    kind: str
    options: ReadOptions = field(default_factory=ReadOptions)
    cuts: Cuts = field(default_factory=Cuts)
    given: bool = False
    phrasing: Phrasing | None = None
    report: Report = field(default_factory=Report)
    appended: tuple[Report, ...] = ()
    beside: Beside | None = None
    frequent: tuple[str, ...] = ()
    flattened: bool = False

    def until(self, documents: int) -> History:
        """Return the history of the first documents: without an addition that was cut off before the manifest."""
        appended = list(self.appended)
        while appended and self.report.documents + sum(one.documents for one in appended) > documents:
            appended.pop()
        return replace(self, appended=tuple(appended))

    def record(self) -> JsonObject:
        """Return what ``ingest.json`` says."""
        reading = _reading(self.options)
        told: JsonObject = {} if self.beside is None else {"beside": _plain(self.beside)}
        told.update({"frequent": list(self.frequent)} if self.frequent else {})
        told.update({"flattened": True} if self.flattened else {})
        return {
            **told,
            "format": KIND,
            "version": VERSION,
            "reading": {"format": self.kind, **reading},
            "cuts": {**asdict(self.cuts), "vocabulary_given": self.given},
            "phrases": None if self.phrasing is None else _plain(self.phrasing),
            "report": _plain(self.report),
            "appended": [_plain(one) for one in self.appended],
        }

    def write(self, folder: Folder) -> None:
        """Write it beside the manifest."""
        folder.write(FILE, dump(self.record()))


def _reading(options: ReadOptions) -> JsonObject:
    """Return the options of reading that a record has, as JSON has them."""
    named = {one.name: (getattr(options, one.name), one.default) for one in fields(options) if one.name not in _NEVER}
    always = (*_ALWAYS, *_LISTS)
    return {name: _listed(value) for name, (value, default) in named.items() if name in always or value != default}


@functools.cache
def _adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(kind)


def _read(kind: Any, said: Any) -> Any:
    """Read a part of a record, which may be anybody's; `ValueError` where it has other fields or values."""
    if not isinstance(said, dict):
        raise ValueError(f"expected fields, found {short(said)}")
    known = [one.name for one in fields(kind) if kind is not ReadOptions or one.name not in _NEVER]
    unknown = next((name for name in said if name not in known), None)
    if unknown is not None:
        raise ValueError(f"unknown option {unknown!r}")
    return _adapter(kind).validate_python(said)


def _reading_of(said: Mapping[str, Any]) -> ReadOptions:
    options: ReadOptions = _read(ReadOptions, {name: value for name, value in said.items() if name != "format"})
    for name, most in (("min_letters", MAX_LETTERS), ("index_base", 1)):
        value = getattr(options, name)
        if value is not None and not 0 <= value <= most:
            raise ValueError(f"expected {name} from 0 to {most}, found {value}")
    return options


def _plain(one: Report | Phrasing | Beside) -> JsonObject:
    """Return lists for tuples, as JSON has them, without what there is only of side files and segments."""
    return {name: _listed(value) for name, value in asdict(one).items() if value or name not in _SOMETIMES}


def _listed(value: Any) -> Any:
    return [_listed(one) for one in value] if isinstance(value, (list, tuple)) else value


def read_history(folder: Folder) -> History | None:
    """Read how a corpus came about.

    Parameters
    ----------
    folder : Folder
        The corpus.

    Returns
    -------
    History or None
        None for corpora that were not ingested, or before there was such a record.

    Raises
    ------
    DamagedError
        The record is not what its format asks for.
    """
    if not folder.exists(FILE):
        return None
    record = read_record(folder, FILE, KIND, VERSION, oldest=VERSION)
    path = f"{folder.url}/{FILE}"
    try:
        reading, cuts = record["reading"], dict(record["cuts"])
        given = bool(cuts.pop("vocabulary_given"))
        phrases, beside = record["phrases"], record.get("beside")
        phrasing = None if phrases is None else _read(Phrasing, phrases)
        if phrasing is not None and phrasing.score not in SCORES:
            raise ValueError(f"expected {' or '.join(SCORES)} of phrases, found {short(phrasing.score)}")
        return History(
            str(reading["format"]),
            _reading_of(reading),
            _read(Cuts, cuts),
            given,
            phrasing,
            _read(Report, record["report"]),
            tuple(_read(Report, one) for one in record["appended"]),
            None if beside is None else _read(Beside, beside),
            tuple(map(str, record.get("frequent", ()))),
            record.get("flattened") is True,
        )
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise DamagedError(path, f"expected the record of an ingest ({name}: {first['msg']})") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedError(path, f"expected the record of an ingest ({error})") from None


def inherit_history(source: Folder, target: Folder, *, documents: int | None = None, flattened: bool = False) -> None:
    """Write the record of a corpus into another that was made of it, or into a model that was fitted to it.

    Parameters
    ----------
    source, target : Folder
        The corpus, which may have no record, and the folder to write into.
    documents : int, optional
        How many documents the new corpus has, which are then its first ones: none have been added to it yet.
    flattened : bool, optional
        Whether the documents of the new corpus are the segments of those of `source`.

    Raises
    ------
    DamagedError
        The record is not what its format asks for.
    """
    history = read_history(source)
    if history is None:
        return
    if documents is not None:
        history = replace(history, report=replace(history.report, documents=documents), appended=())
    replace(history, flattened=history.flattened or flattened).write(target)
