"""JSON records on disk that carry a format name, a version and the digest of what they say."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

import pydantic
from pydantic import BaseModel, Field

from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import DamagedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.short_repr import short

DIGEST = "sha256"
MAX_BYTES = 1 << 26  # of a record: a corpus of 100,000 shards has a manifest of 45 MB
MAX_CONTAINERS = 1 << 22  # lists and objects in it, each of which takes a hundred bytes in memory and two in the file
LEAST_INTEGER, MOST_INTEGER = -(1 << 63), (1 << 64) - 1  # what 64 bits hold, with a sign or without

Model = TypeVar("Model", bound=BaseModel)

# Types of fields of records that anyone may have written.
Count = Annotated[int, Field(strict=True, ge=0, lt=1 << 63)]
Number = Annotated[float, Field(strict=True, ge=-1e300, le=1e300)]  # sums and differences of a few are finite
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def canonical(record: JsonObject) -> bytes:
    """Write a record as the one text that its content has: sorted keys, shortest exact floats, two spaces."""
    return (json.dumps(record, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n").encode()


def digest_of(record: JsonObject) -> str:
    """Return the SHA-256 of what a record says."""
    return hashlib.sha256(canonical(record)).hexdigest()


def dump(record: JsonObject) -> bytes:
    """Write a record with its digest, so that whoever reads it finds a damage."""
    return canonical({**record, DIGEST: digest_of(record)})


def parse_json(data: bytes, path: str, where: str = "", *, most: int = MAX_BYTES) -> Any:
    """Parse JSON that anyone may have written, in bounded memory.

    Parameters
    ----------
    data : bytes
        The text.
    path, where : str
        The file and the place in it, for errors.
    most : int, optional
        Bytes that it may have.

    Returns
    -------
    object
        What it says. All numbers are finite, and whole ones fit in 64 bits.

    Raises
    ------
    DamagedError
        It is not JSON, too large, or holds other numbers.
    """
    if len(data) > most:
        raise DamagedError(path, f"expected at most {most:,} bytes, found {len(data):,}", where)
    if data.count(b"[") + data.count(b"{") > MAX_CONTAINERS:
        raise DamagedError(path, f"expected at most {MAX_CONTAINERS:,} lists and objects", where)
    try:
        return json.loads(data, parse_int=_integer, parse_float=_number, parse_constant=_number)
    except (ValueError, RecursionError) as error:
        raise DamagedError(path, f"expected JSON ({error})", where) from None


def _integer(text: str) -> int:
    value = int(text) if len(text) <= 20 else MOST_INTEGER + 1
    if not LEAST_INTEGER <= value <= MOST_INTEGER:
        raise ValueError(f"a whole number of {len(text)} digits, which 64 bits do not hold")
    return value


def _number(text: str) -> float:
    value = float(text)
    if value - value != 0.0:
        raise ValueError(f"expected a finite number, found {text[:20]}")
    return value


def check(model: type[Model], found: object, path: str, where: str = "") -> Model:
    """Check what a record says against its model.

    Parameters
    ----------
    model : type
        The declared fields, their types and bounds.
    found : object
        What was parsed.
    path, where : str
        The file and the place in it, for errors.

    Returns
    -------
    pydantic.BaseModel
        The record.

    Raises
    ------
    DamagedError
        A field is missing, unknown, or not what it must be; the first one is named.
    """
    try:
        return model.model_validate(found)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        place = ", ".join(text for text in (where, f"field '{name}'" if name else "") if text)
        raise DamagedError(path, first["msg"], place) from None


def numbers_of_names(names: Iterable[str], digits: int, suffix: str = "") -> list[int]:
    """Return the numbers of files or folders that are named by numbers, ascending; others are left out.

    Parameters
    ----------
    names : iterable of str
        Names in a folder, of which some may be anybody's.
    digits : int
        How many digits a name has at least, with zeros before.
    suffix : str, optional
        What stands behind the number.

    Returns
    -------
    list of int
        Numbers whose names are as we write them.
    """
    form = re.compile(f"[0-9]{{{digits},18}}{re.escape(suffix)}")
    found = {name: int(name.removesuffix(suffix)) for name in names if form.fullmatch(name)}
    return sorted(number for name, number in found.items() if name == f"{number:0{digits}d}{suffix}")


def read_record(folder: Folder, name: str, kind: str, version: int, oldest: int = 1) -> JsonObject:
    """Read a JSON record and check what it says it is.

    Parameters
    ----------
    folder : Folder
        Where it lies.
    name : str
        The file's name.
    kind : str
        The format's name that its field ``format`` must hold.
    version, oldest : int
        The newest and the oldest format version that this release reads; those of version 1 had no digest.

    Returns
    -------
    dict
        The record, without its digest.

    Raises
    ------
    AbsentError
        There is no such file.
    DamagedError
        It is not JSON, of another format, of an unknown version, or not what its digest says.
    """
    path = f"{folder.url}/{name}"
    return checked(parse_record(folder.read(name, MAX_BYTES), path, kind, version, oldest), path)


def parse_record(data: bytes, path: str, kind: str, version: int, oldest: int = 1) -> JsonObject:
    """Read the bytes of a record, whose digest is still to be checked; see `read_record`.

    Parameters
    ----------
    data : bytes
        All of the file.
    path, kind, version, oldest
        The file's name for errors, its format, and the versions that are read.

    Returns
    -------
    dict
        The record, with its digest.

    Raises
    ------
    DamagedError
        See `read_record`.
    """
    record = parse_json(data, path)
    if not isinstance(record, dict) or record.get("format") != kind:
        raise DamagedError(path, f"expected {kind!r}", "field 'format'")
    given = record.get("version")
    if type(given) is not int or not oldest <= given <= version:
        known = f"versions {oldest} to {version}" if oldest < version else f"version {version}"
        raise DamagedError(path, f"{short(given)} is unknown; this release reads {known}", "field 'version'")
    return record


def checked(record: JsonObject, path: str) -> JsonObject:
    """Return a record without its digest, which must be right.

    Parameters
    ----------
    record : dict
        As `parse_record` gave it.
    path : str
        The file's name, for errors.

    Returns
    -------
    dict
        The rest.

    Raises
    ------
    DamagedError
        The digest is not that of the rest.
    """
    if record["version"] == 1:
        return record
    rest = {name: value for name, value in record.items() if name != DIGEST}
    try:
        found = digest_of(rest)
    except (ValueError, RecursionError) as error:
        raise DamagedError(path, f"expected JSON ({error})") from None
    if found != record.get(DIGEST):
        raise DamagedError(path, "what it says does not have the digest that it names; the file is damaged")
    return rest
