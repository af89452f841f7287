"""Columns of side files: labels and covariates among their fields, and names of numbered labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.storage.corpus.list_columns import label_lists, once
from collapsium.storage.errors import InputError, OptionError, suggestion
from collapsium.storage.readers.guesses import MISSING_VALUES, Guess, distinct_guesses
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.side_files.read import SideFile, read_names, read_side
from collapsium.storage.readers.side_files.table import Side
from collapsium.storage.readers.texts.fields import TAKEN, Fields, named
from collapsium.storage.readers.texts.values import (
    as_labels,
    as_number,
    described,
    is_code,
    is_missing,
    is_number,
    signs_in,
)

T = TypeVar("T")


@dataclass(frozen=True)
class SideFileRequest:
    """The side files to read."""

    # The files, each optionally with a name for its field, as in ``author=doc_authors.txt``
    files: tuple[str, ...] = ()
    # Files with a name a line for the numbers of a field of labels, as in ``author=authors.txt``
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chosen:
    """The fields of a side file that are labels and covariates, as (name, field)."""

    labels: tuple[tuple[str, str], ...]
    covariates: tuple[tuple[str, str], ...]
    guesses: tuple[Guess, ...] = ()


def chosen_of(
    file: SideFile, request: Fields, numbered: Sequence[str], covariates_of: Collection[str] | None = None
) -> Chosen:
    """Return the fields of a side file that are labels and covariates."""
    labels = tuple(pair for pair in request.labels if pair[1] in file.fields)
    covariates = tuple(pair for pair in request.covariates if pair[1] in file.fields)
    guesses: list[Guess] = []
    if file.ids is None:
        return Chosen(((next(iter(file.fields)),) * 2,), ())
    if not labels and not covariates:
        numbers: list[str] = []
        for name, values in file.fields.items():
            if name in numbered or file.name in numbered:
                continue
            if covariates_of is not None and (file.name or name) not in covariates_of:
                continue
            are_numbers, other = _holds_numbers(values, file.texts)
            numbers += [name] if are_numbers else []
            value = "numbers" if are_numbers else f"labels, as {other}" if other else "labels"
            option = "labels" if are_numbers else "covariates"
            guesses.append(Guess(f"type of side file column {name[:100]}", value, option))
        labels = tuple((name, name) for name in file.fields if name not in numbers)
        covariates = tuple((name, name) for name in numbers)
    if not labels and not covariates:
        raise InputError(file.path, "expected a field of labels or numbers besides the ids, found none")
    if file.name and len(labels) + len(covariates) > 1:
        every = named(field for _, field in (*labels, *covariates))
        raise OptionError(
            f"`label_files` {file.name}=: names one field, and {file.path} has {every}; name them with "
            "`labels` NAME=FIELD"
        )
    if file.name:
        labels = tuple((file.name, field) for _, field in labels)
        covariates = tuple((file.name, field) for _, field in covariates)
    taken = next((name for name, _ in covariates if name in TAKEN), None)
    if taken is not None:
        raise OptionError(
            f"{file.path}: the covariate {taken!r} has a meaning of its own in a corpus; "
            f"name it, `covariates` NAME={taken}"
        )
    return Chosen(labels, covariates, tuple(guesses))


def _holds_numbers(values: list[Any], written: bool) -> tuple[bool, str]:
    """Return True if all values are numbers, and at least one exists; and why not, if only some are or it is a code."""
    # Written values are few in most columns, and each is then judged once.
    kinds = dict.fromkeys(values) if written else values
    number = other = None
    for value in kinds:
        if is_missing(value):
            continue
        if is_number(value, written=written):
            number = value
        elif other is None:
            other = value
        if other is not None and (number is not None or is_code(other)):
            why = "a code" if is_code(other) else "no number"
            record = next(record for record, one in enumerate(values, start=1) if one is other)
            return False, f"{described(other)} in record {record} is {why}"
    return number is not None and other is None, ""


def side_of(file: SideFile, chosen: Chosen, names: Mapping[str, tuple[str, list[str]]]) -> Side:
    """Return the labels and covariates of a side file as columns."""
    codes, keys = np.arange(len(next(iter(file.fields.values()), []))), None
    if file.ids is not None:
        coded = pa.array(file.ids, pa.string()).dictionary_encode()
        codes, keys = np.asarray(coded.indices, dtype=np.int64), coded.dictionary
    count = codes.size if keys is None else len(keys)
    what = "line" if keys is None else "record"
    columns: dict[str, pa.Array] = {}
    signs: set[tuple[str, str]] = set()
    if chosen.labels:
        rows: tuple[list[int], list[str], list[str]] = ([], [], [])
        for name, field in chosen.labels:
            for number, value in enumerate(file.fields[field]):
                where = f"{what} {number + 1}"
                if isinstance(value, list) or is_missing(value):
                    signs.update((sign, field) for sign in signs_in(value))
                for label in _checked(as_labels, value, file.path, field, where):
                    rows[0].append(int(codes[number]))
                    rows[1].append(name)
                    rows[2].append(_name_of(label, names[name], file.path, where) if name in names else label)
        table = pa.table({
            "document": pa.array(rows[0], pa.int64()),
            "field": pa.array(rows[1], pa.string()),
            "value": pa.array(rows[2], pa.string()),
        })  # fmt: skip
        columns["labels"] = label_lists(once(table), count)
    for name, field in chosen.covariates:
        columns[name] = _covariate(file, field, codes, count)
        signs.update((sign, field) for value in file.fields[field] if is_missing(value) for sign in signs_in(value))
    guesses = tuple(Guess(MISSING_VALUES, f"{sign} in field {field[:100]!r}") for sign, field in sorted(signs))
    return Side(file.path, keys, columns, guesses)


def _checked(convert: Callable[[object], T], value: object, path: str, field: str, where: str) -> T:
    try:
        return convert(value)
    except ValueError as error:
        raise InputError(path, f"expected {error} in field {field!r}", where) from None


def _covariate(file: SideFile, field: str, codes: npt.NDArray[np.int64], count: int) -> pa.Array:
    values: list[float | None] = [None] * count
    for number, (code, value) in enumerate(zip(codes, file.fields[field], strict=True), start=1):
        where = f"record {number}"
        read = _checked(as_number, value, file.path, field, where)
        if read is not None and values[code] not in (None, read):
            raise InputError(
                file.path, f"the same id has two values in field {field!r}, {values[code]} and {read}", where
            )
        values[code] = values[code] if read is None else read
    return pa.array(values, pa.float64())


def _name_of(label: str, names: tuple[str, list[str]], path: str, where: str) -> str:
    """Return the name of a numbered label; number 1 is the first name."""
    file, every = names
    number = int(label) if re.fullmatch("[0-9]{1,9}", label) else 0
    if not 1 <= number <= len(every) or not every[number - 1]:
        raise InputError(
            path, f"expected a number from 1 to {len(every):,} as {file} has names, found {label!r}", where
        )
    return every[number - 1]


@dataclass(frozen=True)
class SideFileContents:
    """The contents of side files."""

    files: tuple[Side, ...]  # The files
    # ``NAME=FIELD`` of the chosen fields, so that later files are read the same way
    labels: tuple[str, ...]
    covariates: tuple[str, ...]
    fields: frozenset[str]  # All fields of the files' records
    guesses: tuple[Guess, ...] = ()  # Guesses that were made about the files


def read_sides(
    request: SideFileRequest, options: ReadOptions, covariates_of: Collection[str] | None = None
) -> SideFileContents:
    """Read side files."""
    if request.names and not request.files:
        raise OptionError(f"`label_names` {request.names[0]}: applies only to side files; `label_files` names them")
    files = [read_side(file, options) for file in request.files]
    fields = Fields.of(options)
    lists = [read_names(file, options) for file in request.names]
    numbered = [field for field, _, _ in lists if field]
    every = [chosen_of(file, fields, numbered, covariates_of) for file in files]
    labels = list(dict.fromkeys(name for chosen in every for name, _ in chosen.labels))
    names = _names_by_field(lists, labels)
    sides = tuple(side_of(file, chosen, names) for file, chosen in zip(files, every, strict=True))
    records = [chosen for file, chosen in zip(files, every, strict=True) if file.ids is not None]
    return SideFileContents(
        sides,
        tuple(dict.fromkeys(f"{name}={field}" for chosen in records for name, field in chosen.labels)),
        tuple(dict.fromkeys(f"{name}={field}" for chosen in records for name, field in chosen.covariates)),
        frozenset(field for file in files if file.ids is not None for field in file.fields),
        distinct_guesses(
            *(file.guesses for file in files), *(chosen.guesses for chosen in every), *(side.guesses for side in sides)
        ),
    )


def _names_by_field(lists: list[tuple[str, str, list[str]]], labels: list[str]) -> dict[str, tuple[str, list[str]]]:
    names_of: dict[str, tuple[str, list[str]]] = {}
    for field, path, names in lists:
        if not field and len(labels) != 1:
            raise OptionError(f"`label_names` {path}: say whose, FIELD={path}; there are {named(labels)}")
        field = field or labels[0]
        if field not in labels:
            raise OptionError(
                f"`label_names` {field}={path}: no side file has labels {field!r}{suggestion(field, labels)}; "
                f"there are {named(labels)}"
            )
        if field in names_of:
            raise OptionError(f"`label_names` {field}: is said twice")
        names_of[field] = (path, names)
    return names_of
