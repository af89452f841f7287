"""Convert values of a record's fields to ids, texts, titles, dates, labels and covariates of documents."""

from __future__ import annotations

import datetime
import decimal
import math
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from collapsium.storage.corpus.parquet import UNKNOWN_SHARE
from collapsium.storage.corpus.shard import EXTRAS
from collapsium.storage.corpus.word_rule import FIRST_RULE
from collapsium.storage.errors import InputError, OptionError, near
from collapsium.storage.readers.read_options import ReadOptions

# Texts that stand for a missing label, number or date, in every format; case matters, because ``none`` may be a label
MISSING = frozenset({
    # pandas' signs of missing values (`STR_NA_VALUES` of its parsers, release 3.0)
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
    # pandas' and NumPy's missing time
    "NaT",
    # SAS and Stata; ARFF and the UCI repository; tables made for people
    ".", "?", "-",
    # MySQL, PostgreSQL and Hive in text files; Hive and Spark in names of folders
    "\\N", "__HIVE_DEFAULT_PARTITION__",
})  # fmt: skip

MAX_INTEGER = 1 << 53  # Largest magnitude up to which a float64 can represent every whole number

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?inf(?:inity)?", re.IGNORECASE)
# Most numbers, which are never codes; all of them have at most 15 digits before the point.
_PLAIN = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]*)?")
_INTEGER = re.compile(r"-?[0-9]+")
# Codes that a number would not preserve: 0123 (post), +31 (telephone), 12e5 (hexadecimal).
_CODE = re.compile(r"-?0[0-9][0-9.e]*|\+[0-9]+|[0-9]+e[0-9]+", re.IGNORECASE)
_MAX_SHOWN = 40  # characters of a value in an error


class Unsupported:
    """A value whose type has no meaning as a text, label, number or date; every converter refuses it by its name."""

    def __init__(self, name: str) -> None:
        self.name = name


