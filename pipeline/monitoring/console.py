"""Telling a person how a run goes: a live view in a terminal, plain lines elsewhere."""

from __future__ import annotations

import datetime
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from collapsium.pipeline.formatting import counted, lasting, plain, quantity
from collapsium.pipeline.monitoring.run_status import HELD, Picture
from collapsium.pipeline.monitoring.terminal import guarded_console, raw_stream
from collapsium.storage.printable import json_text
from collapsium.storage.runs.event_records import REQUIRED
from collapsium.workers.kernels.compilation_text import progress_text

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_SECONDS = 2.0  # between two plain lines
COUNT_SECONDS = 10.0  # between two plain lines of a command that counts documents; a shorter one writes none
LOG_FORMS = ("text", "json")


def is_live(stream: IO[str]) -> bool:
    """Say whether a stream is a terminal that can be drawn on; whatever the environment forces, a file is none."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def console_of(stream: IO[str]) -> Console:
    """Make a console that writes control characters to terminals alone."""
    live = is_live(stream)
    more: dict[str, Any] = {} if live else {"color_system": None, "width": 200}
    more |= {"highlight": False, "soft_wrap": True, "force_terminal": live, "force_interactive": live}
    return guarded_console(stream, **more)


class LogLines:
    """Writes what happens, a line each: with a time stamp, or as it is where a terminal shows it.

    Parameters
    ----------
    stream : file, optional
        Where to write; standard error by default.
    form : str, optional
        One of `LOG_FORMS`: ``text`` puts the time before each line, and ``json`` makes a JSON object of it. By default
        text, without the time if the stream is a terminal.

    Attributes
    ----------
    live : bool
        Whether the stream may be drawn on.
    """

    def __init__(self, stream: IO[str] | None = None, form: str | None = None) -> None:
        self._stream, self._form = stream or sys.stderr, form
        self.live = form is None and is_live(self._stream)
        self.console = console_of(self._stream)

    def write(self, text: str, level: str = "info", **more: Any) -> None:
        """Write a line.

        Parameters
        ----------
        text : str
            What a person reads.
        level : str, optional
            ``info``, ``warning`` or ``error``.
        **more
            Figures that a program reads.
        """
        if self._form == "json":
            record = {"time": _now("milliseconds"), "level": level, "message": text, **more}
            self._stream.write(json_text(record) + "\n")
            self._stream.flush()
            return
        lead = "" if level == "info" else f"collapsium: {level}: "
        stamp = "" if self.live else f"{_now('seconds')} "
        self.console.print(f"{stamp}{lead}{plain(text)}", markup=False)


def _now(precision: str) -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec=precision)


def _figures(event: dict[str, Any], scored: tuple[int, float] | None = None) -> str:
    """Say an iteration's figures in a few words, the score first; where it has none, the last one."""
    shown = [("score", "{:.4f}"), ("objective", "{:.1f}"), ("change", "{:.2e}"), ("topics_99", "{:.0f} topics")]
    found = [
        (text if "topics" in text else f"{name} {text}").format(event[name]) for name, text in shown if name in event
    ]
    if scored is not None and "score" not in event:
        found.insert(0, f"score {scored[1]:.4f} (iteration {scored[0]})")
    return "  ".join(found)


def _plain_fields(event: dict[str, Any]) -> dict[str, Any]:
    """Return what a JSON line holds of an event: its numbers and strings."""
    return {name: value for name, value in event.items() if isinstance(value, (int, float, str)) and name != "text"}


def _named(event: dict[str, Any]) -> str:
    return f"member {event['member']}: " if "member" in event else ""


