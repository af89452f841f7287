"""Decode text: by its byte order mark, by a named encoding, or as UTF-8."""

from __future__ import annotations

import codecs
import io
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import IO

from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import OptionError
from collapsium.storage.io.file import ByteStream

# Byte order marks, the longer ones first, and the encodings that drop them
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)

SAVE_AS_UTF8 = "save it as UTF-8"
NAME_IT = "name its encoding (`encoding`, such as cp1252)"
_INVALID = "collapsium.invalid"
_SIGN = "\udcff"  # Placeholder of bytes that an encoding does not have; in UTF-8 it becomes the invalid byte FF

RECODED = 1 << 18  # characters that are recoded at once


def marked_encoding(head: bytes) -> str | None:
    """Return the encoding of a byte order mark; None without one."""
    return next((encoding for mark, encoding in MARKS if head.startswith(mark)), None)


def checked_encoding(name: str | None) -> str | None:
    """Return Python's name of an encoding; raise `OptionError` if there is none of this name."""
    if name is None:
        return None
    try:
        "a".encode(name).decode(name)
        standard = codecs.lookup(name).name
    except (LookupError, UnicodeError, ValueError):
        raise OptionError(
            f"expected an encoding of text such as cp1252, shift_jis or utf-16, found {name!r}", "encoding"
        ) from None
    return standard


def decode_text(data: bytes, encoding: str | None = None) -> str:
    """Return a text; a byte order mark comes before the named encoding, and UTF-8 is the default."""
    return data.decode(marked_encoding(data[:4]) or encoding or "utf-8")


class Recoded(ByteStream):
    """A file of another encoding as UTF-8; bytes that the encoding does not have stay invalid bytes."""

    def __init__(self, handle: IO[bytes], encoding: str) -> None:
        self._handle, self._left = handle, b""
        self._text = io.TextIOWrapper(handle, encoding, _INVALID, newline="")

    def take(self, count: int) -> bytes:
        """Return at most `count` bytes."""
        if not self._left:
            self._left = self._text.read(RECODED).encode("utf-8", "surrogateescape")
        data, self._left = self._left[:count], self._left[count:]
        return data

    def close(self) -> None:
        """Close the file as well."""
        if not self.closed:
            self._text.close()
        super().close()


def _invalid(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _SIGN, error.end


codecs.register_error(_INVALID, _invalid)


MAX_BYTES = 1 << 20  # Largest file: a configuration, a job or a network
MAX_DEPTH = 50  # Deepest nesting of tables and arrays

TOO_DEEP = f"expected tables and arrays nested at most {MAX_DEPTH} deep"
_PART = r"(?:[A-Za-z0-9_-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
# A dotted key of too many parts, for which the parser takes quadratic time; the pattern matches in linear time
_DEEP_KEY = re.compile(rf"(?<![A-Za-z0-9_-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MAX_DEPTH},}}+")

LEAST, MOST = -(1 << 63), (1 << 63) - 1  # Range of integers of the TOML specification


def parse_toml(text: str) -> JsonObject:
    """Parse TOML."""
    if len(text) > MAX_BYTES:
        raise ValueError(f"{len(text):,} characters, more than {MAX_BYTES:,}")
    if _DEEP_KEY.search(text):
        raise ValueError(TOO_DEEP)
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    pending: list[tuple[object, int]] = [(table, 0)]
    while pending:
        value, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise ValueError(TOO_DEEP)
        if isinstance(value, (dict, list)):
            inner = value.values() if isinstance(value, dict) else value
            pending += [(item, depth + 1) for item in inner]
        elif isinstance(value, int) and not LEAST <= value <= MOST:
            raise ValueError("a whole number that does not fit into 64 bits")
    return table


def read_toml_text(path: str | os.PathLike[str]) -> str:
    """Read the text of a TOML file."""
    file = Path(path)
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is no file")
    if status.st_size > MAX_BYTES:
        raise ValueError(f"{status.st_size:,} bytes, more than the limit of {MAX_BYTES:,}")
    try:
        return decode_text(file.read_bytes())
    except UnicodeDecodeError as error:
        raise ValueError(f"expected UTF-8 ({error.reason} at byte {error.start}); {SAVE_AS_UTF8}") from None
