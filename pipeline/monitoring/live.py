"""The live view of a run in a terminal."""

from __future__ import annotations

import threading

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from collapsium.pipeline.formatting import lasting, quantity, sparkline
from collapsium.pipeline.monitoring.run_status import HELD, Course, Picture
from collapsium.storage.units import size

A_SECOND = 1  # times that it is drawn: a drawing takes 5 ms
SPARK, BAR, WORKERS = 40, 40, 6


class LiveView:
    """Draws what is known of a run, once a second.

    Parameters
    ----------
    console : rich.console.Console
        Of a terminal.
    picture : Picture
        Kept up to date by whoever hears of the run.
    lock : threading.Lock
        Held by who changes the picture.
    """

    def __init__(self, console: Console, picture: Picture, lock: threading.Lock) -> None:
        self._console, self._picture, self._lock = console, picture, lock
        self._live = Live(
            console=console, get_renderable=self._draw, refresh_per_second=A_SECOND, redirect_stdout=False
        )
        self._live.start()

    def close(self) -> None:
        """Draw it for the last time, and leave the terminal as it was."""
        self._live.stop()

    def _draw(self) -> RenderableType:
        with self._lock:
            return drawn(self._picture, self._console.width, ascii_only=self._console.options.ascii_only)


def drawn(picture: Picture, width: int, *, ascii_only: bool = False) -> RenderableType:
    """Draw what is known of a run.

    Parameters
    ----------
    picture : Picture
        The run.
    width : int
        Columns that there are.
    ascii_only : bool, optional
        Whether there are no other letters.

    Returns
    -------
    renderable
        For rich.
    """
    course = picture.course
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column(no_wrap=True, overflow="ellipsis")
    lines.add_row("iteration", _bar(picture, course, max(min(BAR, width - 48), 8)))
    for name, text in _figures(picture, course, max(min(SPARK, width - 26), 8), ascii_only=ascii_only):
        lines.add_row(name, _text(text))
    for change, number in [(change, int(one)) for one, change in course.event.get("moved", [])]:
        words = " ".join(course.words.get(str(number), []))
        lines.add_row("moves", _text(f"{change:+7.2%}  {number:>4}  {words}"))
    if course.words and course.event.get("moved"):
        lines.add_row("words", _text(f"of iteration {course.words_at:,}"))
    for one in picture.processes[:WORKERS]:
        doing = ", ".join(one["doing"]) or "waits"
        lines.add_row("worker", _text(f"{one['name']}  {size(one['memory'])}  {doing}"))
    more = len(picture.processes) - WORKERS
    if more > 0:
        lines.add_row("", _text(f"and {more} more"))
    return Group(lines)


def _text(text: str) -> Text:
    from collapsium.pipeline.formatting import plain

    return Text(plain(text), no_wrap=True, overflow="ellipsis")


def _bar(picture: Picture, course: Course, width: int) -> RenderableType:
    """Draw how far it is."""
    whole = max(picture.planned * max(picture.restarts, 1), 1)
    done = (
        ("iterations", "tolerance", "converged") if picture.restarts else ()
    )  # of members that ended before, nothing is left
    made = sum(picture.planned if one.ended in done else one.iteration for one in picture.courses.values())
    left = course.left(picture.planned)
    row = Table.grid(padding=(0, 1, 0, 0))
    times = f"{lasting(course.elapsed)}" + (f", {lasting(left)} left" if left else "")
    row.add_row(ProgressBar(total=whole, completed=made, width=width), f"{made:,}/{whole:,}", times)
    return row


def _figures(picture: Picture, course: Course, width: int, *, ascii_only: bool) -> list[tuple[str, str]]:
    """Say the figures in a few words each, the score with its curve."""
    event, units = course.event, HELD[picture.start.get("holds", "documents")]
    found = [("members", picture.flight())] if picture.restarts else []
    for name, digits in (("score", 4), ("objective", 1)):
        if name in course.curves:
            curve = [value for _, value in course.curves[name].points]
            found.append((name, f"{curve[-1]:.{digits}f}  {sparkline(curve, width, ascii_only=ascii_only)}"))
            break
    if "change" in event:
        found.append(("change", f"{event['change']:.2e}"))
    if "tokens_a_second" in event:
        spent = event["seconds"]
        whole = sum(spent.values()) or 1.0
        shares = ", ".join(
            f"{name} {spent[name] / whole:.0%}" for name in ("kernel", "reduce", "wait") if name in spent
        )
        found.append(("speed", f"{quantity(event['tokens_a_second'])} {units[1]}/s  ({shares})"))
    if "active" in event:
        found.append(("topics", f"{event['active']:,} active"))
    return found
