"""``ingest.json`` of a corpus: how its documents were read and tokenized, and what was dropped and why.

What is added later is read the same way. Nothing in it is a path, a URL or a time: the same sources give the same one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from collapsar.storage.cuts import Cuts, Dropped
from collapsar.storage.errors import DamagedError
from collapsar.storage.folder import Folder
from collapsar.storage.readers.source import ReadOptions
from collapsar.storage.records import dump, read_record

FILE, KIND, VERSION = "ingest.json", "collapsar-ingest", 5
# Versions of records that have none of these, as older releases know them.
WITHOUT_WORDS, WITHOUT_SEGMENTS, WITHOUT_SIDES = 4, 3, 2
_SOMETIMES = ("unmatched_rows", "segments")  # of a report
_WORDS = ("stop_list", "min_letters")  # of the reading, recorded where they are requested
_READING = ("id_field", "text_field", "title_field", "date_field", "stop_words", "tokenizer", "bad_bytes", "index_base")


@dataclass(frozen=True)
class Report:
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


@dataclass(frozen=True)
class Beside:
    """What came of side files, so that documents that are added get the same columns.

    Attributes
    ----------
    columns : tuple of str
        Columns of the corpus that they gave.
    labels, covariates : tuple of str
        ``NAME=FIELD`` of their records.
    id_field : str or None
        The field of the ids that was said.
    """

    columns: tuple[str, ...]
    labels: tuple[str, ...] = ()
    covariates: tuple[str, ...] = ()
    id_field: str | None = None


@dataclass(frozen=True)
class Phrasing:
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


@dataclass(frozen=True)
class History:
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

    def until(self, documents: int) -> History:
        """Return the history of the first documents: without an addition that was cut off before the manifest."""
        appended = list(self.appended)
        while appended and self.report.documents + sum(one.documents for one in appended) > documents:
            appended.pop()
        return replace(self, appended=tuple(appended))

    def record(self) -> dict[str, Any]:
        """Return what ``ingest.json`` says."""
        reading = {name: getattr(self.options, name) for name in _READING}
        lists = {name: list(getattr(self.options, name)) for name in ("labels", "covariates")}
        told: dict[str, Any] = {} if self.beside is None else {"beside": _plain(self.beside)}
        told.update({"frequent": list(self.frequent)} if self.frequent else {})
        sided = self.beside is not None or any(one.unmatched_rows for one in (self.report, *self.appended))
        version = WITHOUT_SEGMENTS if sided else WITHOUT_SIDES
        if self.options.segments is not None:
            reading["segments"], version = self.options.segments, WITHOUT_WORDS
        chosen = {name: _listed(getattr(self.options, name)) for name in _WORDS if getattr(self.options, name)}
        if chosen:
            reading, version = reading | chosen, VERSION
        return {
            **told,
            "format": KIND,
            "version": version,
            "reading": {"format": self.kind, **reading, **lists},
            "cuts": {**asdict(self.cuts), "vocabulary_given": self.given},
            "phrases": None if self.phrasing is None else _plain(self.phrasing),
            "report": _plain(self.report),
            "appended": [_plain(one) for one in self.appended],
        }

    def write(self, folder: Folder) -> None:
        """Write it beside the manifest."""
        folder.write(FILE, dump(self.record()))


def _plain(one: Report | Phrasing | Beside) -> dict[str, Any]:
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
    record = read_record(folder, FILE, KIND, VERSION, oldest=2)
    try:
        reading = dict(record["reading"])
        kind = str(reading.pop("format"))
        if not isinstance(reading.get("segments"), str | None):
            raise ValueError("expected a way to cut texts into segments")
        if type(reading.get("min_letters", 1)) is not int:
            raise ValueError("expected a number of letters")
        reading["stop_list"] = tuple(map(str, reading.pop("stop_list", ())))
        labels, covariates = (tuple(map(str, reading.pop(name))) for name in ("labels", "covariates"))
        cuts = dict(record["cuts"])
        given = bool(cuts.pop("vocabulary_given"))
        phrases, beside = record["phrases"], record.get("beside")
        if phrases is not None:
            pairs = tuple((str(first), str(second)) for first, second in phrases["pairs"])
            phrases = Phrasing(**{**phrases, "pairs": pairs})
        return History(
            kind,
            ReadOptions(**reading, labels=labels, covariates=covariates),
            Cuts(**cuts),
            given,
            phrases,
            _report(record["report"]),
            tuple(_report(one) for one in record["appended"]),
            None if beside is None else _beside(beside),
            tuple(map(str, record.get("frequent", ()))),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedError(f"{folder.url}/{FILE}", f"expected the record of an ingest ({error})") from None


def _beside(said: dict[str, Any]) -> Beside:
    lists = {name: tuple(map(str, said[name])) for name in ("columns", "labels", "covariates")}
    return Beside(**{**said, **lists})


def _report(said: dict[str, Any]) -> Report:
    return Report(**{**said, "dropped": tuple(Dropped(**one) for one in said["dropped"])})
