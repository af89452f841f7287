"""Fields of records that become ids, texts, labels and covariates of documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from collapsium.storage.corpus.parquet import UNKNOWN_SHARE
from collapsium.storage.corpus.shard import EXTRAS
from collapsium.storage.corpus.word_rule import FIRST_RULE
from collapsium.storage.errors import InputError, OptionError, near
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts.values import clean

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
