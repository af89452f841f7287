"""Which fields of a record a document is made of, and batches of such documents before they are tokenized."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.storage.corpus.shard import EXTRAS
from collapsium.storage.errors import InputError, OptionError, near
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts.segment import ENTRIES, cutter_of
from collapsium.storage.short_repr import ShortRepr

PORTION = 1 << 24  # bytes of text that are tokenized together
TAKEN = ("id", "words", "counts", *EXTRAS)  # columns that no covariate can be
_ABSENT = object()


@dataclass(frozen=True)
class Fields:
    """Names of the fields that hold what a corpus keeps of a document.

    Attributes
    ----------
    id, text : str
        Of the id and the text.
    id_said : bool
        Whether the user named the field of the id; if not, and where the format lets it, documents may be numbered.
    title, date : str or None
        Of the title and the date.
    labels, covariates : tuple of (str, str)
        What each is called in the corpus, and its field.
    segments : str or None
        How texts are cut into segments.
    optional : frozenset of str
        Fields that no record needs to have.
    """

    id: str
    text: str
    id_said: bool
    title: str | None
    date: str | None
    labels: tuple[tuple[str, str], ...]
    covariates: tuple[tuple[str, str], ...]
    segments: str | None = None
    optional: frozenset[str] = frozenset()

    @staticmethod
    def of(options: ReadOptions) -> Fields:
        """Take them from what the user said."""
        labels, covariates = (
            tuple((name, field or name) for name, _, field in (text.partition("=") for text in said))
            for said in (options.labels, options.covariates)
        )
        for flag, named in (("--labels", labels), ("--covariates", covariates)):
            names = [name for name, _ in named]
            again = next((name for number, name in enumerate(names) if name in names[:number]), None)
            if again is not None:
                raise OptionError(f"{flag} {again}: is said twice")
            if "" in names:
                raise OptionError(f"{flag}: expected FIELD or NAME=FIELD")
        taken = next((name for name, _ in covariates if name in TAKEN), None)
        if taken is not None:
            raise OptionError(f"--covariates {taken}: has a meaning of its own in a corpus; name it, NAME={taken}")
        return Fields(
            options.id or "id",
            options.text or "text",
            options.id is not None,
            options.title,
            options.date,
            labels,
            covariates,
            options.segments,
            frozenset(options.optional),
        )

    @property
    def flags(self) -> dict[str, str]:
        """The fields that a document is made of, each with the option that names it."""
        found = {self.id: "--id", self.text: "--text"}
        found.update({field: "--labels" for _, field in self.labels})
        found.update({field: "--covariates" for _, field in self.covariates})
        found.update({field: flag for field, flag in ((self.title, "--title"), (self.date, "--date")) if field})
        return found

    @property
    def required(self) -> dict[str, str]:
        """The fields of `flags` without which a table, or all records together, are refused."""
        return {
            field: flag
            for field, flag in self.flags.items()
            if flag in ("--id", "--text") or field not in self.optional
        }

    @property
    def columns(self) -> dict[str, pa.DataType]:
        """The further columns that a corpus of such documents has."""
        found = {
            "title": self.title, "date": self.date, "labels": self.labels or None, "segments": self.segments
        }  # fmt: skip
        return {
            **{name: EXTRAS[name] for name, field in found.items() if field is not None},
            **{name: pa.float64() for name, _ in self.covariates},
        }


@dataclass(frozen=True, repr=False)
class Batch(ShortRepr):
    """Documents before they are tokenized.

    Attributes
    ----------
    ids : pyarrow.Array of string or None
        Their ids; None where they are to be numbered.
    texts : pyarrow.Array of large_string
        Their texts, or their segments' texts, none null.
    extras : dict of str to pyarrow.Array
        Further columns of the corpus, but for their segments.
    missing, replaced : int
        Documents without a text, and with bytes that were not UTF-8.
    origins : tuple of (str, int)
        The files that they come from, in order, and how many from each.
    seen : frozenset of str
        Fields of labels, covariates, titles and dates that a record had.
    segments : numpy.ndarray of int64, shape (documents,), or None
        How many of the texts are each document's; None where each has one, and there are no segments.
    """

    ids: pa.Array | None
    texts: pa.Array
    extras: dict[str, pa.Array]
    missing: int
    replaced: int
    origins: tuple[tuple[str, int], ...]
    seen: frozenset[str] = frozenset()
    segments: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.texts) if self.segments is None else self.segments.size

    def take(self, keep: pa.Array) -> Batch:
        """Return the documents for which `keep` is true; what is said of the others is kept."""
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
        return Batch(ids, texts, extras, self.missing, self.replaced, origins, self.seen, segments)


class Into(Protocol):
    """What is told the records of a file.

    ``replaced`` counts documents with bytes that were not UTF-8.
    """

    replaced: int

    def wanted(self, path: str, names: list[str]) -> list[str]:
        """Return those of a table's columns that are asked for."""

    def add(self, path: str, record: Mapping[str, Any], where: Callable[[], str]) -> None:
        """Add a record of a file."""


