"""The command `collapsium watch`: reads the events in a run's folder, and watches the process that works on the run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field

from collapsium.pipeline.cli.command import JsonOptions, LogOptions, argument, in_flags, print_json
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.monitoring.console import LogLines, RunView, print_status
from collapsium.pipeline.monitoring.events import Event, RunStatus
from collapsium.pipeline.options import Options, Value
from collapsium.storage.errors import AbsentError, CollapsiumError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.run_lock import LockWatch
from collapsium.storage.runs.run import EVENTS, LOCK, RECORD, Run, parse_event

EVERY = 1.0  # Seconds between two checks


OWNER_GRACE_SECONDS = 5.0  # Seconds without a process that works on the run before a line reports it
# Bytes before the current position that are compared, as a file may have been truncated and grown again
REREAD_BYTES = 4096


class Tail:
    """The events of one file, as it grows, is cut or is replaced."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._position = 0
        self._known = b""

    def read(self) -> tuple[list[Event], bool]:
        """Return the events since the last call."""
        back = self._position - len(self._known)
        data, size = self._folder.read_from(EVENTS, back)
        again = size < self._position or not data.startswith(self._known)
        if again:
            data, size = self._folder.read_from(EVENTS, 0)
            self._position, fresh = 0, data
        else:
            fresh = data[len(self._known) :]
        complete, newline, _ = fresh.rpartition(b"\n")
        complete += newline
        self._position += len(complete)
        self._known = (b"" if again else self._known) + complete
        self._known = self._known[-REREAD_BYTES:]
        return [parse_event(line, f"{self._folder.url}/{EVENTS}", "a line") for line in complete.splitlines()], again


class Following:
    """A run that is followed."""

    def __init__(self, run: str | os.PathLike[str]) -> None:
        self._run = Run(run)
        self._root = Tail(self._run.folder)
        self._lock = LockWatch(self._run.folder / LOCK)
        self._members: dict[int, Tail] = {}
        self._ended_members: set[int] = set()
        self.url = self._run.folder.url
        self.ended = ""

    def exists(self) -> bool:
        """Return whether the run exists."""
        if self._run.exists():
            return True
        unexpected = [name for name in self._run.folder.names() if name not in (RECORD, "lock") and name[:1] != "."]
        if unexpected:
            raise AbsentError(f"{self.url}: not a run, it has no {RECORD}")
        return False

    def look(self) -> tuple[list[Event], bool]:
        """Return the events since the last call, and whether they replace all earlier ones, as after a restart."""
        events, again = self._root.read()
        if again:
            self._members, self._ended_members = {}, set()
        self.ended = "" if again else self.ended
        for event in events:
            kind = event["event"]
            self.ended = event["reason"] if kind == "end" else "" if kind in ("start", "iteration") else self.ended
            if kind == "start" and self._run.exists():
                # A resumed run may have another number of iterations than the one with which it began.
                event["iterations"] = Limits(**self._run.record()["limits"]).planned(int(event["shards"]))
            for number in range(int(event.get("restarts", 0)) if kind == "start" else 0):
                self._members.setdefault(number, Tail(self._run.member(number)))
            if kind == "member":
                self._ended_members.add(event["member"])
        new: list[Event] = []
        for number, tail in list(self._members.items()):
            member_events, _ = tail.read()
            new += [event for event in member_events if event["event"] in ("begin", "iteration", "back", "end")]
            # The file of a member that has ended is read once more.
            if number in self._ended_members:
                del self._members[number]
        # Events of members come before the end of the run.
        before_end = len(events) - 1 if self.ended and events and events[-1]["event"] == "end" else len(events)
        return [*events[:before_end], *new, *events[before_end:]], again

    def owner(self) -> str:
        """Return the process that works on the run, as text; empty if no process is known to be alive."""
        try:
            process = self._lock.look()
        # A store may fail for a while; the next check tries again.
        except CollapsiumError:
            return "unknown process"
        return process.name if process is not None and process.lives else ""


