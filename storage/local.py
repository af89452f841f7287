"""Files on this machine, written whole or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path


def write_whole(path: Path, data: bytes | memoryview, *, replace: bool) -> None:
    """Write a local file beside its place and move it there; `FileExistsError` if it shall not replace another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        if replace:
            part.replace(path)
        else:
            os.link(part, path)
    finally:
        part.unlink(missing_ok=True)


def append(path: Path, data: bytes | memoryview) -> None:
    """Append to a local file, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as handle:
        before = handle.tell()
        try:
            handle.write(data)
            handle.flush()
        except OSError:
            os.truncate(path, before)
            raise


def copy_whole(source: Path, target: Path) -> None:
    """Copy a file, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        shutil.copyfile(source, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
