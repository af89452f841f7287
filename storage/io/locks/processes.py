"""Processes of this machine: whether the owner of a lock lives."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path


def this_machine() -> str:
    """Name this machine since it was started; containers that do not see each other's processes are several."""
    parts = [socket.gethostname()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with contextlib.suppress(OSError):
            place = Path(path)
            parts.append(str(place.readlink()) if place.is_symlink() else place.read_text(encoding="ascii").strip())
    return " ".join(parts)


def start_time(process: int) -> str | None:
    """Return when a process was started, on a clock that nobody sets.

    Parameters
    ----------
    process : int
        Its number.

    Returns
    -------
    str or None
        Ticks since the machine was started; elsewhere than on Linux, the system's time. None where there is no such
        process, or a zombie.
    """
    if Path("/proc/self/stat").exists():
        try:
            text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        state, *rest = text.rpartition(")")[2].split()
        return None if state in "ZX" else rest[18]
    import psutil

    try:
        found = psutil.Process(process)
        return None if found.status() == psutil.STATUS_ZOMBIE else str(found.create_time())
    except psutil.NoSuchProcess:
        return None


def _is_stopped(process: int) -> bool:
    import psutil

    with contextlib.suppress(psutil.Error):
        return psutil.Process(process).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    return False


def lives(process: int, started: str) -> bool | None:
    """Return whether a process of this machine lives; None where it does and is stopped, so that it may never go on."""
    try:
        if start_time(process) != started:
            return False
    except OSError:  # it may not be looked at
        return None
    return None if _is_stopped(process) else True
