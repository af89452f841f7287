"""The live view of a run in a terminal."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import IO, Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, Group, RenderableType, RenderHook
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from collapsium.pipeline.formatting import duration_text, plain, sparkline
from collapsium.pipeline.monitoring.events import RunStatus
from collapsium.pipeline.monitoring.terminal import raw_stream
from collapsium.storage.printable import printable
from collapsium.storage.units import size


class Printable:
    """A renderable without control characters in its texts."""

    def __init__(self, renderable: ConsoleRenderable) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class PrintableHook(RenderHook):
    """Has a console draw renderables without control characters."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return the renderables to draw."""
        return [Printable(renderable) for renderable in renderables]


class GuardedConsole(Console):
    """A console that removes control characters from the texts it draws."""

    def __init__(self, stream: IO[str], **options: Any) -> None:
        super().__init__(file=raw_stream(stream), **options)
        self.push_render_hook(PrintableHook())

    def on_broken_pipe(self) -> None:
        """Raise the error, where rich would end the program with exit code 1."""
        raise BrokenPipeError


REFRESHES_PER_SECOND = 1  # Drawing takes 5 ms
SPARKLINE_WIDTH = 40  # Width of the curve, in characters
BAR_WIDTH = 40  # Width of the bar, in characters
MAX_WORKER_LINES = 6  # Largest number of workers that have a line


def start_live(console: Console, status: RunStatus, lock: threading.Lock) -> Live:
    """Draw the status of a run once a second, until the result is stopped."""

    def draw() -> RenderableType:
        with lock:
            return drawn(status, console.width, ascii_only=console.options.ascii_only)

    live = Live(console=console, get_renderable=draw, refresh_per_second=REFRESHES_PER_SECOND, redirect_stdout=False)
    live.start()
    return live


def drawn(status: RunStatus, width: int, *, ascii_only: bool = False) -> RenderableType:
    """Return the status of a run as a renderable of rich."""
    fit = status.fit
    total = max(status.planned * max(status.restarts, 1), 1)
    # A member that ended early has no iterations left.
    done = ("iterations", "tolerance", "converged") if status.restarts else ()
    completed = sum(status.planned if member.ended in done else member.iteration for member in status.fits.values())
    left = fit.left(status.planned)
    times = duration_text(fit.elapsed) + (f", {duration_text(left)} left" if left else "")
    bar = Table.grid(padding=(0, 1, 0, 0))
    bar_width = max(min(BAR_WIDTH, width - 48), 8)
    bar.add_row(ProgressBar(total=total, completed=completed, width=bar_width), f"{completed:,}/{total:,}", times)
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column(no_wrap=True, overflow="ellipsis")
    lines.add_row("iteration", bar)
    for name, text in status.metrics(fit).items():
        curve = [value for _, value in fit.curves[name].points] if name in ("score", "objective") else []
        drawn = sparkline(curve, max(min(SPARKLINE_WIDTH, width - 26), 8), ascii_only=ascii_only)
        lines.add_row(name, _text(f"{text}  {drawn}".rstrip()))
    for change, number in [(change, int(topic)) for topic, change in fit.event.get("moved", [])]:
        words = " ".join(fit.words.get(str(number), []))
        lines.add_row("growing" if change > 0 else "shrinking", _text(f"{change:+7.2%}  {number:>4}  {words}"))
    if fit.words and fit.event.get("moved"):
        lines.add_row("", _text(f"(words of iteration {fit.words_at:,})"))
    for process in status.processes[:MAX_WORKER_LINES]:
        doing = ", ".join(process["doing"]) or "idle"
        lines.add_row("worker", _text(f"{process['name']}  {size(process['memory'])}  {doing}"))
    rest = len(status.processes) - MAX_WORKER_LINES
    if rest > 0:
        lines.add_row("", _text(f"and {rest} more"))
    return Group(lines)


def _text(text: str) -> Text:
    return Text(plain(text), no_wrap=True, overflow="ellipsis")
