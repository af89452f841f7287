"""JSON records on disk that carry a format name and version."""

from __future__ import annotations

import json
from typing import Any

from collapsar.storage.errors import DamagedError
from collapsar.storage.folder import Folder


def dump(record: dict[str, Any]) -> bytes:
    """Write a record as the one text that its content has: sorted keys, shortest exact floats, two spaces."""
    return (json.dumps(record, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n").encode()


def read_record(folder: Folder, name: str, kind: str, version: int) -> dict[str, Any]:
    """Read a JSON record and check what it says it is.

    Parameters
    ----------
    folder : Folder
        Where it lies.
    name : str
        The file's name.
    kind : str
        The format's name that its field ``format`` must hold.
    version : int
        The newest format version that this release reads.

    Returns
    -------
    dict
        The record.

    Raises
    ------
    AbsentError
        There is no such file.
    DamagedError
        It is not JSON, of another format, or of an unknown version.
    """
    path = f"{folder.url}/{name}"
    try:
        record = json.loads(folder.read(name))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise DamagedError(path, f"expected JSON ({error})") from None
    if not isinstance(record, dict) or record.get("format") != kind:
        raise DamagedError(path, f"expected {kind!r}", "field 'format'")
    given = record.get("version")
    if type(given) is not int or not 1 <= given <= version:
        raise DamagedError(path, f"{given!r} is unknown; this release reads versions 1 to {version}", "field 'version'")
    return record
