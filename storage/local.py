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
    # Without a buffer: closing a file writes what is left in its buffer, after the part before it was cut off again.
    with path.open("ab", buffering=0) as handle:
        before, rest = handle.seek(0, os.SEEK_END), memoryview(data)
        try:
            while rest:
                rest = rest[handle.write(rest) :]
        except OSError:
            handle.truncate(before)
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
