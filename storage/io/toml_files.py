"""Read TOML, which may be untrusted, in bounded time and memory, with one kind of error."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from pathlib import Path

from collapsium.storage.data_types import JsonObject
from collapsium.storage.io.encodings import SAVE_AS_UTF8, decode_text

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