def clean(text: str) -> str:
    """Return a text that UTF-8 can encode, with question marks for lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def is_missing(value: object) -> bool:
    """Return True for None, NaN and the texts of `MISSING`, also between white space."""
    if isinstance(value, str):
        return value.strip() in MISSING
    return value is None or (isinstance(value, float) and math.isnan(value))


def signs_in(value: object) -> Iterator[str]:
    """Yield the texts in a value that stand for missing values, and the nulls of a list, to be reported to the user."""
    if isinstance(value, list):
        for item in value:
            yield from ("null",) if item is None else signs_in(item)
    elif isinstance(value, str) and is_missing(value) and value.strip():
        yield repr(value.strip())


def described(value: object) -> str:
    """Return a value as errors show it."""
    if isinstance(value, Unsupported):
        return value.name
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float, decimal.Decimal)):
        text = repr(value) if isinstance(value, str) else str(value)
        return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
    names = {
        list: "a list", tuple: "a pair of a map", dict: "an object", bytes: "bytes", datetime.timedelta: "a duration"
    }  # fmt: skip
    return names.get(type(value), f"a value of type {type(value).__name__}")


def _fault(expected: str, value: object) -> ValueError:
    return ValueError(f"{expected}, found {described(value)},")


def as_text(value: object, expected: str = "a string") -> str | None:
    """Return a title as text; raise `ValueError` for values other than texts, whole numbers, dates and UUIDs."""
    if value is None or isinstance(value, str):
        return None if value is None else clean(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (int, uuid.UUID)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and math.isnan(value):
        return None
    raise _fault(expected, value)


def as_date(value: object) -> str | None:
    """Return a date as text; integral floats lose their point, because columns with missing years are floats."""
    if isinstance(value, str):
        return None if value.strip() in MISSING else clean(value)
    if is_missing(value):
        return None
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value == int(value) else repr(value)
    return as_text(value, "a date")


def as_labels(value: object) -> list[str]:
    """Return the labels of a field; raise `ValueError` for values other than texts, whole numbers and lists of them.

    Missing values are no labels, also in lists. Integral floats lose their point, as in `as_date`.
    """
    if isinstance(value, str):
        return [] if value.strip() in MISSING else [clean(value)]
    if is_missing(value):
        return []
    if isinstance(value, bool):
        return [str(value).lower()]
    if isinstance(value, list):
        nested = next((item for item in value if isinstance(item, (list, tuple, dict, Unsupported))), None)
        if nested is not None:
            raise ValueError(f"a string or a list of strings, found a list with {described(nested)} in it,")
        return [label for item in value for label in as_labels(item)]
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return [str(value)]
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_INTEGER:
        return [str(int(value))]
    text = as_text(value, "a string or a list of strings")
    return [] if text is None else [text]


def as_number(value: object) -> float | None:
    """Return a covariate, None if missing; raise `ValueError` for values that are not finite numbers.

    A duration is a number of seconds.
    """
    if value is None or (isinstance(value, str) and value.strip() in MISSING):
        return None
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float, str, decimal.Decimal)):
        raise _fault("a number or nothing", value)
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise _fault("a number or nothing", value) from None
    if math.isinf(number):
        raise _fault("a finite number", value)
    return None if math.isnan(number) else number


def is_code(value: object) -> bool:
    """Return True for a whole number beyond `MAX_INTEGER` and for a text of digits that a number would not preserve."""
    if isinstance(value, str):
        text = value.strip()
        long = len(text) > 15 and _INTEGER.fullmatch(text) is not None and abs(int(text[:40])) > MAX_INTEGER
        return long or _CODE.fullmatch(text) is not None
    return isinstance(value, int) and abs(value) > MAX_INTEGER


def is_number(value: object, *, written: bool) -> bool:
    """Return True if a value that is not missing is a number, in a field whose type no option sets.

    Codes such as ``0123`` are not numbers. With ``written``, numbers are texts, as in comma-separated values; otherwise
    texts are labels.
    """
    if isinstance(value, str):
        if not written or _PLAIN.fullmatch(value) is not None:
            return written
        return _NUMBER.fullmatch(value.strip()) is not None and not is_code(value)
    if isinstance(value, bool) or is_code(value):
        return False
    return isinstance(value, (int, float, decimal.Decimal, datetime.timedelta))


MAX_EXAMPLES = 3  # Most unreadable texts that are named
DAY_FIRST, MONTH_FIRST = "day", "month"  # Orders of day and month in numeric dates such as 03/04/2020


@dataclass(frozen=True)
class DateTally:
    """Numbers of documents by the way in which their dates were read."""

    # Documents without a date; with a date that cannot be read; whose day and month cannot be distinguished; with a
    # number that was read as a Unix time; and with a year of two digits
    missing: int = 0
    unreadable: int = 0
    ambiguous: int = 0
    unix: int = 0
    short_years: int = 0
    # Documents whose dates show the order of day and month
    day_first: int = 0
    month_first: int = 0
    examples: tuple[str, ...] = ()  # Some unreadable texts
    # A date whose day and month cannot be distinguished, and one of each order
    example: str = ""
    day_first_example: str = ""
    month_first_example: str = ""

    def __add__(self, other: DateTally) -> DateTally:
        """Return the numbers of both."""
        pairs = {name: (value, getattr(other, name)) for name, value in vars(self).items() if name != "examples"}
        # Numbers are added; of examples, the first is kept.
        sums = {name: mine + its if isinstance(mine, int) else mine or its for name, (mine, its) in pairs.items()}
        return DateTally(**sums, examples=tuple(dict.fromkeys((*self.examples, *other.examples)))[:MAX_EXAMPLES])

    @property
    def order(self) -> str:
        """The order of day and month in all dates that show one; empty if none does, or they differ."""
        if bool(self.day_first) == bool(self.month_first):
            return ""
        return DAY_FIRST if self.day_first else MONTH_FIRST


# No covariate can have the name of one of these columns.
TAKEN = ("id", "words", "counts", *EXTRAS)
ABSENT = object()  # Placeholder for a field that a record does not have, because None is a valid value


@dataclass(frozen=True)
class Fields:
    """Names of the fields that a corpus stores of a record."""

    # Fields of the id and the text
    id: str
    text: str
    id_is_set: bool  # True if the option `id` is set; otherwise documents may be numbered if the format allows it
    # Fields of the title and the date
    title: str | None
    date: str | None
    # Name in the corpus and field of each
    labels: tuple[tuple[str, str], ...]
    covariates: tuple[tuple[str, str], ...]
    segments: str | None = None  # Rule that cuts texts into segments
    optional: frozenset[str] = frozenset()  # Fields that may be absent from all records
    word_rule: int = FIRST_RULE  # Version of the word rule

    @staticmethod
    def of(options: ReadOptions) -> Fields:
        """Return the fields that the options name."""
        labels, covariates = (
            tuple((name, field or name) for name, _, field in (text.partition("=") for text in texts))
            for texts in (options.labels, options.covariates)
        )
        for flag, named in (("labels", labels), ("covariates", covariates)):
            names = [name for name, _ in named]
            again = next((name for number, name in enumerate(names) if name in names[:number]), None)
            if again is not None:
                raise OptionError(f"`{flag}` {again}: is given twice")
            if "" in names:
                raise OptionError("expected FIELD or NAME=FIELD", flag)
        reserved = {*TAKEN, *((UNKNOWN_SHARE,) if options.unknown_share else ())}
        taken = next((name for name, _ in covariates if name in reserved), None)
        if taken is not None:
            raise OptionError(f"`covariates` {taken}: is a reserved name in a corpus; rename it, NAME={taken}")
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
            options.word_rule,
        )

    @property
    def flags(self) -> dict[str, str]:
        """All fields, each with the option that names it."""
        flags = {self.id: "id", self.text: "text"}
        flags.update({field: "labels" for _, field in self.labels})
        flags.update({field: "covariates" for _, field in self.covariates})
        flags.update({field: flag for field, flag in ((self.title, "title"), (self.date, "date")) if field})
        return flags

    @property
    def required(self) -> dict[str, str]:
        """Fields of `flags` that a table, or at least one record, must have."""
        return {
            field: flag for field, flag in self.flags.items() if flag in ("id", "text") or field not in self.optional
        }

    @property
    def columns(self) -> dict[str, pa.DataType]:
        """Additional columns of a corpus of such documents, with their types."""
        columns = {
            "title": self.title, "date": self.date, "labels": self.labels or None, "segments": self.segments
        }  # fmt: skip
        return {
            **{name: EXTRAS[name] for name, field in columns.items() if field is not None},
            **{name: pa.float64() for name, _ in self.covariates},
        }


def id_of(path: str, record: Mapping[str, object], field: str, where: Callable[[], str]) -> str:
    """Return the id of a record."""
    name = record.get(field, ABSENT)
    if isinstance(name, bool) or not isinstance(name, (str, int)):
        require_field(path, record, field, "id", where)
        raise InputError(path, f"expected a string or whole number in field {field!r} (`id`)", where())
    return clean(str(name))


def require_columns(path: str, names: list[str], fields: Fields) -> None:
    """Raise an error if a table lacks a column."""
    for field, flag in fields.required.items():
        if field not in names and not (flag == "id" and not fields.id_is_set):
            raise InputError(path, f"no column {field!r} (`{flag}`){near(field, names)}; there are {named(names)}")


def require_field(path: str, record: Mapping[str, object], field: str, flag: str, where: Callable[[], str]) -> None:
    """Raise an error if a record lacks the field of the option `flag`; the error names the existing fields."""
    if field not in record:
        raise InputError(
            path, f"no field {field!r} (`{flag}`){near(field, record)}; there are {named(record)}", where()
        )


def named(names: Iterable[str]) -> str:
    """Return a list of field names for an error message, shortened if it is long."""
    texts = [str(name)[:40] for name in names]
    return ", ".join(texts[:12]) + (f" and {len(texts) - 12} more" if len(texts) > 12 else "") or "none"
