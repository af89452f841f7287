"""Read side files: labels and covariates with a line a document, or records with ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from collapsium.storage.errors import InputError, OptionError, near
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.compression import PACKED
from collapsium.storage.readers.guesses import Guess
from collapsium.storage.readers.open import kind_of_name
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.separators import TAB_AND_SEMICOLON
from collapsium.storage.readers.texts.batches import GATHER
from collapsium.storage.readers.texts.blocks import find_files
from collapsium.storage.readers.texts.fields import Fields, id_of, named
from collapsium.storage.readers.texts.lines import decoded, lines_of
from collapsium.storage.readers.texts.spans import Span
from collapsium.storage.readers.texts.values import clean
from collapsium.storage.short_repr import ShortRepr

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
        raise InputError(path, f"expected lines of text, or records of {', '.join(RECORDS)}; the name tells {kind}")
    if len(files) > 1:
        raise InputError(path, f"expected one file with a line a document, found {len(files):,} files")
    labels, guesses = _labels_of_lines(files[0], options)
    return SideFile(path, name, None, {name or stem_of(path): [*labels]}, guesses=guesses)


def named_file(source: str, flag: str) -> tuple[str, str]:
    """Return the parts of ``NAME=FILE``; an existing file with an equals sign in its name has no NAME."""
    name, equals, path = source.partition("=")
    if not equals or "/" in name or Folder(source).exists():
        return "", source
    if not name or not path:
        raise OptionError(f"`{flag}` {source}: expected FILE or NAME=FILE")
    return name, path


def stem_of(path: str) -> str:
    """Return a file's name without its folder and its endings."""
    name = path.rstrip("/").rpartition("/")[2]
    for packed in PACKED:
        name = name.removesuffix(packed)
    return name.rpartition(".")[0] or name


def _text_lines(span: Span, options: ReadOptions, guesses: dict[Guess, None] | None = None) -> list[str]:
    records = _Records(options)
    lines = []
    for line, where in lines_of(span, options, guesses):
        lines.append(clean(decoded(line, span.path, options, records, where)).strip())
    return lines


def _labels_of_lines(span: Span, options: ReadOptions) -> tuple[list[list[str]], tuple[Guess, ...]]:
    """Return the labels of each line, split at tabs or semicolons, else at commas, else at white space."""
    guesses: dict[Guess, None] = {}
    lines = _text_lines(span, options, guesses)
    named = options.label_separator
    if named is None:
        signs = (sign for sign, pattern in SIGNS.items() if any(re.search(pattern, line) for line in lines))
        named = next(signs, "space")
        guesses[Guess("label_separator", named, "label_separator")] = None
    pattern = SIGNS.get(named) or re.escape(named)
    return [[part.strip() for part in re.split(pattern, line) if part.strip()] for line in lines], tuple(guesses)


def read_names(source: str, options: ReadOptions) -> tuple[str, str, list[str]]:
    """Return the names of a file with one name a line."""
    field, path = named_file(source, "label_names")
    files = find_files([path], None, kind_of_name)
    if len(files) > 1:
        raise InputError(path, f"expected one file with a name a line, found {len(files):,} files")
    return field, path, _text_lines(files[0], options)