class RunView:
    """A sink that shows a fit.

    Parameters
    ----------
    stream : file, optional
        Where to write; standard error by default. If it is a terminal, a live view is drawn, else a line every two
        seconds.
    behind : bool, optional
        Whether events come some time after they were told, many at once: lines are then written by `pause` alone.
    form : str, optional
        As for `LogLines`; one that is named writes lines to a terminal too.

    Attributes
    ----------
    log : LogLines
        Writes the lines.
    """

    def __init__(self, stream: IO[str] | None = None, *, behind: bool = False, form: str | None = None) -> None:
        self.log, self._behind = LogLines(stream, form), behind
        self._scored: dict[int | None, tuple[int, float]] = {}  # last score of each member, with its iteration
        self._picture = Picture()
        self._lock = threading.Lock()  # a thread draws
        self._live: Any = None
        self._line_open = False  # whether the cursor stands on a line that is to be written over
        self._last = 0.0
        self._unsaid: dict[str, Any] | None = None

    def __call__(self, event: dict[str, Any]) -> None:
        """Show an event, if it is one to show."""
        with self._lock:
            self._picture.add(event)
        handler = getattr(self, f"_{event['event']}", None) if event["event"] in REQUIRED else None
        if handler is not None:
            handler(event)

    def _print(self, text: str, event: dict[str, Any]) -> None:
        self.log.write(text, **_plain_fields(event))

    def _cluster(self, event: dict[str, Any]) -> None:
        page = page_address(event["dashboard"])
        where = f"; watch it at {page}, Dask's dashboard is {event['dashboard']}" if page else ""
        text = f"{event['scheduler']}: {event['workers']} at a time{where}"
        self._print(text, event | ({"page": page} if page else {}))

    def _compiling(self, event: dict[str, Any]) -> None:
        text, left = progress_text(event["compiled"], event["kernels"]), event["kernels"] - event["compiled"]
        if self.log.live:  # the line is written over by the next
            self.log.console.print(text, end="\r" if left else "\n")
            self._line_open = left > 0
        elif not event["compiled"] or (left and time.monotonic() - self._last >= PLAIN_SECONDS):
            self._last = time.monotonic()
            self._print(text, event)

    def _compile(self, event: dict[str, Any]) -> None:
        if event["compile_seconds"] > 1:
            self._print(f"kernels compiled or loaded in {event['compile_seconds']:.1f} s", event)

    def _start(self, event: dict[str, Any]) -> None:
        units = HELD[event.get("holds", "documents")]
        sizes = [f"{event[name]:,} {unit}" for name, unit in zip(HELD["documents"], units, strict=True)]
        self._print(f"{event['family']}: {', '.join(sizes)}, {counted(event['shards'], 'shard')}", event)
        if self.log.live:
            from collapsium.pipeline.monitoring.live import LiveView  # nobody else needs rich's tables

            self._live = self._live or LiveView(self.log.console, self._picture, self._lock)

    def _iteration(self, event: dict[str, Any]) -> None:
        if "score" in event:
            self._scored[event.get("member")] = (event["iteration"], event["score"])
        if self._live is not None:
            return
        now, planned = time.monotonic(), self._picture.planned
        alone = not ("member" in event and self._picture.restarts)
        ends = alone and event["iteration"] in (1, planned)
        self._unsaid = event
        if not self._behind and (now - self._last >= PLAIN_SECONDS or ends):
            self._say(event)

    def pause(self) -> None:
        """Say how far it is, if there is something new to say; no event is at hand now."""
        if self._unsaid is not None and self._live is None and time.monotonic() - self._last >= PLAIN_SECONDS:
            self._say(self._unsaid)

    def _say(self, event: dict[str, Any]) -> None:
        """Write a line of an iteration."""
        self._last, self._unsaid = time.monotonic(), None
        planned, alone = self._picture.planned, not ("member" in event and self._picture.restarts)
        scored = self._scored.get(event.get("member"))
        figures = _figures(event, scored)
        text = f"iteration {event['iteration']}/{planned}  {event['elapsed']:.1f} s  {figures}{self._pace()}"
        last = {} if scored is None else {"score": scored[1], "score_iteration": scored[0]}
        self._print(text if alone else f"{_named(event)}{text}", event | {"iterations": planned} | last)

    def _pace(self) -> str:
        """Say how fast it goes, and how long it may take yet."""
        course, units = self._picture.course, HELD[self._picture.start.get("holds", "documents")]
        left = course.left(self._picture.planned)
        found = []
        if "tokens_a_second" in course.event:
            found.append(f"{quantity(course.event['tokens_a_second'])} {units[1]}/s")
        if left:
            found.append(f"{lasting(left)} left")
        return "".join(f"  {text}" for text in found)

    def _member(self, event: dict[str, Any]) -> None:
        text = f"member {event['member']}: {counted(event['iteration'], 'iteration')}, {event['elapsed']:.1f} s"
        self._print(f"{text}  {_figures(event)}  ({self._picture.flight()})", event)

    def _notice(self, event: dict[str, Any]) -> None:
        self._print(f"{_named(event)}{event['text']}", event)

    def notice(self, text: str) -> None:
        """Say something that is no event of the run."""
        self.log.write(text)

    def _saving(self, event: dict[str, Any]) -> None:
        self.close()
        self._print(f"{_named(event)}saving iteration {event['iteration']}; interrupt again to stop at once", event)

    def _back(self, event: dict[str, Any]) -> None:
        text = f"{_named(event)}work was lost ({event['reason']}); going on from iteration {event['iteration']}"
        self._print(text, event)

    def _end(self, event: dict[str, Any]) -> None:
        if "member" in event and self._picture.restarts:
            return
        if self._unsaid is not None and self._live is None and self._behind:
            self._say(self._unsaid)
        self.close()
        if "members" in event:
            text = f"{event['ended']} of {counted(event['members'], 'member')} at their end ({event['reason']})"
        else:
            text = f"ended after {counted(event['iteration'], 'iteration')}, {event['elapsed']:.1f} s"
            text = f"{text} ({event['reason']})"
        self._print(text, event)

    def close(self) -> None:
        """Stop drawing; nothing happens if nothing is drawn."""
        if self._live is not None:
            self._live.close()
            self._live = None
        if self._line_open:
            self._line_open = False
            self.log.console.print()


