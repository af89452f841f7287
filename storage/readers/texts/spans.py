"""Spans of bytes in text files."""

from __future__ import annotations

from dataclasses import dataclass

PACKED = (".gz", ".bz2", ".xz", ".lzma", ".zip", ".zst")


@dataclass(frozen=True)
class Span:
    """A file, or a part of it.

    Attributes
    ----------
    path : str
        The file as it is named in errors, and opened.
    name : str
        What it is called below its source: the id of a document that is a file.
    size : int
        The bytes of the file, or of these groups of rows.
    source : int
        Which of the sources it is of.
    first, last : int or None
        The bytes, or of Parquet the groups of rows, from `first` to `last` - 1; None for all.
    constants : tuple of (str, str)
        Fields that are the same in all its records, from folders such as ``year=1987``.
    """

    path: str
    name: str
    size: int
    source: int = 0
    first: int = 0
    last: int | None = None
    constants: tuple[tuple[str, str], ...] = ()

    @property
    def packed(self) -> bool:
        """True if its name has the ending of a compressed file."""
        return self.path.lower().endswith(PACKED)
