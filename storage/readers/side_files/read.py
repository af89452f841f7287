"""Reading side files: labels and covariates that lie beside documents, a line a document or records with ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from collapsium.storage.errors import InputError, OptionError, near
from collapsium.storage.io.folder import Folder
from collapsium.storage.readers.open import kind_of_name
from collapsium.storage.readers.read_options import ReadOptions
from collapsium.storage.readers.texts.batches import GATHER
from collapsium.storage.readers.texts.blocks import find_files
from collapsium.storage.readers.texts.fields import id_of, named
from collapsium.storage.readers.texts.lines import decoded, lines_of
from collapsium.storage.readers.texts.spans import PACKED, Span
from collapsium.storage.readers.texts.values import clean
from collapsium.storage.short_repr import ShortRepr

RECORDS = ("csv", "jsonl", "parquet")  # formats of side files whose rows have ids


class _Told:
    """Keeps the records of a side file: a list of values a field."""

    def __init__(self, options: ReadOptions) -> None:
        self._said = options.id
        self.id = ""
        self.ids: list[str] = []
        self.columns: dict[str, list[Any]] = {}
        self.replaced = 0

    def wanted(self, path: str, names: list[str]) -> list[str]:
        self._settle(path, names, lambda: "")
        return names

    def _settle(self, path: str, names: Any, where: Callable[[], str]) -> None:
        """Find the field of the ids: the one that is said, as far as the file has it, or else ``id``."""
        found = next((name for name in (self._said, "id") if name and name in names), None)
        if found is None:
            sought = self._said or "id"
            raise InputError(
                path, f"no field {sought!r} (`id`){near(sought, names)}; there are {named(names)}", where()
            )
        self.id = found

    def add(self, path: str, record: Mapping[str, Any], where: Callable[[], str]) -> None:
        if not self.id:
            self._settle(path, record, where)
        row = len(self.ids)
        self.ids.append(id_of(path, record, self.id, where))
        for field, value in record.items():
            column = self.columns.setdefault(field, [])
            column.extend([None] * (row - len(column)))
            column.append(value)

    def fields(self) -> dict[str, list[Any]]:
        """Return all fields but the ids', each with a value a record; None where it is missing."""
        rows = len(self.ids)
        whole = {name: values + [None] * (rows - len(values)) for name, values in self.columns.items()}
        return {name: values for name, values in whole.items() if name != self.id}


@dataclass(frozen=True, repr=False)
class SideFile(ShortRepr):
    """A side file that was read, before it is said which of its fields are what.

    Attributes
    ----------
    path : str
        The file.
    name : str
        What its field is to be called; empty where nobody said so.
    ids : list of str or None
        Ids of its records; None for lines.
    fields : dict of str to list
        Values of each field, one a record; of lines one field, a list of labels each.
    texts : bool
        Whether all values are texts, as in comma-separated values, and those of numbers are still to be told.
    """

    path: str
    name: str
    ids: list[str] | None
    fields: dict[str, list[Any]]
    texts: bool = False


def read_side(said: str, options: ReadOptions) -> SideFile:
    """Read a side file.

    Parameters
    ----------
    said : str
        The file, or ``NAME=FILE``.
    options : ReadOptions
        The field of the ids, how to treat bytes that are not UTF-8, and how much may come out of a compressed file.

    Returns
    -------
    SideFile
        What it holds.

    Raises
    ------
    AbsentError
        There is no such file.
    InputError
        It is damaged, or its records have no ids.
    OptionError
        The name is empty.
    """
    name, path = named_file(said, "label_files")
    kind = kind_of_name(path)
    files = find_files([path], kind, kind_of_name)
    if kind in RECORDS:
        told = _Told(options)
        for span in files:
            for _ in GATHER[kind](span, options, told):
                pass
        if not told.ids:
            raise InputError(path, "expected records with ids, found none")
        return SideFile(path, name, told.ids, told.fields(), kind == "csv")
    if kind not in (None, "text"):
        raise InputError(path, f"expected lines of text, or records of {', '.join(RECORDS)}; the name tells {kind}")
    if len(files) > 1:
        raise InputError(path, f"expected one file with a line a document, found {len(files):,} files")
    return SideFile(path, name, None, {name or stem_of(path): _labels_of_lines(files[0], options)})


def named_file(said: str, flag: str) -> tuple[str, str]:
    """Take ``NAME=FILE`` apart; a file whose own name has such a sign is a file.

    Parameters
    ----------
    said : str
        What was given.
    flag : str
        The option, for the error.

    Returns
    -------
    name, path : str
        The name may be empty.

    Raises
    ------
    OptionError
        A part is empty.
    """
    name, equals, path = said.partition("=")
    if not equals or "/" in name or Folder(said).exists():
        return "", said
    if not name or not path:
        raise OptionError(f"`{flag}` {said}: expected FILE or NAME=FILE")
    return name, path


def stem_of(path: str) -> str:
    """Return a file's name without its folder and its endings."""
    name = path.rstrip("/").rpartition("/")[2]
    for packed in PACKED:
        name = name.removesuffix(packed)
    return name.rpartition(".")[0] or name


def _text_lines(span: Span, options: ReadOptions) -> list[str]:
    told = _Told(options)
    found = []
    for number, (line, where) in enumerate(lines_of(span, options)):
        line = line.removeprefix(b"\xef\xbb\xbf") if not number else line
        found.append(clean(decoded(line, span.path, options, told, where)).strip())
    return found


def _labels_of_lines(span: Span, options: ReadOptions) -> list[list[str]]:
    """Part lines by tabs or semicolons where the file has any, else by commas, else by white space."""
    lines = _text_lines(span, options)
    sign = next((one for one in ("[\t;]", ",") if any(re.search(one, line) for line in lines)), r"\s+")
    return [[part.strip() for part in re.split(sign, line) if part.strip()] for line in lines]


def read_names(said: str, options: ReadOptions) -> tuple[str, str, list[str]]:
    """Read a file with a name a line.

    Parameters
    ----------
    said : str
        The file, or ``FIELD=FILE``.
    options : ReadOptions
        As for `read_side`.

    Returns
    -------
    field : str
        Whose names they are; empty where nobody said so.
    path : str
        The file.
    names : list of str
        The name of 1, of 2, and so on; an empty line is none.

    Raises
    ------
    AbsentError
        There is no such file.
    InputError
        It is damaged.
    """
    field, path = named_file(said, "label_names")
    files = find_files([path], None, kind_of_name)
    if len(files) > 1:
        raise InputError(path, f"expected one file with a name a line, found {len(files):,} files")
    return field, path, _text_lines(files[0], options)
