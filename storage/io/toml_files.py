"""TOML that anyone may have written: parsed in bounded time and memory, with one kind of error."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from collapsium.storage.data_types import JsonObject

MAX_BYTES = 1 << 20  # of a configuration, a job or a network
MAX_DEPTH = 50  # of tables and arrays within one another
DEEP = "tables or arrays within one another, too deep"
LEAST, MOST = -(1 << 63), (1 << 63) - 1  # whole numbers as the TOML specification bounds them


def parse_toml(text: str) -> JsonObject:
    """Parse TOML.

    Parameters
    ----------
    text : str
        The text.

    Returns
    -------
    dict
        What it says; whole numbers fit in 64 bits.

    Raises
    ------
    ValueError
        It is not TOML, too long, or holds a larger number.
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"{len(text):,} letters, where {MAX_BYTES:,} are the most")
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise ValueError(DEEP) from None
    waiting: list[tuple[Any, int]] = [(found, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise ValueError(DEEP)
        if isinstance(value, (dict, list)):
            inner = value.values() if isinstance(value, dict) else value
            waiting += [(one, depth + 1) for one in inner]
        elif isinstance(value, int) and not LEAST <= value <= MOST:
            raise ValueError("a whole number that 64 bits do not hold")
    return found


def read_toml_text(path: str | os.PathLike[str]) -> str:
    """Read the text of a TOML file.

    Parameters
    ----------
    path : str or path-like
        A local file; its name may come out of a record.

    Returns
    -------
    str
        The text.

    Raises
    ------
    OSError
        It cannot be read.
    ValueError
        It is no file, too large, or not UTF-8.
    """
    file = Path(path)
    found = file.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is no file")
    if found.st_size > MAX_BYTES:
        raise ValueError(f"{found.st_size:,} bytes, where {MAX_BYTES:,} are the most")
    return file.read_bytes().decode("utf-8")
