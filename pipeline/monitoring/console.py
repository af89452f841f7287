"""Progress of a run for people: a live view in a terminal, plain lines or JSON lines elsewhere."""

from __future__ import annotations

import datetime
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from collapsium.pipeline.formatting import counted, duration_text, plain, quantity, sample_text
from collapsium.pipeline.monitoring.events import Event, RunStatus, loss_text, member_prefix, saving_text
from collapsium.pipeline.monitoring.terminal import raw_stream
from collapsium.storage.printable import json_text
from collapsium.workers.kernels.compilation_text import progress_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live


# Seconds between two plain lines.
ITERATION_LINE_SECONDS = 2.0  # Of a fit
COUNT_LINE_SECONDS = 10.0  # Of a command that counts documents; a shorter command writes none


def is_live(stream: IO[str]) -> bool:
    """Return whether a stream is a terminal that can be drawn on, whatever the environment forces."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def console_of(stream: IO[str]) -> Console:
    """Return a console that writes control characters only to terminals."""
    from collapsium.pipeline.monitoring.live import GuardedConsole

    live = is_live(stream)
    options: dict[str, Any] = {} if live else {"color_system": None, "width": 200}
    options |= {"highlight": False, "soft_wrap": True, "force_terminal": live, "force_interactive": live}
    return GuardedConsole(stream, **options)


class LogLines:
    """Writes progress in lines, with a time stamp unless a terminal shows them."""

    def __init__(self, stream: IO[str] | None = None, form: str | None = None) -> None:
        # A process without standard streams, such as a service, has none.
        self._stream = stream or sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        self._form = form
        self.live = form is None and is_live(self._stream)
        self.console = console_of(self._stream)

    def write(self, text: str, level: str = "info", **fields: object) -> None:
        """Write a line."""
        now = datetime.datetime.now().astimezone()
        if self._form == "json":
            record = {"time": now.isoformat(timespec="milliseconds"), "level": level, "message": text, **fields}
            self._stream.write(json_text(record) + "\n")
            self._stream.flush()
            return
        lead = "" if level == "info" else f"collapsium: {level}: "
        stamp = "" if self.live else f"{now.isoformat(timespec='seconds')} "
        self.console.print(f"{stamp}{lead}{plain(text)}", markup=False)


def _metrics_text(event: Event, last_score: tuple[int, float] | None = None) -> str:
    """Return an iteration's metrics as text; without a score, the last score with its iteration."""
    formats = {
        "score": "score {:.4f}",
        "objective": "objective {:.1f}",
        "change": "change {:.2e}",
        "topics_99": "{:.0f} topics",
    }
    texts = [text.format(event[name]) for name, text in formats.items() if name in event]
    if "documents_share" in event:
        texts.append(sample_text(event["documents_share"]))
    if last_score is not None and "score" not in event:
        texts.insert(0, f"score {last_score[1]:.4f} (iteration {last_score[0]})")
    return "  ".join(texts)


