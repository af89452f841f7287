"""Progress of a comparison for people: a live bar over the grid in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import IO

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from collapsium.pipeline.formatting import counted, duration_text
from collapsium.pipeline.monitoring.console import LogLines
from collapsium.pipeline.monitoring.events import Event
from collapsium.pipeline.monitoring.run_status import loss_text, saving_text
from collapsium.workers.kernels.compilation_text import progress_text

MIN_SHARE_FOR_ESTIMATE = 0.02  # Share of all work that must be done before the remaining time is estimated
PLAIN_SECONDS = 10.0  # Seconds between two plain lines


class GridView:
    """A sink that shows a comparison."""

    def __init__(self, stream: IO[str] | None = None, form: str | None = None) -> None:
        self.log = LogLines(stream, form)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._cells = self._done = 0
        # Work, in steps of all fits.
        self._total = self._finished = self._before = 0.0
        # The event that began the current cell.
        self._cell: Event = {}
        # Iterations of the cell's fits, by member.
        self._reached: dict[int, int] = {}
        self._began = self._last = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Show an event, if its kind is shown."""
        handler = getattr(self, f"_{event['event']}", None)
        if handler is not None:
            handler(event)

    def close(self) -> None:
        """Stop drawing, if a bar is drawn."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _print(self, text: str) -> None:
        self.log.write(text)

    def _compiling(self, event: Event) -> None:
        text, left = progress_text(event["compiled"], event["kernels"]), event["kernels"] - event["compiled"]
        if self._bar is not None:
            self._bar.update(self._task, description=text if left else "comparing")
        elif not event["compiled"]:
            self._print(text)

    def _grid(self, event: Event) -> None:
        self._cells, self._done = event["cells"], event["done"]
        self._total, self._finished = max(event["work"], 1.0), event["work_done"]
        self._before, self._began = self._finished, time.monotonic()
        self._print(f"{counted(self._cells, 'cell')}, {self._done} done before")
        if self.log.live:
            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=self.log.console)
            self._task = self._bar.add_task("comparing", total=self._total, completed=int(self._finished))
            self._bar.start()

    def _cell_text(self) -> str:
        return f"{self._cell['cell']} ({min(self._done + 1, self._cells)} of {self._cells})"

    def _here(self) -> float:
        """Return the work done in the cell so far."""
        planned = max(self._cell["fits"] * self._cell["iterations"], 1)
        completed: int = sum(self._reached.values())
        return float(self._cell["work"]) * min(completed / float(planned), 1.0)

    def _left(self, done: float) -> str:
        completed = done - self._before
        if completed < MIN_SHARE_FOR_ESTIMATE * self._total or done >= self._total:
            return ""
        spent = time.monotonic() - self._began
        return f", about {duration_text(spent / completed * (self._total - done))} left"

    def _iteration(self, event: Event) -> None:
        if not self._cell:
            return
        self._reached[event.get("member", 0)] = event["iteration"]
        done = self._finished + self._here()
        if self._bar is not None:
            self._bar.update(self._task, completed=done, description=self._cell_text())
            return
        now = time.monotonic()
        if now - self._last >= PLAIN_SECONDS:
            self._last = now
            iterations = sum(self._reached.values())
            planned = self._cell["fits"] * self._cell["iterations"]
            text = f"{self._cell_text()}: {iterations:,} of {planned:,} iterations; {done / self._total:.0%} of all"
            self._print(f"{text}{self._left(done)}")

    def _notice(self, event: Event) -> None:
        self._print(event["text"])

    def _back(self, event: Event) -> None:
        self._print(loss_text(event))

    def _saving(self, event: Event) -> None:
        member = f"member {event['member']}: " if "member" in event else ""
        self._print(f"{member}{saving_text(event)}")

    def _cell_begins(self, event: Event) -> None:
        self._cell, self._reached = event, {}
        if self._bar is not None:
            self._bar.update(self._task, description=self._cell_text())
            return
        self._print(
            f"{self._cell_text()}: {counted(event['fits'], 'fit')} of {counted(event['iterations'], 'iteration')}"
        )

    def _cell_done(self, event: Event) -> None:
        error = event.get("score_error")
        score = f"  score {event['score']:.4f}" + ("" if error is None else f" ± {error:.4f}")
        self._done, self._finished, self._cell = self._done + 1, self._finished + event["work"], {}
        if self._bar is not None:
            self._bar.update(self._task, completed=self._finished)
        text = f"{event['cell']}: {duration_text(event['elapsed'])}{score}"
        self._print(f"{text}  ({self._done} of {self._cells} done{self._left(self._finished)})")

    def _compared(self, event: Event) -> None:  # noqa: ARG002
        self.close()
