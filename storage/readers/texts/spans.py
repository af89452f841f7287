"""Spans: files, or parts of files, that are read as one piece."""

from __future__ import annotations

from dataclasses import dataclass

from collapsium.storage.readers.compression import PACKED


@dataclass(frozen=True)
class LeftOut:
    """Files of folders that were not read: why, how many, and the names of the first."""

    why: str
    files: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Span:
    """A file, or a part of it."""

    path: str  # Path or URL of the file
    name: str  # Path below the source; it is the id if the file is a document
    size: int  # Bytes of the file, or of its row groups in the span
    source: int = 0  # Number of the source
    # The bytes, or the row groups of Parquet, from `first` to `last` - 1; None for the entire file
    first: int = 0
    last: int | None = None
    # Fields with the same value in all records, from folders such as ``year=1987``
    constants: tuple[tuple[str, str], ...] = ()

    @property
    def packed(self) -> bool:
        """True if the file name has the ending of a compressed file."""
        return self.path.lower().endswith(PACKED)
