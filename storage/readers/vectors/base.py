"""Dense vectors: the interface of their files, several files as one source, and the layout of columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.corpus.vectors import MOST_COLUMNS, Vectors
from collapsium.storage.corpus.writer import numbered_ids
from collapsium.storage.errors import InputError, OptionError, suggestion
from collapsium.storage.readers.base import required_names
from collapsium.storage.readers.read_options import Guess, ReadOptions, distinct_guesses
from collapsium.storage.readers.texts.values import MISSING

CHUNK_VALUES = 4_000_000  # Number of values in a chunk
_NUMBER = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True)
class VectorChunk:
    """Some vectors of a file."""

    values: npt.NDArray[np.float64]  # The vectors; float64 (vectors, columns)
    ids: pa.Array | None  # Ids; None if no column has ids
    labels: tuple[pa.Array, ...]  # Values of each label field; a text of `MISSING` means no label


@dataclass(frozen=True)
class Layout:
    """The columns of a file that are values, ids and labels, counted from 0."""

    values: tuple[int, ...]  # Columns of values
    id: int | None  # Column of the ids
    labels: tuple[tuple[str, int], ...]  # Field and column of each label
    names: tuple[str, ...] = ()  # Names of the values' columns; empty if the file has no names


class DenseFile(Protocol):
    """One file of dense vectors.

    ``name`` is its name in error messages, ``fields`` are the label fields, ``layout`` describes the columns, and
    ``guesses`` is what the reader found out about the file by itself.
    """

    name: str
    guesses: tuple[Guess, ...]
    fields: tuple[str, ...]
    layout: Layout

    def chunks(self) -> Iterator[VectorChunk]:
        """Yield chunks of vectors; each call starts at the first."""


def place_of(text: str, names: Sequence[str], width: int, path: str, flag: str) -> int:
    """Return the index of a column from its name, or from its number from the left (1) or the right (-1)."""
    if text in names:
        return list(names).index(text)
    if _NUMBER.fullmatch(text):
        number = int(text)
        if 1 <= abs(number) <= width:
            return number - 1 if number > 0 else width + number
        raise OptionError(f"`{flag}` {text}: {path} has the columns 1 to {width}, or -1 to -{width} from the right")
    if names:
        raise OptionError(f"`{flag}` {text}: {path} has no such column{suggestion(text, names)}")
    raise OptionError(
        f"`{flag}` {text}: {path} names no columns; expected a number, from the left (1) or the right (-1)"
    )


def layout_of(options: ReadOptions, names: Sequence[str], width: int, path: str) -> Layout:
    """Return the columns of a file that are values, ids and labels."""
    if width > MOST_COLUMNS:
        raise InputError(path, f"expected at most {MOST_COLUMNS} columns, found {width}")
    identity = None if options.id is None else place_of(options.id, names, width, path, "id")
    labels: list[tuple[str, int]] = []
    for number, text in enumerate(options.labels, start=1):
        field, equals, column = text.partition("=")
        if text in names or not equals:
            column = text
            place = place_of(column, names, width, path, "labels")
            field = names[place] if names else "label" if len(options.labels) == 1 else f"label{number}"
        else:
            place = place_of(column, names, width, path, "labels")
        labels.append((field, place))
    taken = [place for place in (identity, *(place for _, place in labels)) if place is not None]
    if len(set(taken)) < len(taken):
        raise OptionError("a column is named twice, as a label or as the id", "labels")
    values = tuple(place for place in range(width) if place not in set(taken))
    if not values:
        raise InputError(path, "expected a column of values")
    value_names = tuple(names[place] for place in values) if names else ()
    if "" in value_names or len(set(value_names)) < len(value_names):
        again = next(name for place, name in enumerate(value_names) if not name or name in value_names[:place])
        fault = f"{again!r} twice" if again else "one without"
        if value_names[0] == "" and values[0] == 0:
            fault += f"; if the first column is an index, `id` -{width} makes ids of it"
        raise InputError(path, f"expected a name of its own for each column of values, found {fault}", "header")
    return Layout(values, identity, tuple(labels), value_names)


class DenseSource:
    """Files of dense vectors, read one after another.

    ``named`` is true if a file names its columns, ``numbered`` if the vectors of a file have no ids; ``file`` is the
    name of the file that is being read, and ``guesses`` are those about all files.
    """

    def __init__(self, files: list[DenseFile], stems: list[str], options: ReadOptions, *, tagged: bool = False) -> None:
        self.name = files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"
        self._files, self._stems, self._tagged = files, stems, tagged or len(files) > 1
        width = len(files[0].layout.values)
        names = next((file.layout.names for file in files if file.layout.names), ())
        for file in files:
            if len(file.layout.values) != width:
                raise InputError(
                    file.name,
                    f"expected {width} columns of values as in {files[0].name}, found {len(file.layout.values)}",
                )
            if file.layout.names and file.layout.names != names:
                other = next(pair for pair in zip(file.layout.names, names, strict=True) if pair[0] != pair[1])
                raise InputError(
                    file.name, f"expected the columns of {files[0].name}, found {other[0]!r} for {other[1]!r}"
                )
        self.file, self.named = self.name, bool(names)
        self.numbered = any(file.layout.id is None for file in files)
        self.guesses = distinct_guesses(*(file.guesses for file in files))
        self._columns = list(names) or [f"x{number}" for number in range(1, width + 1)]
        words = required_names(options)
        if words is not None:
            self._columns = words
            if len(self._columns) != width:
                raise InputError(
                    options.vocabulary if isinstance(options.vocabulary, str) else self.name,
                    f"expected names of the {width} columns of values, found {len(self._columns)}",
                )

    def columns(self) -> list[str]:
        """Return the names of the columns of values."""
        return self._columns

    def vectors(self) -> Iterator[Vectors]:
        """Yield the vectors of one file after another; each call starts at the first."""
        seen: set[str] = set()
        for number, file in enumerate(self._files):
            self.file, first = file.name, 0
            for chunk in file.chunks():
                _require_finite(file, chunk.values, first, self._columns)
                ids = chunk.ids
                if ids is None:
                    ids = numbered_ids(first + 1, len(chunk.values))
                    if self._tagged:
                        ids = pc.binary_join_element_wise(self._stems[number], ids, "/")
                else:
                    for row, name in enumerate(ids.to_pylist(), start=first + 1):
                        if not name or name in seen:
                            fault = f"the id {name!r} occurs twice" if name else "expected an id, found none"
                            raise InputError(file.name, fault, f"row {row}")
                        seen.add(name)
                extras = {"labels": labels_of(file.fields, chunk.labels)} if file.fields else {}
                yield Vectors(ids, chunk.values, extras)
                first += len(chunk.values)


def _require_finite(file: DenseFile, values: npt.NDArray[np.float64], first: int, columns: list[str]) -> None:
    if not values.size or (np.isfinite(values.min()) and np.isfinite(values.max())):
        return
    row, column = np.argwhere(~np.isfinite(values))[0]
    raise InputError(
        file.name,
        f"expected a finite number, found {values[row, column]}",
        f"row {first + row + 1}, column {file.layout.values[column] + 1} ({columns[column]!r})",
    )


def labels_of(fields: Sequence[str], labels: Sequence[pa.Array]) -> pa.Array:
    """Return the labels of vectors as (field, value) lists."""
    count = len(labels[0])
    every = np.stack([label.to_numpy(zero_copy_only=False) for label in labels], axis=1)
    signs = pa.array(sorted(MISSING), pa.string())
    keep = np.stack([~np.asarray(pc.is_in(label, value_set=signs)) for label in labels], axis=1)
    names = np.tile(np.array(fields, dtype=object), (count, 1))
    pairs = pa.StructArray.from_arrays(
        [pa.array(names[keep], pa.string()), pa.array(every[keep], pa.string())], fields=list(LABELS.value_type)
    )
    offsets = np.concatenate([[0], np.cumsum(keep.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pairs).cast(LABELS)
