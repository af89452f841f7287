"""Parse Thrift's compact protocol, the format of Parquet's metadata; PyArrow does not expose that of pages."""

from __future__ import annotations

from typing import TypeAlias

# Largest number of entries of a list or map, such as the columns, row groups or schema elements of a footer
MAX_ENTRIES = 1 << 20

MAX_DEPTH = 32  # Deepest nesting of structures
Structure: TypeAlias = "dict[int, Value]"  # A structure: the value of each field, by the field's number
Value: TypeAlias = "bool | int | bytes | list[Value] | list[tuple[Value, Value]] | Structure | None"  # A field's value


class Thrift:
    """Parses structures of Thrift's compact protocol; raises `ValueError` for damaged bytes."""

    def __init__(self, data: bytes, place: int = 0) -> None:
        self._data, self.place = data, place

    def structure(self, depth: int = 0) -> Structure:
        """Parse a structure."""
        fields: Structure = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return fields

    def _byte(self) -> int:
        if self.place >= len(self._data):
            raise ValueError("the metadata is cut short")
        self.place += 1
        return self._data[self.place - 1]

    def _unsigned(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number of more than 64 bits")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def _bytes(self, count: int) -> bytes:
        if count > len(self._data) - self.place:
            raise ValueError("the metadata is cut short")
        self.place += count
        return self._data[self.place - count : self.place]

    def _value(self, kind: int, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise ValueError(f"expected structures nested at most {MAX_DEPTH} deep")
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


def natural_number(value: Value, most: int = 1 << 62) -> int:
    """Return a field's value, an integer from 0 to `most`; raise `ValueError` for other values."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"expected a whole number in the metadata, found {str(value)[:40]}")
    return value


def structures(value: Value) -> list[Structure]:
    """Return a field's value, a list of structures; raise `ValueError` for other values."""
    entries = [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
    if not isinstance(value, list) or len(entries) < len(value):
        raise ValueError("expected a list of structures in the metadata")
    return entries
