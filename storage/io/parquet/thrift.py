"""Thrift's compact protocol, in which the metadata of Parquet files is written; PyArrow shows none of it for pages."""

from __future__ import annotations

from typing import Any

MAX_ENTRIES = 1 << 20
"""Entries of a list or map at most, as of the columns, groups of rows or schema elements in a footer."""

MAX_DEPTH = 32
"""Structures within one another at most."""


class Thrift:
    """Reads structures of Thrift's compact protocol as dicts by field number; `ValueError` for what is none."""

    def __init__(self, data: bytes, place: int = 0) -> None:
        self._data, self.place = data, place

    def structure(self, depth: int = 0) -> dict[int, Any]:
        """Read a structure."""
        found: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            found[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return found

    def _byte(self) -> int:
        if self.place >= len(self._data):
            raise ValueError("the metadata is cut short")
        self.place += 1
        return self._data[self.place - 1]

    def _unsigned(self) -> int:
        found = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
        raise ValueError("a number of more than 64 bits")

    def _signed(self) -> int:
        found = self._unsigned()
        return (found >> 1) ^ -(found & 1)

    def _bytes(self, count: int) -> bytes:
        if count > len(self._data) - self.place:
            raise ValueError("the metadata is cut short")
        self.place += count
        return self._data[self.place - count : self.place]

    def _value(self, kind: int, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError("structures within one another, too deep")
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 8:
            return self._bytes(self._unsigned())
        if kind in (9, 10):
            head = self._byte()
            count, inner = head >> 4 if head >> 4 < 15 else self._unsigned(), head & 15
            if count > min(MAX_ENTRIES, len(self._data) - self.place):
                raise ValueError(f"a list of {count} entries")
            return [self._value(3 if inner in (1, 2) else inner, depth + 1) for _ in range(count)]
        if kind == 12:
            return self.structure(depth + 1)
        fixed = {1: 1, 2: 1, 3: 1, 7: 8, 13: 16}
        if kind in fixed:
            return self._bytes(fixed[kind])
        if kind == 11:
            count = self._unsigned()
            if count > min(MAX_ENTRIES, len(self._data) - self.place):
                raise ValueError(f"a map of {count} entries")
            kinds = self._byte() if count else 0
            return [(self._value(kinds >> 4, depth + 1), self._value(kinds & 15, depth + 1)) for _ in range(count)]
        raise ValueError(f"a field of kind {kind}")


def whole_number(value: Any, most: int = 1 << 62) -> int:
    """Return a field's value if it is a whole number from 0 to `most`; `ValueError` otherwise."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"expected a whole number in the metadata, found {str(value)[:40]}")
    return value


def structures(value: Any) -> list[dict[int, Any]]:
    """Return a field's value if it is a list of structures; `ValueError` otherwise."""
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError("expected a list of structures in the metadata")
    return value
