"""Sums over shards, in a fixed order, so that they have the same bits for any number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

SumsT = TypeVar("SumsT")


def add(parts: Sequence[SumsT]) -> SumsT:
    """Return the sum of arrays or numbers, or of named tuples of these field by field, in their order."""
    first = parts[0]
    if isinstance(first, tuple):
        return type(first)(*map(add, zip(*parts, strict=True)))
    total = first
    for part in parts[1:]:
        total = total + part  # type: ignore[operator]
    return total
