"""Telling a person how a run goes: a live bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from collapsar.storage.progress import silent

PLAIN_SECONDS = 2.0  # between two plain lines


def counted(number: int, what: str) -> str:
    """Return ``1 shard`` or ``4 shards``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def plain(text: str) -> str:
    """Return a text without what would steer a terminal: words and labels are anybody's."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _figures(event: dict[str, Any]) -> str:
    """Say an iteration's figures in a few words, the score first."""
    shown = [("score", "{:.4f}"), ("objective", "{:.1f}"), ("change", "{:.2e}"), ("topics_99", "{:.0f} topics")]
    found = [
        (text if "topics" in text else f"{name} {text}").format(event[name]) for name, text in shown if name in event
    ]
    return "  ".join(found)


def _named(event: dict[str, Any]) -> str:
    return f"member {event['member']}: " if "member" in event else ""


class RunView:
    """A sink that shows a fit.

    Parameters
    ----------
    stream : file, optional
        Where to write; standard error by default. A bar is drawn if it is a terminal, else a line every two seconds.
    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._console = Console(file=stream or sys.stderr, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._task: Any = None
        self._total = 0
        self._last = 0.0
        self._restarts = 0
        self._ended = 0
        self._members: dict[int, int] = {}  # those in flight, and how far they are

    def __call__(self, event: dict[str, Any]) -> None:
        """Show an event, if it is one to show."""
        handler = getattr(self, f"_{event['event']}", None)
        if handler is not None:
            handler(event)

    def _cluster(self, event: dict[str, Any]) -> None:
        where = f", dashboard {event['dashboard']}" if event["dashboard"] else ""
        self._console.print(f"{event['scheduler']}: {event['workers']} at a time{where}", markup=False)

    def _compile(self, event: dict[str, Any]) -> None:
        if event["compile_seconds"] > 1:
            self._console.print(f"kernels compiled or loaded in {event['compile_seconds']:.1f} s", markup=False)

    def _start(self, event: dict[str, Any]) -> None:
        self._total, self._restarts = event["iterations"], event.get("restarts", 0)
        self._console.print(
            f"{event['family']}: {event['documents']:,} documents, {event['tokens']:,} tokens, "
            f"{event['words']:,} words, {counted(event['shards'], 'shard')}",
            markup=False,
        )
        if self._console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, TimeRemainingColumn(), console=self._console, transient=False)
            self._task = self._bar.add_task("sweeping", total=self._total * max(self._restarts, 1))
            self._bar.start()

    def _iteration(self, event: dict[str, Any]) -> None:
        if "member" in event and self._restarts:
            self._member_iteration(event)
            return
        if self._bar is not None:
            self._bar.update(self._task, completed=event["iteration"], description=_figures(event) or "sweeping")
            return
        now = time.monotonic()
        if now - self._last >= PLAIN_SECONDS or event["iteration"] in (1, self._total):
            self._last = now
            text = f"iteration {event['iteration']}/{self._total}  {event['elapsed']:.1f} s  {_figures(event)}"
            self._console.print(text, markup=False)

    def _member_iteration(self, event: dict[str, Any]) -> None:
        self._members[event["member"]] = event["iteration"]
        if self._bar is not None:
            done = self._ended * self._total + sum(self._members.values())
            self._bar.update(self._task, completed=done, description=self._flight())
            return
        now = time.monotonic()
        if now - self._last >= PLAIN_SECONDS:
            self._last = now
            text = f"iteration {event['iteration']}/{self._total}  {event['elapsed']:.1f} s  {_figures(event)}"
            self._console.print(f"member {event['member']}: {text}", markup=False)

    def _flight(self) -> str:
        """Say which members are done, and which are in flight."""
        flight = ", ".join(str(number) for number in sorted(self._members))
        return f"{self._ended} of {counted(self._restarts, 'member')} done" + (
            f", in flight {flight}" if flight else ""
        )

    def _member(self, event: dict[str, Any]) -> None:
        self._members.pop(event["member"], None)
        self._ended += 1
        text = f"member {event['member']}: {counted(event['iteration'], 'iteration')}, {event['elapsed']:.1f} s"
        self._console.print(f"{text}  {_figures(event)}  ({self._flight()})", markup=False)

    def _notice(self, event: dict[str, Any]) -> None:
        self._console.print(f"{_named(event)}{event['text']}", markup=False)

    def _keeping(self, event: dict[str, Any]) -> None:
        self.close()
        text = f"{_named(event)}keeping iteration {event['iteration']}; interrupt again to stop at once"
        self._console.print(text, markup=False)

    def _back(self, event: dict[str, Any]) -> None:
        text = f"{_named(event)}work was lost ({event['reason']}); going on from iteration {event['iteration']}"
        self._console.print(text, markup=False)

    def _end(self, event: dict[str, Any]) -> None:
        if "member" in event:
            return
        self.close()
        if "members" in event:
            text = f"{event['ended']} of {counted(event['members'], 'member')} at their end ({event['reason']})"
            self._console.print(text, markup=False)
            return
        text = f"ended after {counted(event['iteration'], 'iteration')}, {event['elapsed']:.1f} s ({event['reason']})"
        self._console.print(text, markup=False)

    def close(self) -> None:
        """Stop drawing; nothing happens if nothing is drawn."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


@contextmanager
def counting(what: str, unit: str = "documents") -> Iterator[Any]:
    """Show how many documents, or what else, have gone by, in a terminal; say nothing elsewhere.

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
    console = Console(stderr=True)
    if not console.is_terminal:
        yield silent
        return
    with console.status(what) as status:
        yield lambda number: status.update(f"{what}: {number:,} {unit}")
