"""JSON records on disk that carry a format name, a version and the digest of what they say."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from collapsar.storage.errors import DamagedError
from collapsar.storage.folder import Folder

DIGEST = "sha256"


def canonical(record: dict[str, Any]) -> bytes:
    """Write a record as the one text that its content has: sorted keys, shortest exact floats, two spaces."""
    return (json.dumps(record, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n").encode()


def digest_of(record: dict[str, Any]) -> str:
    """Return the SHA-256 of what a record says."""
    return hashlib.sha256(canonical(record)).hexdigest()


def dump(record: dict[str, Any]) -> bytes:
    """Write a record with its digest, so that whoever reads it finds a damage."""
    return canonical({**record, DIGEST: digest_of(record)})


def read_record(folder: Folder, name: str, kind: str, version: int, oldest: int = 1) -> dict[str, Any]:
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
    return checked(parse_record(folder.read(name), path, kind, version, oldest), path)


def parse_record(data: bytes, path: str, kind: str, version: int, oldest: int = 1) -> dict[str, Any]:
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
    try:
        record = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedError(path, f"expected JSON ({error})") from None
    if not isinstance(record, dict) or record.get("format") != kind:
        raise DamagedError(path, f"expected {kind!r}", "field 'format'")
    given = record.get("version")
    if type(given) is not int or not oldest <= given <= version:
        known = f"versions {oldest} to {version}" if oldest < version else f"version {version}"
        raise DamagedError(path, f"{given!r} is unknown; this release reads {known}", "field 'version'")
    return record


def checked(record: dict[str, Any], path: str) -> dict[str, Any]:
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
