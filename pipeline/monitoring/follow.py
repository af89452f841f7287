"""Following a run on any machine by its events: what has been told, what is told, and whether it still lives."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from collapsium.storage.errors import AbsentError, CollapsiumError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.locks.lock_watch import LockWatch
from collapsium.storage.runs.event_records import parse_event
from collapsium.storage.runs.run import EVENTS, LOCK, RECORD, Run

EVERY = 1.0  # seconds between two looks
GRACE = 5.0  # seconds without an owner until that is said
KNOWN = 4096  # bytes before the place of reading that are looked at again: a file that was cut may have grown since


class View(Protocol):
    """Who is told of a run."""

    def __call__(self, event: dict[str, Any]) -> None:
        """Take an event."""

    def pause(self) -> None:
        """Take note that no more events are at hand."""


class Tail:
    """The events of one file, as it grows, is cut or is replaced.

    Parameters
    ----------
    folder : Folder
        The run's.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._place = 0
        self._known = b""

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """Read what has come since.

        Returns
        -------
        events : list of dict
            Oldest first; a last line that is still being written comes with the next look.
        again : bool
            Whether these are all events: the file was cut or replaced, and what was read before counts no more.

        Raises
        ------
        DamagedError
            A line is no event.
        """
        back = self._place - len(self._known)
        data, size = self._folder.read_from(EVENTS, back)
        again = size < self._place or not data.startswith(self._known)
        if again:
            data, size = self._folder.read_from(EVENTS, 0)
            self._place, fresh = 0, data
        else:
            fresh = data[len(self._known) :]
        whole, newline, _ = fresh.rpartition(b"\n")
        whole += newline
        self._place += len(whole)
        self._known = (b"" if again else self._known) + whole
        self._known = self._known[-KNOWN:]
        return [self._event(line) for line in whole.splitlines()], again

    def _event(self, line: bytes) -> dict[str, Any]:
        return parse_event(line, f"{self._folder.url}/{EVENTS}", "a line")


class Following:
    """A run that is followed.

    Parameters
    ----------
    run : str or path-like
        Its folder, local or an fsspec URL; it may not be there yet.
    """

    def __init__(self, run: str | os.PathLike[str]) -> None:
        self._run = Run(run)
        self._root = Tail(self._run.folder)
        self._lock = LockWatch(self._run.folder / LOCK)
        self._members: dict[int, Tail] = {}
        self._ended_members: set[int] = set()
        self.url = self._run.folder.url
        self.ended = ""

    def begun(self) -> bool:
        """Say whether there is a run.

        Returns
        -------
        bool
            Whether it has its record.

        Raises
        ------
        AbsentError
            There is something else at that place.
        """
        if self._run.exists():
            return True
        others = [name for name in self._run.folder.names() if name not in (RECORD, "lock") and name[:1] != "."]
        if others:
            raise AbsentError(f"{self.url}: not a run, it has no {RECORD}")
        return False

    def look(self) -> tuple[list[dict[str, Any]], bool]:
        """Return what has been told since, and whether that is all there is: the run was begun anew or went back."""
        events, again = self._root.read()
        if again:
            self._members, self._ended_members = {}, set()
        self.ended = "" if again else self.ended
        for event in events:
            kind = event["event"]
            self.ended = event["reason"] if kind == "end" else "" if kind in ("start", "iteration") else self.ended
            for number in range(int(event.get("restarts", 0)) if kind == "start" else 0):
                self._members.setdefault(number, Tail(self._run.member(number)))
            if kind == "member":
                self._ended_members.add(event["member"])
        place = len(events) - 1 if self.ended and events and events[-1]["event"] == "end" else len(events)
        return [*events[:place], *self._of_members(), *events[place:]], again

    def _of_members(self) -> list[dict[str, Any]]:
        """Read what members tell in files of their own: those on their way, and once those at their end."""
        found = []
        for number, tail in list(self._members.items()):
            events, _ = tail.read()
            found += [event for event in events if event["event"] in ("begin", "iteration", "back", "end")]
            if number in self._ended_members:
                del self._members[number]
        return found

    def owner(self) -> str:
        """Say in a few words who works on the run; empty where nobody does that is known to live."""
        try:
            found = self._lock.look()
        except CollapsiumError:  # a store that fails for a while; it is looked at again
            return "somebody"
        if found is None or not found.lives:
            return ""
        return found.name


def follow(
    run: str | os.PathLike[str],
    view: Callable[[], View],
    *,
    idle_timeout: float,
    every: float = EVERY,
    say: Callable[[str], None] = lambda text: None,  # noqa: ARG005
) -> str:
    """Follow a run until it ends.

    Parameters
    ----------
    run : str or path-like
        Its folder; it may not be there yet.
    view : callable
        Makes who is told all events; another is made when the run went back or was begun anew.
    idle_timeout : float
        Seconds without anyone who works on the run, or without a run, after which it is given up.
    every : float, optional
        Seconds between two looks.
    say : callable, optional
        Told in a line what is waited for.

    Returns
    -------
    str
        Why it ended, as it said.

    Raises
    ------
    AbsentError
        There is no run, or nobody works on it, and it has not come to its end.
    CollapsiumError
        The events cannot be read.
    """
    following = Following(run)
    sink, alone, told = view(), time.monotonic(), ""
    waiting = False
    while True:
        if not following.begun():
            if not waiting:
                say(f"{following.url}: there is no run yet; waiting for it ({idle_timeout:.0f} s at most)")
            if time.monotonic() - alone > idle_timeout:
                raise AbsentError(f"{following.url}: there is no run, and none has begun for {idle_timeout:.0f} s")
            waiting = True
            time.sleep(every)
            continue
        if waiting:
            waiting, alone = False, time.monotonic()
        events, again = following.look()
        sink = view() if again else sink
        for event in events:
            sink(event)
        sink.pause()
        if following.ended:
            return following.ended
        if events or following.owner():
            alone, told = time.monotonic(), ""
        quiet = time.monotonic() - alone
        if quiet > idle_timeout:
            raise AbsentError(_dead(following.url, quiet))
        if quiet > GRACE and not told:
            told = _dead(following.url, quiet)
            say(told)
        time.sleep(every)


def _dead(url: str, quiet: float) -> str:
    return (
        f"{url}: nobody has worked on it for {quiet:.0f} s, and it has not come to its end; go on with `resume` {url}"
    )


def so_far(run: str | os.PathLike[str]) -> tuple[Sequence[dict[str, Any]], str]:
    """Return all that a run has told so far, and in a few words how it stands.

    Parameters
    ----------
    run : str or path-like
        Its folder.

    Returns
    -------
    events : sequence of dict
        Oldest first, those of members among them.
    state : str
        Such as ``ended (iterations)``.

    Raises
    ------
    AbsentError
        There is no run.
    """
    following = Following(run)
    if not following.begun():
        raise AbsentError(f"{following.url}: not a run, it has no {RECORD}")
    events, _ = following.look()
    owner = following.owner()
    if following.ended and not owner:
        return events, f"ended ({following.ended})"
    if owner:
        return events, f"running ({owner})"
    return events, "nobody works on it, and it has not come to its end"