class Gathering:
    """Gathers records into a batch.

    Parameters
    ----------
    fields : Fields
        What to take of a record.
    numbered : bool, optional
        Whether documents get no ids yet.
    """

    def __init__(self, fields: Fields, numbered: bool = False) -> None:
        self._fields, self._numbered = fields, numbered
        self._cut = None if fields.segments is None else cutter_of(fields.segments)
        self._kinds = {name: kind for name, kind in fields.columns.items() if name != "segments"}
        self._begin()

    def _begin(self) -> None:
        self._ids: list[str] = []
        self._texts: list[bytes] = []
        self._segments: list[int] = []
        self._columns: dict[str, list[Any]] = {name: [] for name in self._kinds}
        self._origins: list[tuple[str, int]] = []
        self._unseen = {field for field, flag in self._fields.flags.items() if flag not in ("--id", "--text")}
        self._seen: set[str] = set()
        self._missing = self.replaced = self.bytes = 0

    def __len__(self) -> int:
        return len(self._segments)

    def wanted(self, path: str, names: list[str]) -> list[str]:
        """Return those of a table's columns that are asked for; `InputError` where one is not there."""
        require_columns(path, names, self._fields)
        return [name for name in self._fields.flags if name in names]

    def add(self, path: str, record: Mapping[str, Any], where: Callable[[], str]) -> None:
        """Add a record of a file.

        Parameters
        ----------
        path : str
            The file.
        record : mapping
            Values by field.
        where : callable
            Tells the place in the file, for errors.

        Raises
        ------
        InputError
            A field is not there, or of another kind.
        """
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

    def _parts_of(self, path: str, record: Mapping[str, Any], where: Callable[[], str]) -> list[str]:
        """Return the text of a record, as one or as its segments."""
        field, cut = self._fields.text, self._cut
        text = record.get(field, _ABSENT)
        if text is None:
            self._missing += 1
            text = ""
        if isinstance(text, str):
            return [text] if cut is None else cut(text)
        _require_there(path, record, field, "--text", where)
        if not isinstance(text, list):
            raise InputError(path, f"expected a string in field {field!r} (--text)", where())
        if self._fields.segments != ENTRIES:
            more = f"found a list; --segments {ENTRIES} makes each of its strings a segment"
            raise InputError(path, f"expected a string in field {field!r} (--text), {more}", where())
        wrong = next((one for one in text if not isinstance(one, str | None)), None)
        if wrong is not None:
            more = f"found {type(wrong).__name__} in it"
            raise InputError(path, f"expected a list of strings in field {field!r} (--text), {more}", where())
        return [part or "" for part in text]

    def _add_further(self, path: str, record: Mapping[str, Any], where: Callable[[], str]) -> None:
        fields, columns = self._fields, self._columns
        if self._unseen:
            found = self._unseen & record.keys()
            self._seen |= found
            self._unseen -= found
        try:
            for column, field, written in (("title", fields.title, _as_text), ("date", fields.date, as_date)):
                if field is not None:
                    columns[column].append(written(record.get(field)))
            if fields.labels:
                pairs: list[dict[str, str]] = []
                for name, field in fields.labels:
                    pairs += [{"field": name, "value": value} for value in as_labels(record.get(field))]
                columns["labels"].append(pairs)
            for name, field in fields.covariates:
                columns[name].append(as_number(record.get(field)))
        except ValueError as error:
            raise InputError(path, f"expected {error} in field {field!r}", where()) from None

    def batch(self) -> Batch:
        """Return what was gathered, and begin anew."""
        ids = None if self._numbered else pa.array(self._ids, pa.string())
        texts = pa.array(self._texts, pa.large_binary()).view(pa.large_string())
        extras = {name: pa.array(self._columns[name], kind) for name, kind in self._kinds.items()}
        origins, seen = tuple(self._origins), frozenset(self._seen)
        segments = None if self._cut is None else np.array(self._segments, dtype=np.int64)
        made = Batch(ids, texts, extras, self._missing, self.replaced, origins, seen, segments)
        self._begin()
        return made