class CompilationHandler(logging.Handler):
    """Shows records of the logger ``collapsium.compiling``: a line that is written over, or the first and the last.

    Parameters
    ----------
    form : str, optional
        As for `LogLines`.
    """

    def __init__(self, form: str | None = None) -> None:
        super().__init__()
        self._form = form

    def emit(self, record: logging.LogRecord) -> None:
        """Show how many kernels are compiled."""
        compiled, total = record.__dict__["compiled"], record.__dict__["total"]
        if self._form is None and is_live(sys.stderr):
            end = "\r" if compiled < total else "\n"
            print(plain(record.getMessage()), end=end, file=raw_stream(sys.stderr), flush=True)
        elif compiled in (0, total):
            LogLines(form=self._form).write(record.getMessage(), compiled=compiled, kernels=total)


def show_compilation(form: str | None = None, *, quiet: bool = False) -> None:
    """Show on standard error how kernels are compiled, where no view of a run does.

    Parameters
    ----------
    form : str, optional
        As for `LogLines`.
    quiet : bool, optional
        Show nothing.
    """
    log = logging.getLogger("collapsium.compiling")
    log.setLevel(logging.INFO)
    log.handlers[:] = [logging.NullHandler() if quiet else CompilationHandler(form)]


def page_address(dashboard: str | None) -> str | None:
    """Return the address of our page beside a Dask dashboard's ``/status``; None where there is no dashboard."""
    return f"{dashboard.rpartition('/')[0]}/collapsium" if dashboard else None


def shown(events: Sequence[dict[str, Any]], state: str, stream: IO[str]) -> None:
    """Show how a run stands.

    Parameters
    ----------
    events : sequence of dict
        All that it has told.
    state : str
        In a few words.
    stream : file
        Where to write.
    """
    from collapsium.pipeline.monitoring.live import drawn

    picture, console = Picture(), console_of(stream)
    for event in events:
        picture.add(event)
    console.print(drawn(picture, console.width, ascii_only=console.options.ascii_only))
    console.print(plain(state), markup=False)


class _CountLines:
    """Writes how many documents have gone by, with the time, where no terminal shows it."""

    def __init__(self, what: str, unit: str) -> None:
        self._what, self._unit, self._last = what, unit, time.monotonic()

    def __call__(self, number: int) -> None:
        """Write a line, if the one before is long ago."""
        if number and time.monotonic() - self._last >= COUNT_SECONDS:
            self._last = time.monotonic()
            LogLines().write(f"{self._what}: {number:,} {self._unit}")


@contextmanager
def counting(what: str, unit: str = "documents") -> Iterator[Any]:
    """Show how many documents, or what else, have gone by: at once in a terminal, else a line every ten seconds.

    Parameters
    ----------
    what : str
        What is being done.
    unit : str, optional
        What is counted.

    Yields
    ------
    callable
        To be told the number of documents so far.
    """
    if not is_live(sys.stderr):
        yield _CountLines(what, unit)
        return
    from rich.text import Text  # of which a name in brackets is no markup

    with console_of(sys.stderr).status(Text(plain(what))) as status:
        yield lambda number: status.update(Text(plain(f"{what}: {number:,} {unit}")))
