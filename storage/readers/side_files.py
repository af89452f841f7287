"""Columns of side files: labels and covariates among their fields, and names of numbered labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.corpus.list_columns import label_lists, once, union
from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.errors import InputError, OptionError, near, suggestion
from collapsium.storage.io.folder import Folder
from collapsium.storage.printable import ShortRepr
from collapsium.storage.readers.compression import PACKED
from collapsium.storage.readers.open import kind_of_name
from collapsium.storage.readers.read_options import (
    MISSING_VALUES,
    TAB_AND_SEMICOLON,
    Guess,
    ReadOptions,
    distinct_guesses,
)
from collapsium.storage.readers.texts.blocks import GATHER, find_files
from collapsium.storage.readers.texts.fields import (
    TAKEN,
    Fields,
    as_labels,
    as_number,
    clean,
    described,
    id_of,
    is_code,
    is_missing,
    is_number,
    named,
    signs_in,
)
from collapsium.storage.readers.texts.segment import Span
from collapsium.storage.readers.texts.tables import decoded, lines_of

# Separators of labels in a line, as they are named, and their patterns; the first that occurs is the one
SIGNS = {TAB_AND_SEMICOLON: r"[\t;]", ",": ",", "tab": r"\t", "space": r"\s+"}

RECORDS = ("csv", "jsonl", "parquet")  # Formats of side files that have an id in each row


class _Records:
    """Collects the records of a side file as a list of values for each field."""

    side_file = True

    def __init__(self, options: ReadOptions) -> None:
        self._id_option = options.id
        self._named = {field for field, flag in Fields.of(options).flags.items() if flag in ("labels", "covariates")}
        self.id = ""
        self.ids: list[str] = []
        self.columns: dict[str, list[object]] = {}
        self.replaced = 0
        self.guesses: dict[Guess, None] = {}

    def requested(self, path: str, names: list[str]) -> list[str]:
        self._choose_id(path, names, lambda: "")
        # Columns without a name are of no use, such as the index of pandas; nor are doubled ones if others are named.
        chosen = not self._named.isdisjoint(names)
        needed = {self.id, *self._named}
        return [
            name for name in dict.fromkeys(names) if name in needed or (name and (names.count(name) == 1 or not chosen))
        ]

    def _choose_id(self, path: str, names: Collection[str], where: Callable[[], str]) -> None:
        """Set the field of the ids to the option `id` if the file has that field, or else to ``id``."""
        field = next((name for name in (self._id_option, "id") if name and name in names), None)
        if field is None:
            sought = self._id_option or "id"
            raise InputError(
                path, f"no field {sought!r} (`id`){near(sought, names)}; there are {named(names)}", where()
            )
        self.id = field

    def add(self, path: str, record: Mapping[str, object], where: Callable[[], str]) -> None:
        if not self.id:
            self._choose_id(path, record, where)
        row = len(self.ids)
        self.ids.append(id_of(path, record, self.id, where))
        for field, value in record.items():
            column = self.columns.setdefault(field, [])
            column.extend([None] * (row - len(column)))
            column.append(value)

    def fields(self) -> dict[str, list[object]]:
        """Return the values of all fields except the ids, a value for each record; None for missing values."""
        rows = len(self.ids)
        padded = {name: values + [None] * (rows - len(values)) for name, values in self.columns.items()}
        return {name: values for name, values in padded.items() if name != self.id}


@dataclass(frozen=True, repr=False)
class SideFile(ShortRepr):
    """A side file, before its labels and covariates are chosen."""

    path: str  # The file
    name: str  # Name of its field; empty if the option sets none
    ids: list[str] | None  # Ids of the records; None for files of lines
    # Values of each field, one for each record; files of lines have one field, a list of labels for each line
    fields: dict[str, list[object]]
    texts: bool = False  # True if all values are texts, even numbers, as in comma-separated values
    guesses: tuple[Guess, ...] = ()  # Guesses that were made about the file


def read_side(source: str, options: ReadOptions) -> SideFile:
    """Read a side file."""
    name, path = named_file(source, "label_files")
    kind = kind_of_name(path)
    files = find_files([path], kind, kind_of_name)
    if kind in RECORDS:
        records = _Records(options)
        for span in files:
            for _ in GATHER[kind](span, options, records):
                pass
        if not records.ids:
            raise InputError(path, "expected records with ids, found none")
        return SideFile(path, name, records.ids, records.fields(), kind == "csv", tuple(records.guesses))
    if kind not in (None, "text"):
        raise InputError(path, f"expected lines of text, or records of {', '.join(RECORDS)}; its name says {kind}")
    if len(files) > 1:
        raise InputError(path, f"expected one file with one line per document, found {len(files):,} files")
    guesses: dict[Guess, None] = {}
    lines = _text_lines(files[0], options, guesses)
    # Labels are separated by tabs or semicolons, else by commas, else by white space.
    separator = options.label_separator
    if separator is None:
        signs = (sign for sign, pattern in SIGNS.items() if any(re.search(pattern, line) for line in lines))
        separator = next(signs, "space")
        guesses[Guess("label_separator", separator, "label_separator")] = None
    pattern = SIGNS.get(separator) or re.escape(separator)
    labels: list[object] = [[part.strip() for part in re.split(pattern, line) if part.strip()] for line in lines]
    stem = path.rstrip("/").rpartition("/")[2]
    for packed in PACKED:
        stem = stem.removesuffix(packed)
    return SideFile(path, name, None, {name or stem.rpartition(".")[0] or stem: labels}, guesses=tuple(guesses))


def named_file(source: str, flag: str) -> tuple[str, str]:
    """Return the parts of ``NAME=FILE``; an existing file with an equals sign in its name has no NAME."""
    name, equals, path = source.partition("=")
    if not equals or "/" in name or Folder(source).exists():
        return "", source
    if not name or not path:
        raise OptionError(f"`{flag}` {source}: expected FILE or NAME=FILE")
    return name, path


def _text_lines(span: Span, options: ReadOptions, guesses: dict[Guess, None] | None = None) -> list[str]:
    records = _Records(options)
    return [
        clean(decoded(line, span.path, options, records, where)).strip()
        for line, where in lines_of(span, options, guesses)
    ]


def read_names(source: str, options: ReadOptions) -> tuple[str, str, list[str]]:
    """Return the names of a file with one name a line."""
    field, path = named_file(source, "label_names")
    files = find_files([path], None, kind_of_name)
    if len(files) > 1:
        raise InputError(path, f"expected one file with a name a line, found {len(files):,} files")
    return field, path, _text_lines(files[0], options)


@dataclass(frozen=True, repr=False)
class Side(ShortRepr):
    """The labels and covariates of one side file."""

    path: str  # The file
    ids: pa.Array | None  # Unique id of each row; None if row d belongs to document d
    columns: dict[str, pa.Array]  # ``labels`` as (field, value) lists, and the covariates
    guesses: tuple[Guess, ...] = ()  # Texts that were read as missing values

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def places(self, ids: pa.Array, first: int) -> pa.Array:
        """Return the row of each document, null if it has none; `first` is the number of the first document."""
        if self.ids is not None:
            return pc.index_in(ids, value_set=self.ids)
        rows = np.arange(first, first + len(ids))
        return pa.array(rows, mask=rows >= len(self))


class Sides:
    """Several side files, with a record of the rows that documents have used."""

    def __init__(
        self,
        files: Sequence[Side],
        further: Mapping[str, pa.DataType] | None = None,
        guesses: Sequence[Guess] = (),
    ) -> None:
        self.guesses = tuple(guesses)
        self.files, self._further = tuple(files), dict(further or {})
        self._seen = [np.zeros(0 if side.ids is None else len(side.ids), dtype=bool) for side in files]

    @property
    def columns(self) -> dict[str, pa.DataType]:
        """Return the additional columns of documents with their types."""
        columns = dict(self._further)
        for side in self.files:
            columns.update({name: LABELS if name == "labels" else pa.float64() for name in side.columns})
        return columns

    @property
    def by_order(self) -> bool:
        """True if the rows of any file follow the order of the documents."""
        return any(side.ids is None for side in self.files)

    def of(self, ids: pa.Array, first: int) -> dict[str, pa.Array]:
        """Return the labels and covariates of documents, and record the rows that were used."""
        columns: dict[str, pa.Array] = {name: pa.nulls(len(ids), kind) for name, kind in self.columns.items()}
        for side, seen in zip(self.files, self._seen, strict=True):
            places = side.places(ids, first)
            if side.ids is not None:
                seen[np.asarray(places.drop_null(), dtype=np.int64)] = True
            taken = {name: column.take(places) for name, column in side.columns.items()}
            columns.update(merged({name: columns[name] for name in taken}, taken))
        return merged(columns, {})

    def judge(self, documents: int) -> int:
        """Return the number of unmatched rows after the last document; raise an error if a file does not fit."""
        unmatched = 0
        for side, seen in zip(self.files, self._seen, strict=True):
            if side.ids is None:
                if len(side) != documents:
                    raise InputError(
                        side.path, f"expected {documents:,} lines, one for each document, found {len(side):,}"
                    )
                continue
            if not seen.any():
                some = ", ".join(map(repr, side.ids.slice(0, 3).to_pylist())) or "none"
                raise InputError(
                    side.path, f"expected ids of the documents, found none among {len(side):,} (such as {some}); "
                    "`id` FIELD names their field"
                )  # fmt: skip
            unmatched += int((~seen).sum())
        return unmatched


def merged(first: Mapping[str, pa.Array], second: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Return the merged columns of the same documents."""
    columns = dict(first)
    for name, column in second.items():
        if name not in columns:
            columns[name] = column
        elif name == "labels":
            columns[name] = union([columns[name], column], len(column))
        else:
            columns[name] = pc.coalesce(columns[name], column)
    if "labels" in columns and columns["labels"].null_count:
        columns["labels"] = union([columns["labels"]], len(columns["labels"]))
    return columns


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
            are_numbers, reason = _holds_numbers(values, file.texts)
            numbers += [name] if are_numbers else []
            value = "numbers" if are_numbers else f"labels, as {reason}" if reason else "labels"
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
            f"{file.path}: the covariate {taken!r} has a reserved name in a corpus; "
            f"rename it, `covariates` NAME={taken}"
        )
    return Chosen(labels, covariates, tuple(guesses))


