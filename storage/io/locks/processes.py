"""Detect whether a process of this machine is alive."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path


def this_machine() -> str:
    """Return a name of this machine since its last boot; each container with its own processes has another."""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with contextlib.suppress(OSError):
            place = Path(path)
            parts.append(str(place.readlink()) if place.is_symlink() else place.read_text(encoding="ascii").strip())
    return " ".join(parts)


def start_time(process: int) -> str | None:
    """Return the start time of a process, on a clock that is never adjusted."""
    import psutil

    if Path("/proc/self/stat").exists():
        try:
            text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        state, *rest = text.rpartition(")")[2].split()
        return None if state in "ZX" else rest[18]
    try:
        other = psutil.Process(process)
        return None if other.status() == psutil.STATUS_ZOMBIE else str(other.create_time())
    except psutil.NoSuchProcess:
        return None


def _is_stopped(process: int) -> bool:
    import psutil

    with contextlib.suppress(psutil.Error):
        return psutil.Process(process).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return False


def lives(process: int, started: str) -> bool | None:
    """Return True if a process of this machine is alive; None if it is stopped, as it may never continue."""
    try:
        if start_time(process) != started:
            return False
    except OSError:  # not permitted
        return None
    return None if _is_stopped(process) else True
