"""Fields of records that the documents of a corpus are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from collapsium.storage.corpus.shard import EXTRAS
from collapsium.storage.errors import InputError, OptionError, near
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts.values import clean

TAKEN = ("id", "words", "counts", *EXTRAS)  # columns that no covariate can be
ABSENT = object()
"""Stands for the value of a field that a record does not have; None is a value."""


@dataclass(frozen=True)
class Fields:
    """Names of the fields that hold what a corpus keeps of a document.

    Attributes
    ----------
    id, text : str
        Of the id and the text.
    id_is_set : bool
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
    id_is_set: bool
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
            tuple((name, field or name) for name, _, field in (text.partition("=") for text in texts))
            for texts in (options.labels, options.covariates)
        )
        for flag, named in (("labels", labels), ("covariates", covariates)):
            names = [name for name, _ in named]
            again = next((name for number, name in enumerate(names) if name in names[:number]), None)
            if again is not None:
                raise OptionError(f"`{flag}` {again}: is said twice")
            if "" in names:
                raise OptionError("expected FIELD or NAME=FIELD", flag)
        taken = next((name for name, _ in covariates if name in TAKEN), None)
        if taken is not None:
            raise OptionError(f"`covariates` {taken}: has a meaning of its own in a corpus; name it, NAME={taken}")
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
        flags = {self.id: "id", self.text: "text"}
        flags.update({field: "labels" for _, field in self.labels})
        flags.update({field: "covariates" for _, field in self.covariates})
        flags.update({field: flag for field, flag in ((self.title, "title"), (self.date, "date")) if field})
        return flags

    @property
    def required(self) -> dict[str, str]:
        """The fields of `flags` without which a table, or all records together, are refused."""
        return {
            field: flag for field, flag in self.flags.items() if flag in ("id", "text") or field not in self.optional
        }

    @property
    def columns(self) -> dict[str, pa.DataType]:
        """The further columns that a corpus of such documents has."""
        columns = {
            "title": self.title, "date": self.date, "labels": self.labels or None, "segments": self.segments
        }  # fmt: skip
        return {
            **{name: EXTRAS[name] for name, field in columns.items() if field is not None},
            **{name: pa.float64() for name, _ in self.covariates},
        }


def id_of(path: str, record: Mapping[str, Any], field: str, where: Callable[[], str]) -> str:
    """Return the id of a record.

    Parameters
    ----------
    path : str
        The file.
    record : mapping
        Values by field.
    field : str
        The field of the id.
    where : callable
        Returns the place in the file, for errors.

    Returns
    -------
    str
        The id; a number is written out.

    Raises
    ------
    InputError
        There is none, or it is neither a text nor a whole number.
    """
    name = record.get(field, ABSENT)
    if isinstance(name, bool) or not isinstance(name, (str, int)):
        require_field(path, record, field, "id", where)
        raise InputError(path, f"expected a string or whole number in field {field!r} (`id`)", where())
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
        if field not in names and not (flag == "id" and not fields.id_is_set):
            raise InputError(path, f"no column {field!r} (`{flag}`){near(field, names)}; there are {named(names)}")


def require_field(path: str, record: Mapping[str, Any], field: str, flag: str, where: Callable[[], str]) -> None:
    """Refuse a record that lacks a field, which the option `flag` names; the error names those that are there."""
    if field not in record:
        raise InputError(
            path, f"no field {field!r} (`{flag}`){near(field, record)}; there are {named(record)}", where()
        )


def named(names: Iterable[str]) -> str:
    """Return some names of fields, for a message."""
    texts = [str(name)[:40] for name in names]
    return ", ".join(texts[:12]) + (f" and {len(texts) - 12} more" if len(texts) > 12 else "") or "none"
