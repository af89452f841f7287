"""Commands that are measured while they run: their output, elapsed seconds, and the memory of all their processes."""

import contextlib
import json
import os
import selectors
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

SAMPLED_EVERY = 0.05
"""Seconds between two samples of memory."""
TOO_LONG = "took more than"
"""Beginning of the error of a command that was ended after its limit."""


@dataclass
class Watched:
    """Measurements of a command: its start (since the epoch), seconds, peak, lines of JSON, error."""

    began: float
    seconds: float = 0.0
    megabytes: float = 0.0
    lines: list = field(default_factory=list)
    error: str = ""


def tree(process):
    """Return a process and all its descendants; an empty list if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process, *process.children(recursive=True)]
    return []


def memory(process):
    """Return the resident megabytes of a process and all its descendants."""
    total = 0
    for member in tree(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += member.memory_info().rss
    return total / 2**20


def peak_megabytes():
    """Return the most megabytes that this process has held; `getrusage` begins with its parent's peak."""
    with Path("/proc/self/status").open(encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024


def end(process):
    """End a process that this one started, and all its descendants."""
    for member in tree(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()


def watch(command, limit, environment=None, always=True):
    """Run a command, and watch what it prints and how much memory it takes.

    Parameters
    ----------
    command : sequence of str
        The command and its arguments.
    limit : float
        Seconds after which it is ended.
    environment : dict, optional
        Variables to set over ours.
    always : bool, optional
        Watch memory from beginning to end; otherwise from each line with the state `fitting` to the next other.

    Returns
    -------
    Watched
        With an error, if it failed; what it printed before is there all the same.
    """
    seen, clock = Watched(time.time()), time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = psutil.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **(environment or {})},
        )
        try:
            whole = _follow(process, seen, clock + limit, always)
            code = process.wait() if whole else None
            seen.seconds = time.perf_counter() - clock
        finally:
            end(process)
            process.stdout.close()
        if not whole:
            seen.error = f"{TOO_LONG} {limit:g} s"
        elif code:
            errors.seek(0)
            output = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
            seen.error = output[-1][:200] if output else f"ended with code {code}"
    return seen


def _follow(process, seen, deadline, always):
    """Read lines and sample memory until the output ends; return False if that is not before the deadline."""
    wanted, rest, due = always, b"", 0.0
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            ready = selector.select(timeout=SAMPLED_EVERY)
            if wanted and (ready or time.perf_counter() >= due):
                # checked even after a line, which may end the measurement
                seen.megabytes = max(seen.megabytes, memory(process))
                due = time.perf_counter() + SAMPLED_EVERY
            if time.perf_counter() > deadline:
                return False
            if not ready:
                continue
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                return True
            *lines, rest = (rest + data).split(b"\n")
            for line in filter(None, map(parsed, lines)):
                if "state" in line:
                    wanted = always or line["state"] == "fitting"
                else:
                    seen.lines.append(line)


def parsed(line):
    """Parse a line as a record; return None for other lines, because a library may print to the same output."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
