"""Progress of a comparison for people: a live bar over the grid in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import IO

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from collapsium.pipeline.formatting import counted, duration_text
from collapsium.pipeline.monitoring.console import LogLines
from collapsium.pipeline.monitoring.events import Event, Sink
from collapsium.pipeline.monitoring.progress import ProgressLine
from collapsium.pipeline.monitoring.run_status import loss_text, saving_text
from collapsium.pipeline.workflows.compare.options import OTHER_WORK, START_WORK
from collapsium.workers.kernels.compilation_text import progress_text

MIN_SHARE_FOR_ESTIMATE = 0.1  # Share of all work that must be done before the remaining time is estimated
PLAIN_SECONDS = 10.0  # Seconds between two plain lines
COLUMNS = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())


class InLine:
    """Writes progress into the line of a function, in place of a log."""

    live = False

    def __init__(self, line: ProgressLine) -> None:
        self.write = line.update
        self._line = line

    def finish(self, text: str) -> None:
        """Leave a final line."""
        self._line.finish(text)


class GridView:
    """A sink that shows a comparison, in a log or in a line of a notebook."""

    def __init__(
        self, stream: IO[str] | None = None, form: str | None = None, *, line: ProgressLine | None = None
    ) -> None:
        self.log: LogLines | InLine = LogLines(stream, form) if line is None else InLine(line)
        self._period = PLAIN_SECONDS if line is None else 0.0
        self._bar: Progress | None = None
        self._cells = self._done = 0
        # Work, in steps of all fits.
        self._total = self._finished = self._before = 0.0
        # The event that began the current cell.
        self._cell: Event = {}
        # Iterations of the cell's fits, by member.
        self._reached: dict[int, int] = {}
        self._opened = self._began = self._last = time.monotonic()
        self._timed = False  # Whether the first fit has begun

    def __call__(self, event: Event) -> None:
        """Show an event, if its kind is shown."""
        kind = event["event"]
        if kind == "grid":
            self._begin(event)
        elif kind == "compiling":
            text, is_compiled = (
                progress_text(event["compiled"], event["kernels"]),
                event["compiled"] == event["kernels"],
            )
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], description="comparing" if is_compiled else text)
            elif not event["compiled"]:
                self.log.write(text)
        elif kind == "start" and not self._timed:
            # Kernels are compiled once, so that their time predicts nothing.
            self._began, self._timed = time.monotonic(), True
        elif kind == "cell_begins":
            self._cell, self._reached = event, {}
            fits, iterations = counted(event["fits"], "fit"), counted(event["iterations"], "iteration")
            self._show(self._finished, f"{self._cell_text()}: {fits} of {iterations}{self._left(self._finished)}")
        elif kind == "iteration" and self._cell:
            self._iterate(event)
        elif kind == "cell_done":
            error = event.get("score_error")
            score = f"  score {event['score']:.4f}" + ("" if error is None else f" ± {error:.4f}")
            self._done, self._finished, self._cell = self._done + 1, self._finished + event["work"], {}
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], completed=self._finished)
            text = f"{event['cell']}: {duration_text(event['elapsed'])}{score}"
            self.log.write(f"{text}  ({self._done} of {self._cells} done{self._left(self._finished)})")
        elif kind == "notice":
            self.log.write(event["text"])
        elif kind == "back":
            self.log.write(loss_text(event))
        elif kind == "saving":
            member = f"member {event['member']}: " if "member" in event else ""
            self.log.write(f"{member}{saving_text(event)}")
        elif kind == "compared":
            if isinstance(self.log, InLine):
                seconds = duration_text(time.monotonic() - self._opened)
                self.log.finish(f"compared {counted(event['rows'], 'cell')} in {seconds}")
            self.close()

    def close(self) -> None:
        """Stop drawing, if a bar is drawn."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _begin(self, event: Event) -> None:
        self._cells, self._done = event["cells"], event["done"]
        self._total, self._finished = max(event["work"], 1.0), event["work_done"]
        self._before, self._began = self._finished, time.monotonic()
        self.log.write(f"{counted(self._cells, 'cell')}, {self._done} done before")
        if isinstance(self.log, LogLines) and self.log.live:
            self._bar = Progress(*COLUMNS, console=self.log.console)
            self._bar.add_task("comparing", total=self._total, completed=int(self._finished))
            self._bar.start()

    def _iterate(self, event: Event) -> None:
        self._reached[event.get("member", 0)] = event["iteration"]
        planned, iterations = self._cell["fits"] * self._cell["iterations"], sum(self._reached.values())
        fits, others = self._cell["fits"], OTHER_WORK * self._cell["fits"]
        share = min((iterations + START_WORK * fits) / (planned + others), 1.0)
        done = self._finished + float(self._cell["work"]) * share
        now = time.monotonic()
        if self._bar is not None or now - self._last >= self._period:
            self._last = now
            text = f"{self._cell_text()}: {iterations:,} of {planned:,} iterations; {done / self._total:.0%} of all"
            self._show(done, f"{text}{self._left(done)}")

    def _show(self, done: float, text: str) -> None:
        """Move the bar to the work that is done, or print a line where there is no bar."""
        if self._bar is None:
            self.log.write(text)
        else:
            self._bar.update(self._bar.task_ids[0], completed=done, description=self._cell_text())

    def _cell_text(self) -> str:
        return f"{self._cell['cell']} ({min(self._done + 1, self._cells)} of {self._cells})"

    def _left(self, done: float) -> str:
        completed = done - self._before
        if completed < MIN_SHARE_FOR_ESTIMATE * self._total or done >= self._total:
            return ""
        spent = time.monotonic() - self._began
        return f", about {duration_text(spent / completed * (self._total - done))} left"


def line_view(line: ProgressLine) -> Sink:
    """Return a sink that shows a comparison in the line of a function."""
    return GridView(line=line)