def clean(text: str) -> str:
    """Return a text that UTF-8 can write: halves of surrogate pairs become question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def id_of(path: str, record: Mapping[str, Any], field: str, where: Callable[[], str]) -> str:
    """Return the id of a record.

    Parameters
    ----------
    path, record
        As for `Gathering.add`.
    field : str
        The field of the id.
    where : callable
        As for `Gathering.add`.

    Returns
    -------
    str
        The id; a number is written out.

    Raises
    ------
    InputError
        There is none, or it is neither a text nor a whole number.
    """
    name = record.get(field, _ABSENT)
    if isinstance(name, bool) or not isinstance(name, (str, int)):
        _require_there(path, record, field, "--id", where)
        raise InputError(path, f"expected a string or whole number in field {field!r} (--id)", where())
    return clean(str(name))


def require_columns(path: str, names: list[str], fields: Fields) -> None:
    """Refuse a table that lacks a column.

    Parameters
    ----------
    path : str
        The file.
    names : list of str
        Its columns.
    fields : Fields
        What is asked for.

    Raises
    ------
    InputError
        One is not there; the error names those that are.
    """
    for field, flag in fields.required.items():
        if field not in names and not (flag == "--id" and not fields.id_said):
            raise InputError(path, f"no column {field!r} ({flag}){near(field, names)}; there are {named(names)}")


def _require_there(path: str, record: Mapping[str, Any], field: str, flag: str, where: Callable[[], str]) -> None:
    if field not in record:
        raise InputError(path, f"no field {field!r} ({flag}){near(field, record)}; there are {named(record)}", where())


def named(names: Any) -> str:
    """Name a few fields."""
    found = [str(name)[:40] for name in names]
    return ", ".join(found[:12]) + (f" and {len(found) - 12} more" if len(found) > 12 else "") or "none"


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else clean(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ValueError("a string")


def as_date(value: Any) -> str | None:
    """Return a date as text, numbers too: years and Unix times are floats in columns where some are missing."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return str(int(value)) if value == int(value) else repr(value)
    return _as_text(value)


def as_labels(value: Any) -> list[str]:
    """Return the labels in a field of a record; `ValueError` where it holds something else."""
    if value is None or value == "":
        return []
    if isinstance(value, (list, tuple)):
        return [label for one in value for label in as_labels(one) if not isinstance(one, (list, tuple))]
    if isinstance(value, bool):
        return [str(value).lower()]
    if isinstance(value, (str, int)):
        return [clean(str(value))]
    raise ValueError("a string or a list of strings")


def as_number(value: Any) -> float | None:
    """Return a covariate; what is missing is no zero. `ValueError` where it is no finite number."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float, str, decimal.Decimal)):
        raise ValueError("a number or nothing")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"a number or nothing, found {str(value)[:40]!r},") from None
    if math.isinf(number):
        raise ValueError("a finite number")
    return None if math.isnan(number) else number