def _holds_numbers(values: list[Any], written: bool) -> tuple[bool, str]:
    """Return True if all values are numbers, and at least one exists; and why not, if only some are or it is a code."""
    # Written values are few in most columns, and each is then judged once.
    kinds = dict.fromkeys(values) if written else values
    number = label = None
    for value in kinds:
        if is_missing(value):
            continue
        if is_number(value, written=written):
            number = value
        elif label is None:
            label = value
        if label is not None and (number is not None or is_code(label)):
            why = "a code" if is_code(label) else "no number"
            record = next(record for record, earlier in enumerate(values, start=1) if earlier is label)
            return False, f"{described(label)} in record {record} is {why}"
    return number is not None and label is None, ""


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
    names: dict[str, tuple[str, list[str]]] = {}
    for field, path, names_in_file in lists:
        if not field and len(labels) != 1:
            raise OptionError(f"`label_names` {path}: name the field, FIELD={path}; there are {named(labels)}")
        field = field or labels[0]
        if field not in labels:
            raise OptionError(
                f"`label_names` {field}={path}: no side file has labels {field!r}{suggestion(field, labels)}; "
                f"there are {named(labels)}"
            )
        if field in names:
            raise OptionError(f"`label_names` {field}: is given twice")
        names[field] = (path, names_in_file)
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
