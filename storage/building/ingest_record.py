"""``ingest.json`` of a corpus: options of reading, tokenizing and pruning, and counts of what was dropped, by reason.

Documents that are appended later are read with the same options. The record holds no path, URL or time, so that the
same sources give the same record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pydantic

from collapsium.storage.corpus.word_rule import FIRST_RULE, RULE
from collapsium.storage.data_types import SCORES, JsonObject
from collapsium.storage.errors import DamagedError, OptionError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import dump, read_record
from collapsium.storage.printable import ShortRepr, short
from collapsium.storage.readers.base import TOO_FREQUENT, TOO_MANY, TOO_RARE, Dropped
from collapsium.storage.readers.read_options import Guess, ReadOptions
from collapsium.storage.readers.texts.fields import DateTally
from collapsium.storage.readers.texts.segment import LeftOut


@dataclass(frozen=True)
class Cuts:
    """Rules of vocabulary pruning."""

    min_documents: int = 0  # Words in fewer documents are dropped
    max_document_share: float = 1.0  # Words in a larger share of the documents are dropped
    # Largest number of words after these rules. Words are ranked by documents, then tokens, then spelling.
    max_words: int | None = None

    def __post_init__(self) -> None:
        if self.min_documents < 0:
            raise OptionError(f"expected 0 or more, found {self.min_documents}", "min_documents")
        if not 0 < self.max_document_share <= 1:
            raise OptionError(f"expected a share in (0, 1], found {self.max_document_share}", "max_document_share")
        if self.max_words is not None and self.max_words < 1:
            raise OptionError(f"expected 1 or more, found {self.max_words}", "max_words")

    @property
    def drops_words(self) -> bool:
        """True if any rule can drop a word."""
        return self.min_documents > 0 or self.max_document_share < 1 or self.max_words is not None


class Sieve:
    """Drops words of a counted vocabulary, rule by rule, and counts them."""

    def __init__(self, words: pa.Array, documents: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64]) -> None:
        self._words, self._documents, self._tokens = words, documents, tokens
        self.retained: npt.NDArray[np.bool_] = np.ones(len(words), dtype=bool)
        self.dropped: list[Dropped] = []
        self.frequent: tuple[str, ...] = ()

    def drop(self, rule: str, out: npt.NDArray[np.bool_]) -> None:
        """Drop the words for which `out` is true."""
        removed = self.retained & out
        self.retained &= ~out
        self.dropped.append(Dropped(rule, int(removed.sum()), int(self._tokens[removed].sum())))

    def drop_frequent(self, cuts: Cuts, names: tuple[str, ...]) -> None:
        """Drop the words that `Cuts.max_document_share` dropped from earlier documents."""
        if names:
            self.drop_named(_too_frequent(cuts), pa.array(names, pa.string()))

    def drop_named(self, rule: str, names: pa.Array, *, inverted: bool = False) -> None:
        """Drop the words in `names` or, if `inverted` is true, all words that are not in `names`."""
        among = np.asarray(pc.is_in(self._words, value_set=names), dtype=bool)
        self.drop(rule, ~among if inverted else among)

    def cut(self, cuts: Cuts, documents: int, spare: pa.Array | None = None) -> None:
        """Drop words by their documents."""
        spared = pa.array([], pa.string()) if spare is None else spare
        may = ~np.asarray(pc.is_in(self._words, value_set=spared), dtype=bool)
        if cuts.min_documents > 0:
            self.drop(f"{TOO_RARE}{cuts.min_documents} documents", may & (self._documents < cuts.min_documents))
        if cuts.max_document_share < 1:
            # The quotient rounds as the option does: 63 of 90 documents are a share of 0.7, and 0.7 * 90 is below 63.
            frequent = self.retained & may & (self._documents / max(documents, 1) > cuts.max_document_share)
            self.frequent = tuple(self._words.filter(pa.array(frequent)).to_pylist())
            self.drop(_too_frequent(cuts), frequent)
        if cuts.max_words is not None:
            room = max(cuts.max_words - len(spared), 0)
            places = np.flatnonzero(self.retained & may)
            ranks = np.empty(len(self._words), dtype=np.int64)
            ranks[np.asarray(pc.sort_indices(self._words), dtype=np.int64)] = np.arange(len(self._words))
            order = np.lexsort((ranks[places], -self._tokens[places], -self._documents[places]))
            beyond = np.zeros(len(self._words), dtype=bool)
            beyond[places[order[room:]]] = True
            self.drop(f"{TOO_MANY}{cuts.max_words} words", beyond)


def _too_frequent(cuts: Cuts) -> str:
    return f"{TOO_FREQUENT}{cuts.max_document_share:g} of the documents"


FILE, KIND, VERSION = "ingest.json", "collapsium-ingest", 7
OLDEST = 6  # Version of release 0.1, whose reports have no guesses

# Fields of a report that are omitted if they are 0 or empty
_SOMETIMES = ("unmatched_rows", "segments", "attachments", "unspaced_tokens", "dates", "guesses", "left_out")

# Options of a single reading; every other one is recorded if it is among `_ALWAYS` or not the default
_NEVER = ("vocabulary", "max_decompressed", "optional", "unknown_share")
_ALWAYS = (
    "id", "text", "title", "date", "labels", "covariates", "stop_words", "tokenizer", "bad_bytes", "index_base",
)  # fmt: skip

MAX_CHARACTERS = 1000  # Largest value of `min_characters`
RECORDED_AS = {"min_characters": "min_letters"}  # Names of options in records, unchanged since 0.1

# Validators of the parts of a record, cached because they take longer to build than to use
_ADAPTERS: dict[type[object], pydantic.TypeAdapter[Any]] = {}

Part = TypeVar("Part", "Report", "SideFileColumns", "Phrasing", Cuts, ReadOptions)


@dataclass(frozen=True, repr=False)
class Report(ShortRepr):
    """Counts of the documents and words that were read, and of the dropped ones, by reason."""

    # Files that were read, and their size, compressed or not
    files: int = 0
    bytes: int = 0
    documents: int = 0  # Documents that were written
    empty_documents: int = 0  # Documents without a word of the vocabulary; they are written too
    missing_text: int = 0  # Documents without a text
    replaced_bytes: int = 0  # Documents with bytes that are not UTF-8
    skipped_documents: int = 0  # Documents that were already in the corpus
    # Distinct words of the source, and of the vocabulary
    source_words: int = 0
    words: int = 0
    # Tokens of these; a phrase counts as one
    source_tokens: int = 0
    tokens: int = 0
    phrases: int = 0  # Pairs of words that are phrases
    dropped: tuple[Dropped, ...] = ()  # Words that each rule has dropped, in the order of the rules
    unmatched_rows: int = 0  # Ids in side files that no document has
    segments: int = 0  # Segments of the documents; 0 without segments
    attachments: int = 0  # Encoded attachments that were left out
    unspaced_tokens: int = 0  # Tokens that are runs of several words, in scripts without spaces between words
    # Numbers of dates by how they were read; None for documents without a field of dates
    dates: DateTally | None = None
    guesses: tuple[Guess, ...] = ()  # Properties of the input that the readers guessed
    left_out: tuple[LeftOut, ...] = ()  # Files of folders that were not read

    @property
    def remarks(self) -> list[str]:
        """Lines on dates, guesses and files that were left out; names of options are in backticks."""
        dates, lines = self.dates or DateTally(), []
        if dates.missing:
            lines.append(f"{_documents(dates.missing)} without a date")
        if dates.unreadable:
            examples = ", ".join(map(repr, dates.examples))
            lines.append(f"{_documents(dates.unreadable)} with a date that cannot be read, such as {examples}")
        if dates.ambiguous and not any(guess.option == "date_order" for guess in self.guesses):
            orders = [repr(text) for text in (dates.day_first_example, dates.month_first_example) if text]
            why = f"; {' and '.join(orders)} have different orders" if len(orders) > 1 else ""
            remark = f"with an ambiguous date, such as {dates.example!r}"
            lines.append(f"{_documents(dates.ambiguous)} {remark}, of which only the year counts (`date_order`){why}")
        if self.guesses:
            lines.append(self.guessed)
        for group in self.left_out:
            some = f"{', '.join(group.names)}{', ...' if group.files > len(group.names) else ''}"
            lines.append(f"{group.files:,} file{'s' * (group.files > 1)} left out, {group.why}: {some}")
        return lines

    @property
    def guessed(self) -> str:
        """A line on all guesses."""
        values: dict[tuple[str, str], list[str]] = {}
        for guess in self.guesses:
            values.setdefault((guess.what.replace("_", " "), guess.option), []).append(guess.value)
        guesses = [
            f"{what} {' and '.join(texts)}" + (f" (`{option}`)" if option else "")
            for (what, option), texts in values.items()
        ]
        return f"guessed: {', '.join(guesses)}"

    @property
    def unknown_tokens(self) -> int:
        """Number of tokens of words outside the vocabulary, without stop words and too frequent words."""
        return sum(rule.tokens for rule in self.dropped if rule.unknown)


def _documents(number: int) -> str:
    return f"{number:,} document{'s' * (number != 1)}"


@dataclass(frozen=True, repr=False)
class SideFileColumns(ShortRepr):
    """Columns from side files, so that documents that are appended get the same columns."""

    columns: tuple[str, ...]  # Names of the columns
    # ``NAME=FIELD`` of the fields that they come from
    labels: tuple[str, ...] = ()
    covariates: tuple[str, ...] = ()
    id: str | None = None  # The field of the ids, if it was set


@dataclass(frozen=True, repr=False)
class Phrasing(ShortRepr):
    """Rules by which pairs of words become phrases."""

    score: str  # ``npmi`` or ``count``
    least: int  # Least number of occurrences of a phrase
    threshold: float  # Scores of phrases are above this
    pairs: tuple[tuple[str, str], ...] = ()  # The phrases


@dataclass(frozen=True, repr=False)
class History(ShortRepr):
    """Options and reports of the ingest of a corpus and of the documents appended to it."""

    kind: str  # The format of its sources
    options: ReadOptions = field(default_factory=ReadOptions)  # Fields, stop words and the tokenizer; no path
    cuts: Cuts = field(default_factory=Cuts)  # Rules of vocabulary pruning
    fixed_vocabulary: bool = False  # True if the user named the vocabulary
    phrasing: Phrasing | None = None  # The phrases
    report: Report = field(default_factory=Report)  # Counts of the ingest
    appended: tuple[Report, ...] = ()  # Counts of each addition
    side_files: SideFileColumns | None = None  # Columns from side files
    # Words dropped because too many documents contain them; they are dropped from appended documents too
    frequent: tuple[str, ...] = ()
    exploded: bool = False  # True if the corpus's documents are the segments of the documents that were read

    def until(self, documents: int) -> History:
        """Return the history of the first documents, without additions that were interrupted before the manifest."""
        appended = list(self.appended)
        while appended and self.report.documents + sum(report.documents for report in appended) > documents:
            appended.pop()
        return replace(self, appended=tuple(appended))

    def record(self) -> JsonObject:
        """Return the contents of ``ingest.json``."""
        reading = {
            RECORDED_AS.get(option.name, option.name): getattr(self.options, option.name)
            for option in fields(self.options)
            if option.name not in _NEVER
            and (option.name in _ALWAYS or getattr(self.options, option.name) != option.default)
        }
        optional: JsonObject = {} if self.side_files is None else {"side_files": _plain(self.side_files)}
        optional.update({"frequent": list(self.frequent)} if self.frequent else {})
        optional.update({"flattened": True} if self.exploded else {})
        return {
            **optional,
            "format": KIND,
            "version": VERSION,
            "reading": {"format": self.kind, **reading},
            "cuts": {**asdict(self.cuts), "fixed_vocabulary": self.fixed_vocabulary},
            "phrases": None if self.phrasing is None else _plain(self.phrasing),
            "report": _plain(self.report),
            "appended": [_plain(report) for report in self.appended],
        }

    def write(self, folder: Folder) -> None:
        """Write the record beside the manifest."""
        folder.write(FILE, dump(self.record()))


def _read(kind: type[Part], record: object) -> Part:
    """Return a part of a record as a dataclass; `ValueError` for other fields or values."""
    if not isinstance(record, dict):
        raise ValueError(f"expected fields, found {short(record)}")
    known = [option.name for option in fields(kind) if kind is not ReadOptions or option.name not in _NEVER]
    unknown = next((name for name in record if name not in known), None)
    if unknown is not None:
        raise ValueError(f"unknown option {unknown!r}")
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = pydantic.TypeAdapter(kind)
    part: Part = _ADAPTERS[kind].validate_python(record)
    return part


def _reading_of(record: Mapping[str, object]) -> ReadOptions:
    present = {recorded: name for name, recorded in RECORDED_AS.items()}
    options = _read(ReadOptions, {present.get(name, name): record[name] for name in record if name != "format"})
    limits = (("min_characters", 0, MAX_CHARACTERS), ("index_base", 0, 1), ("word_rule", FIRST_RULE, RULE))
    for name, smallest, largest in limits:
        value = getattr(options, name)
        if value is not None and not smallest <= value <= largest:
            raise ValueError(f"expected {name} from {smallest} to {largest}, found {value}")
    return options


def _plain(part: Report | Phrasing | SideFileColumns) -> JsonObject:
    """Return the fields as JSON, without counts of side files and segments that are 0."""
    return {name: value for name, value in asdict(part).items() if value or name not in _SOMETIMES}


def read_history(folder: Folder) -> History | None:
    """Read the ingest record of a corpus."""
    if not folder.exists(FILE):
        return None
    record = read_record(folder, FILE, KIND, VERSION, oldest=OLDEST)
    path = f"{folder.url}/{FILE}"
    try:
        reading, cuts = record["reading"], dict(record["cuts"])
        fixed_vocabulary = bool(cuts.pop("fixed_vocabulary"))
        phrases, side_files = record["phrases"], record.get("side_files")
        phrasing = None if phrases is None else _read(Phrasing, phrases)
        if phrasing is not None and phrasing.score not in SCORES:
            raise ValueError(f"expected {' or '.join(SCORES)} of phrases, found {short(phrasing.score)}")
        return History(
            str(reading["format"]),
            _reading_of(reading),
            _read(Cuts, cuts),
            fixed_vocabulary,
            phrasing,
            _read(Report, record["report"]),
            tuple(_read(Report, report) for report in record["appended"]),
            None if side_files is None else _read(SideFileColumns, side_files),
            tuple(map(str, record.get("frequent", ()))),
            record.get("flattened") is True,
        )
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise DamagedError(path, f"expected the record of an ingest ({name}: {first['msg']})") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedError(path, f"expected the record of an ingest ({error})") from None


def inherit_history(source: Folder, target: Folder, *, documents: int | None = None, exploded: bool = False) -> None:
    """Write the ingest record of a corpus into a corpus made from it or a model fitted to it."""
    history = read_history(source)
    if history is None:
        return
    if documents is not None:
        history = replace(history, report=replace(history.report, documents=documents), appended=())
    replace(history, exploded=history.exploded or exploded).write(target)
