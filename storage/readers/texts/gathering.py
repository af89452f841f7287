"""Collect the records of files into batches of documents that are not yet tokenized."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.storage.corpus.word_rule import FIRST_RULE
from collapsium.storage.errors import InputError
from collapsium.storage.printable import ShortRepr
from collapsium.storage.readers.read_options import MISSING_VALUES, Guess
from collapsium.storage.readers.texts.fields import (
    ABSENT,
    Fields,
    as_date,
    as_labels,
    as_number,
    as_text,
    id_of,
    require_columns,
    require_field,
    signs_in,
)
from collapsium.storage.readers.texts.segment import ENTRIES, cutter_of

# Characters of whole lines of base64 from which they are an attachment: three lines of a mail. Words and addresses
# that stand alone on a line are shorter.
LEAST_BASE64 = 180
# Number of full lines of uuencode, of 61 characters each, that are an attachment even without its first and last line
LEAST_UUENCODED = 3

# Cheap searches that nearly all texts fail: the second one skips from one line end to the next.
_SUSPECT = r"(?:M[ -`]{60}|[A-Za-z0-9+/]{60}|=ybegin |begin [0-7]{3})"
_SUSPECT_FIRST_LINE, _SUSPECT_LINE = re.compile(_SUSPECT), re.compile(r"\n" + _SUSPECT)
_DATA_ADDRESS = re.compile(r"\bdata:[\w.+/-]*(?:;[\w=.-]+)*;base64,[A-Za-z0-9+/=%]+")
_UUENCODED_BEGIN = re.compile(r"begin [0-7]{3,4} \S.*")
_FULL_UUENCODED = re.compile(r"M[ -`]{60,61}")
_STRIPPED_UUENCODED = re.compile(r"M[ -`]{30,61}")
_UUENCODED = re.compile(r"[ -`]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{58,}={0,2}")
_LAST_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def without_attachments(text: str) -> tuple[str, int]:
    """Return a text without its encoded attachments, and how many there were."""
    removed = 0
    if ";base64," in text:
        text, removed = _DATA_ADDRESS.subn("", text)
    if _SUSPECT_FIRST_LINE.match(text) is None and _SUSPECT_LINE.search(text) is None:
        return text, removed
    lines, retained, place = text.split("\n"), list[str](), 0
    bare = [line.rstrip("\r") for line in lines]
    while place < len(lines):
        end = _end_of_attachment(bare, place)
        if end == place:
            retained.append(lines[place])
            place += 1
        else:
            removed += 1
            place = end
    return "\n".join(retained), removed


def _end_of_attachment(lines: Sequence[str], place: int) -> int:
    """Return the line after the attachment that begins at a line; the line itself if none does."""
    if lines[place].startswith("=ybegin "):
        ends = (number for number in range(place, len(lines)) if lines[number].startswith("=yend"))
        return next(ends, len(lines) - 1) + 1
    if _UUENCODED_BEGIN.fullmatch(lines[place]):
        end = _end_of_uuencoded(lines, place + 1)
        closed = end > place + 1 and lines[end - 1] == "end"
        return end if closed or end - place > LEAST_UUENCODED else place
    first = lines[place : place + LEAST_UUENCODED]
    if len(first) == LEAST_UUENCODED and all(map(_FULL_UUENCODED.fullmatch, first)):
        return _end_of_uuencoded(lines, place)
    # Lines of base64 have equal length, and a shorter line ends them.
    end, width = place, len(lines[place])
    while end < len(lines) and len(lines[end]) == width and _BASE64.fullmatch(lines[end]):
        end += 1
    if end == place:
        return place
    last = lines[end] if end < len(lines) else ""
    is_end = len(last) < width and len(last) % 4 == 0 and _LAST_BASE64.fullmatch(last) is not None
    data = "".join(lines[place : end + is_end])
    # Sequences of proteins and numbers in hexadecimal lack one of the three.
    mixed = all(re.search(kind, data) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    return end + is_end if mixed and len(data) >= LEAST_BASE64 else place


def _end_of_uuencoded(lines: Sequence[str], place: int) -> int:
    """Return the line after a uuencoded block that begins at a line, including its closing lines."""
    while place < len(lines):
        # A line is as long as its first character states, or a full line that lost trailing spaces. Some encoders put a
        # checksum behind each line.
        line = lines[place]
        groups = -(-((ord(line[:1] or " ") - 32) & 63) // 3)
        is_complete = groups > 0 and len(line) in (1 + 4 * groups, 2 + 4 * groups) and _UUENCODED.fullmatch(line)
        if not is_complete and not _STRIPPED_UUENCODED.fullmatch(line):
            break
        place += 1
    if place < len(lines) and lines[place] in ("", " ", "`") and lines[place + 1 : place + 2] == ["end"]:
        return place + 2
    return place + 1 if lines[place : place + 1] == ["end"] else place


CHUNK_BYTES = 1 << 24  # bytes of text that are tokenized together


@dataclass(frozen=True, repr=False)
class Batch(ShortRepr):
    """Documents before they are tokenized."""

    ids: pa.Array | None  # Ids; None if the documents are numbered later
    texts: pa.Array  # Texts of the documents or of their segments, without nulls
    extras: dict[str, pa.Array]  # Additional columns of the corpus except the segments
    # Number of documents without a text, of documents with bytes that were not UTF-8, and of encoded attachments that
    # were left out
    missing: int
    replaced: int
    origins: tuple[tuple[str, int], ...]  # Files of the documents, in order, with the number of documents of each
    seen: frozenset[str] = frozenset()  # Fields of labels, covariates, titles and dates that at least one record has
    # Number of texts of each document; None if documents are not cut into segments; int64 (documents,)
    segments: npt.NDArray[np.int64] | None = None
    attachments: int = 0
    guesses: tuple[Guess, ...] = ()  # Guesses about the files that were made while these documents were read

    def __len__(self) -> int:
        return len(self.texts) if self.segments is None else self.segments.size

    def take(self, keep: pa.Array) -> Batch:
        """Return the documents for which `keep` is true; all counts and guesses still cover all documents."""
        flags = iter(keep.to_pylist())
        origins = tuple((path, sum(next(flags) for _ in range(count))) for path, count in self.origins)
        extras = {name: column.filter(keep) for name, column in self.extras.items()}
        ids = None if self.ids is None else self.ids.filter(keep)
        texts, segments = self.texts, self.segments
        if segments is None:
            texts = texts.filter(keep)
        else:
            chosen = np.asarray(keep, dtype=bool)
            texts, segments = texts.filter(pa.array(np.repeat(chosen, segments))), segments[chosen]
        return replace(self, ids=ids, texts=texts, extras=extras, origins=origins, segments=segments)


class Into(Protocol):
    """Interface of collectors of the records of a file.

    ``replaced`` counts documents with bytes that were not UTF-8; the keys of ``guesses`` are the properties
    of the file that the reader guessed, and ``side_file`` is true for side files.
    """

    replaced: int
    guesses: dict[Guess, None]
    side_file: bool

    def requested(self, path: str, names: list[str]) -> list[str]:
        """Return the columns of a table to read."""

    def add(self, path: str, record: Mapping[str, object], where: Callable[[], str]) -> None:
        """Add a record of a file."""


class Gathering:
    """Collects records into a batch."""

    side_file = False

    def __init__(self, fields: Fields, numbered: bool = False) -> None:
        self._fields, self._numbered = fields, numbered
        self._cut = None if fields.segments is None else cutter_of(fields.segments)
        self._kinds = {name: kind for name, kind in fields.columns.items() if name != "segments"}
        self._begin()

    def _begin(self) -> None:
        self._ids: list[str] = []
        self._texts: list[bytes] = []
        self._segments: list[int] = []
        self._columns: dict[str, list[object]] = {name: [] for name in self._kinds}
        self._origins: list[tuple[str, int]] = []
        self._unseen = {field for field, flag in self._fields.flags.items() if flag not in ("id", "text")}
        self._seen: set[str] = set()
        self._missing = self.replaced = self.bytes = self._attachments = 0
        self.guesses: dict[Guess, None] = {}

    def __len__(self) -> int:
        return len(self._segments)

    def requested(self, path: str, names: list[str]) -> list[str]:
        """Return the columns of a table to read; raise `InputError` if a requested column does not exist."""
        require_columns(path, names, self._fields)
        return [name for name in self._fields.flags if name in names]

    def add(self, path: str, record: Mapping[str, object], where: Callable[[], str]) -> None:
        """Add a record of a file."""
        fields = self._fields
        if not self._numbered:
            self._ids.append(id_of(path, record, fields.id, where))
        parts = self._parts_of(path, record, where)
        self._segments.append(len(parts))
        for part in parts:
            data = part.encode("utf-8", "replace")
            self._texts.append(data)
            self.bytes += len(data)
        if self._columns:
            self._add_further(path, record, where)
        if self._origins and self._origins[-1][0] == path:
            self._origins[-1] = (path, self._origins[-1][1] + 1)
        else:
            self._origins.append((path, 1))

    def _parts_of(self, path: str, record: Mapping[str, object], where: Callable[[], str]) -> list[str]:
        """Return the text of a record as a list of its segments, or as a list of one text."""
        field, cut = self._fields.text, self._cut
        text = record.get(field, ABSENT)
        if text is None or (isinstance(text, float) and text != text):
            self._missing += 1
            text = ""
        if isinstance(text, str):
            text = self._without_attachments(text)
            return [text] if cut is None else cut(text)
        require_field(path, record, field, "text", where)
        if not isinstance(text, list):
            raise InputError(path, f"expected a string in field {field!r} (`text`)", where())
        if self._fields.segments != ENTRIES:
            more = f"found a list; `segments` {ENTRIES} makes each of its strings a segment"
            raise InputError(path, f"expected a string in field {field!r} (`text`), {more}", where())
        wrong = next((part for part in text if not isinstance(part, str | None)), None)
        if wrong is not None:
            more = f"found {type(wrong).__name__} in it"
            raise InputError(path, f"expected a list of strings in field {field!r} (`text`), {more}", where())
        return [self._without_attachments(part or "") for part in text]

    def _without_attachments(self, text: str) -> str:
        """Return a text without encoded attachments, which are counted; the first word rule leaves them in."""
        if self._fields.word_rule == FIRST_RULE:
            return text
        text, attachments = without_attachments(text)
        self._attachments += attachments
        return text

    def _add_further(self, path: str, record: Mapping[str, object], where: Callable[[], str]) -> None:
        fields, columns = self._fields, self._columns
        if self._unseen:
            present = self._unseen & record.keys()
            self._seen |= present
            self._unseen -= present
        try:
            for column, field, written in (("title", fields.title, as_text), ("date", fields.date, as_date)):
                if field is not None:
                    columns[column].append(written(record.get(field)))
            if fields.labels:
                pairs: list[dict[str, str]] = []
                for name, field in fields.labels:
                    labels = as_labels(value := record.get(field))
                    if not labels or isinstance(value, list):
                        self._note_missing(field, value)
                    pairs += [{"field": name, "value": label} for label in labels]
                columns["labels"].append(pairs)
            for name, field in fields.covariates:
                number = as_number(value := record.get(field))
                if number is None:
                    self._note_missing(field, value)
                columns[name].append(number)
        except ValueError as error:
            raise InputError(path, f"expected {error} in field {field!r}", where()) from None

    def _note_missing(self, field: str, value: object) -> None:
        for sign in signs_in(value):
            self.guesses[Guess(MISSING_VALUES, f"{sign} in field {field[:100]!r}")] = None

    def batch(self) -> Batch:
        """Return the collected documents as a batch, and clear the collection."""
        ids = None if self._numbered else pa.array(self._ids, pa.string())
        texts = pa.array(self._texts, pa.large_binary()).view(pa.large_string())
        extras = {name: pa.array(self._columns[name], kind) for name, kind in self._kinds.items()}
        origins, seen = tuple(self._origins), frozenset(self._seen)
        segments = None if self._cut is None else np.array(self._segments, dtype=np.int64)
        counts = self._missing, self.replaced, origins, seen, segments, self._attachments
        batch = Batch(ids, texts, extras, *counts, tuple(self.guesses))
        self._begin()
        return batch