class RunView:
    """A sink that shows a fit; `spell` writes the options in notices as the caller's interface does."""

    def __init__(
        self,
        stream: IO[str] | None = None,
        *,
        behind: bool = False,
        form: str | None = None,
        spell: Callable[[str], str] = str,
    ) -> None:
        self.log, self._behind, self._spell = LogLines(stream, form), behind, spell
        # Iteration and value of the last score of each member.
        self._last_scores: dict[int | None, tuple[int, float]] = {}
        self._status = RunStatus()
        # The live view is drawn by a separate thread.
        self._lock = threading.Lock()
        self._live: Live | None = None
        # True while the cursor is on a line that the next one overwrites.
        self._line_open = False
        self._last = 0.0
        self._pending: Event | None = None

    def __call__(self, event: Event) -> None:
        """Show an event, if its kind is shown."""
        with self._lock:
            self._status.add(event)
        prefix = member_prefix(event)
        match event["event"]:
            case "cluster":
                page = f"{event['dashboard'].rpartition('/')[0]}/collapsium" if event["dashboard"] else None
                addresses = f"; progress at {page}, Dask's dashboard at {event['dashboard']}" if page else ""
                text = f"{event['scheduler']}: {event['workers']} at a time{addresses}"
                self._print(text, event | ({"page": page} if page else {}))
            case "compiling":
                self._compiling(event)
            case "compile" if event["compile_seconds"] > 1:
                self._print(f"kernels compiled or loaded in {event['compile_seconds']:.1f} s", event)
            case "start":
                self._print(f"{event['family']}: {self._status.sizes()}, {counted(event['shards'], 'shard')}", event)
                if self.log.live:
                    from collapsium.pipeline.monitoring.live import start_live

                    self._live = self._live or start_live(self.log.console, self._status, self._lock)
            case "iteration":
                if "score" in event:
                    self._last_scores[event.get("member")] = (event["iteration"], event["score"])
                if self._live is None:
                    now, planned = time.monotonic(), self._status.planned
                    alone = not ("member" in event and self._status.restarts)
                    ends = alone and event["iteration"] in (1, planned)
                    self._pending = event
                    if not self._behind and (now - self._last >= ITERATION_LINE_SECONDS or ends):
                        self._print_iteration(event)
            case "member":
                text = f"member {event['member']}: {counted(event['iteration'], 'iteration')}, {event['elapsed']:.1f} s"
                self._print(f"{text}  {_metrics_text(event)}  ({self._status.members_text()})", event)
            case "notice":
                self._print(f"{prefix}{self._spell(event['text'])}", event)
            case "saving":
                self.close()
                self._print(f"{prefix}{saving_text(event)}", event)
            case "back":
                self._print(f"{prefix}{loss_text(event)}", event)
            case "end":
                self._end(event)

    def _print(self, text: str, event: Event) -> None:
        # A line of JSON has the numbers and strings of the event.
        fields: dict[str, Any] = {
            name: value for name, value in event.items() if isinstance(value, (int, float, str)) and name != "text"
        }
        self.log.write(text, **fields)

    def _compiling(self, event: Event) -> None:
        text, left = progress_text(event["compiled"], event["kernels"]), event["kernels"] - event["compiled"]
        if self.log.live:
            # The next line overwrites this one.
            self.log.console.print(text, end="\r" if left else "\n")
            self._line_open = left > 0
        elif not event["compiled"] or (left and time.monotonic() - self._last >= ITERATION_LINE_SECONDS):
            self._last = time.monotonic()
            self._print(text, event)

    def pause(self) -> None:
        """Write the line of the last iteration if it is due, because no further event is available."""
        if self._pending is not None and self._live is None and time.monotonic() - self._last >= ITERATION_LINE_SECONDS:
            self._print_iteration(self._pending)

    def _print_iteration(self, event: Event) -> None:
        self._last, self._pending = time.monotonic(), None
        planned, alone = self._status.planned, not ("member" in event and self._status.restarts)
        score = self._last_scores.get(event.get("member"))
        parts = [f"iteration {event['iteration']}/{planned}", f"{event['elapsed']:.1f} s", _metrics_text(event, score)]
        fit = self._status.fit
        if "tokens_a_second" in fit.event:
            parts.append(f"{quantity(fit.event['tokens_a_second'])} {self._status.units[1]}/s")
        if left := fit.left(planned):
            parts.append(f"{duration_text(left)} left")
        text = "  ".join(parts)
        scores = {} if score is None else {"score": score[1], "score_iteration": score[0]}
        self._print(text if alone else f"{member_prefix(event)}{text}", event | {"iterations": planned} | scores)

    def notice(self, text: str) -> None:
        """Write a line that is not about an event of the run."""
        self.log.write(text)

    def _end(self, event: Event) -> None:
        if "member" in event and self._status.restarts:
            return
        if self._pending is not None and self._live is None and self._behind:
            self._print_iteration(self._pending)
        self.close()
        if "members" in event:
            text = f"{event['ended']} of {counted(event['members'], 'member')} ended ({event['reason']})"
        else:
            text = f"ended after {counted(event['iteration'], 'iteration')}, {event['elapsed']:.1f} s"
            text = f"{text} ({event['reason']})"
        self._print(text, event)

    def close(self) -> None:
        """Stop drawing, if a view is drawn."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._line_open:
            self._line_open = False
            self.log.console.print()


class CompilationHandler(logging.Handler):
    """Shows records of the logger ``collapsium.compiling``: one updated line, or the first and the last record."""

    def __init__(self, form: str | None = None) -> None:
        super().__init__()
        self._form = form

    def emit(self, record: logging.LogRecord) -> None:
        """Show the number of compiled kernels."""
        compiled, total = record.__dict__["compiled"], record.__dict__["total"]
        if self._form is None and is_live(sys.stderr):
            end = "\r" if compiled < total else "\n"
            print(plain(record.getMessage()), end=end, file=raw_stream(sys.stderr), flush=True)
        elif compiled in (0, total):
            LogLines(form=self._form).write(record.getMessage(), compiled=compiled, kernels=total)


def show_compilation(form: str | None = None, *, quiet: bool = False) -> None:
    """Show the compilation of kernels on standard error, for commands without a view of a run."""
    log = logging.getLogger("collapsium.compiling")
    log.setLevel(logging.INFO)
    log.handlers[:] = [logging.NullHandler() if quiet else CompilationHandler(form)]


def print_status(events: Sequence[Event], state: str, stream: IO[str]) -> None:
    """Print the current status of a run."""
    from collapsium.pipeline.monitoring.live import drawn

    status, console = RunStatus(), console_of(stream)
    for event in events:
        status.add(event)
    console.print(drawn(status, console.width, ascii_only=console.options.ascii_only))
    console.print(plain(state), markup=False)


@contextmanager
def counting(activity: str, unit: str = "documents") -> Iterator[Callable[[int], None]]:
    """Show the number of processed documents: at once in a terminal, else in a line every ten seconds."""
    from rich.text import Text

    if not is_live(sys.stderr):
        last = time.monotonic()

        def write(number: int) -> None:
            nonlocal last
            if number and time.monotonic() - last >= COUNT_LINE_SECONDS:
                last = time.monotonic()
                LogLines().write(f"{activity}: {number:,} {unit}")

        yield write
        return
    # A Text, unlike a string, does not treat names in brackets as markup.
    with console_of(sys.stderr).status(Text(plain(activity))) as status:
        yield lambda number: status.update(Text(plain(f"{activity}: {number:,} {unit}")))