def follow(
    run: str | os.PathLike[str],
    view: Callable[[], RunView],
    *,
    idle_timeout: float,
    every: float = EVERY,
    notice: Callable[[str], None] = lambda text: None,  # noqa: ARG005
) -> str:
    """Follow a run until it ends."""
    following = Following(run)
    sink, idle_since, reported = view(), time.monotonic(), False
    waiting = False
    while True:
        if not following.exists():
            if not waiting:
                notice(f"{following.url}: there is no run yet; waiting for it (at most {idle_timeout:.0f} s)")
            if time.monotonic() - idle_since > idle_timeout:
                raise AbsentError(f"{following.url}: there is no run, and none has begun for {idle_timeout:.0f} s")
            waiting = True
            time.sleep(every)
            continue
        if waiting:
            waiting, idle_since = False, time.monotonic()
        events, again = following.look()
        sink = view() if again else sink
        for event in events:
            sink(event)
        sink.pause()
        if following.ended:
            return following.ended
        if events or following.owner():
            idle_since, reported = time.monotonic(), False
        idle = time.monotonic() - idle_since
        if idle > idle_timeout:
            raise AbsentError(_idle_text(following.url, idle))
        if idle > OWNER_GRACE_SECONDS and not reported:
            reported = True
            notice(_idle_text(following.url, idle))
        time.sleep(every)


def _idle_text(url: str, idle: float) -> str:
    return (
        f"{url}: the run has not ended, and no process has worked on it for {idle:.0f} s; continue with `resume` {url}"
    )


def so_far(run: str | os.PathLike[str]) -> tuple[Sequence[Event], str]:
    """Return all events of a run so far, and its state as text."""
    following = Following(run)
    if not following.exists():
        raise AbsentError(f"{following.url}: not a run, it has no {RECORD}")
    events, _ = following.look()
    owner = following.owner()
    if following.ended and not owner:
        return events, f"ended ({following.ended})"
    if owner:
        return events, f"running ({owner})"
    return events, "not ended, and no process works on it"


WATCH_EPILOG = """examples:
  collapsium watch run
  collapsium watch s3://bucket/run --once"""


class WatchOptions(Options):
    """Options of following a run."""

    once: bool = Field(False, description="print the current state and exit")
    every: Annotated[float, Value("S", unit="seconds", expected="seconds above 0")] = Field(
        EVERY, gt=0, allow_inf_nan=False, description="seconds between two checks"
    )
    idle_timeout: Annotated[float, Value("S", unit="seconds", expected="seconds above 0")] = Field(
        300.0,
        gt=0,
        allow_inf_nan=False,
        description="stop after this many seconds without a run, or without a process that works on it",
    )


def watch(
    run: Annotated[str, argument("RUN", "folder of a run, which need not exist yet")],
    /,
    *,
    options: WatchOptions,
    log: LogOptions,
    output: JsonOptions,
) -> None:
    """Watch a run by the events in its folder, from any machine.

    The folder is local, or a URL that fsspec can read. The run may start later, may be
    interrupted and resumed, or may have ended. The command exits with 0 when the run
    ends for any reason, and with 1 if for --idle-timeout seconds no run exists or no
    process works on it.

    In a terminal the view is updated in place; otherwise a line is printed every two
    seconds.
    """
    form = log.log_format
    if options.once or output.as_json:
        events, state = so_far(run)
        if output.as_json:
            status = RunStatus()
            for event in events:
                status.add(event)
            fit, planned = status.fit, status.planned
            record = {"run": run, "state": state, "family": status.family, "iterations": planned, **fit.event}
            record = {name: value for name, value in record.items() if name not in ("event", "top_words")}
            left = None if status.ended else fit.left(planned)
            print_json({**record, "left": left, "words": fit.words, "words_iteration": fit.words_at})
        else:
            print_status(events, state, sys.stdout)
        return
    views: list[RunView] = []

    def view() -> RunView:
        for former in views:
            former.close()
        views[:] = [RunView(behind=True, form=form, spell=in_flags)]
        return views[0]

    try:
        notice = LogLines(form=form).write
        follow(run, view, idle_timeout=options.idle_timeout, every=options.every, notice=notice)
    finally:
        for shown in views:
            shown.close()
