"""Parse the footers of Parquet files: columns, row groups, and the position of their pages.

Arrow 26 crashes on some damaged footers, so they are checked here first.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from collapsium.storage.io.parquet.thrift import (
    MAX_DEPTH,
    MAX_ENTRIES,
    Structure,
    Thrift,
    Value,
    natural_number,
    structures,
)

# Bytes of a value by physical type: bool, int32, int64, int96, float, double, byte arrays
WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 6: 8}

BYTE_ARRAY, FIXED_LENGTH = 6, 7  # Physical types of byte arrays, of any length and of one


class Leaf(NamedTuple):
    """A column of values: its path in the schema, physical type, bytes of a value, and True if it is within a list."""

    path: tuple[str, ...]
    kind: int
    width: int
    nested: bool


class Chunk(NamedTuple):
    """The pages of a column in a row group: first byte, number of bytes, and number of values."""

    first: int
    size: int
    values: int


@dataclass(frozen=True)
class Footer:
    """The metadata of a file: rows, columns, and each row group's pages and decompressed bytes."""

    rows: int
    leaves: tuple[Leaf, ...]
    groups: tuple[tuple[Chunk, ...], ...]
    sizes: tuple[int, ...]


@functools.lru_cache(maxsize=4)
def parse_footer(footer: bytes, size: int) -> Footer:
    """Parse a footer with `size` bytes of the file before it."""
    fields = Thrift(footer).structure()
    leaves = tuple(_leaves(structures(fields.get(2))))
    groups, sizes = [], []
    for group in structures(fields.get(4, [])):
        columns = structures(group.get(1))
        if len(columns) != len(leaves):
            raise ValueError(f"expected {len(leaves)} columns in each group of rows, found {len(columns)}")
        sizes.append(natural_number(group.get(2)))
        groups.append(tuple(_chunk(column.get(3), size) for column in columns))
    return Footer(natural_number(fields.get(3)), leaves, tuple(groups), tuple(sizes))


def _chunk(fields: Value, size: int) -> Chunk:
    if not isinstance(fields, dict):
        raise ValueError("expected the metadata of a column")
    data, dictionary = natural_number(fields.get(9)), natural_number(fields.get(11) or 0)
    first = dictionary if 0 < dictionary < data else data
    length = natural_number(fields.get(7))
    if first + length > size:
        raise ValueError("expected the pages of a column within the file")
    return Chunk(first, length, natural_number(fields.get(5)))


def _leaves(schema: list[Structure]) -> Iterator[Leaf]:
    """Yield the columns of values of a schema, which is a tree in depth-first order."""
    if not schema:
        raise ValueError("expected a schema")
    above: list[tuple[tuple[str, ...], bool, int]] = [((), False, natural_number(schema[0].get(5, 0), MAX_ENTRIES))]
    for element in schema[1:]:
        while above and not above[-1][2]:
            above.pop()
        if not above or len(above) > MAX_DEPTH:
            raise ValueError("expected a schema that is a tree")
        path, nested, left = above[-1]
        above[-1] = (path, nested, left - 1)
        name = element.get(4, b"")
        path = (*path, name.decode("utf-8", "replace") if isinstance(name, bytes) else "")
        nested = nested or element.get(3) == 2
        children = natural_number(element.get(5) or 0, MAX_ENTRIES)
        if children:
            above.append((path, nested, children))
            continue
        kind = natural_number(element.get(1), FIXED_LENGTH)
        width = natural_number(element.get(2), 1 << 31) if kind == FIXED_LENGTH else WIDTHS[kind]
        yield Leaf(path, kind, width, nested)
