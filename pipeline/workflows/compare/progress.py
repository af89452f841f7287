"""Progress of a comparison for people: one line that is updated, or the lines of a log."""

from __future__ import annotations

import time
from collections.abc import Callable

from collapsium.pipeline.formatting import counted, duration_text
from collapsium.pipeline.monitoring.console import LogLines
from collapsium.pipeline.monitoring.events import Event
from collapsium.pipeline.monitoring.progress import ProgressLine
from collapsium.pipeline.monitoring.run_status import loss_text, saving_text
from collapsium.pipeline.workflows.compare.options import OTHER_WORK, START_WORK
from collapsium.workers.kernels.compilation_text import progress_text

MIN_SHARE_FOR_ESTIMATE = 0.1  # Share of all work that must be done before the remaining time is estimated
LOG_SECONDS = 10.0  # Seconds between two lines of a log on the iterations


class GridView:
    """A sink that shows a comparison in a line or, without one, in a log."""

    def __init__(self, line: ProgressLine | None = None, *, log: LogLines | None = None) -> None:
        self._line = line
        # A log writes both the lines that stay and the states of the line that is updated.
        write = (log or LogLines()).write
        self.note: Callable[[str], None] = write if line is None else line.note
        self._update: Callable[[str], None] = write if line is None else line.update
        self._cells = self._done = 0
        self._total = self._finished = self._before = 0.0  # Work, in steps of all fits
        self._cell: Event = {}  # The event that began the current cell
        self._reached: dict[int, int] = {}  # Iterations of the cell's fits, by member
        self._opened = self._began = self._last = time.monotonic()
        self._timed = False  # Whether the first fit has begun

    def __call__(self, event: Event) -> None:
        """Show an event, if its kind is shown."""
        kind = event["event"]
        if kind == "grid":
            self._cells, self._done = event["cells"], event["done"]
            self._total, self._finished = max(event["work"], 1.0), event["work_done"]
            self._before, self._began = self._finished, time.monotonic()
            self.note(f"{counted(self._cells, 'cell')}, {self._done} done before")
        elif kind == "compiling" and (self._line is not None or not event["compiled"]):
            self._update(progress_text(event["compiled"], event["kernels"]))
        elif kind == "start" and not self._timed:
            # Kernels are compiled once, so that their time predicts nothing.
            self._began, self._timed = time.monotonic(), True
        elif kind == "cell_begins":
            self._cell, self._reached = event, {}
            fits, iterations = counted(event["fits"], "fit"), counted(event["iterations"], "iteration")
            self._update(f"{self._cell_text()}: {fits} of {iterations}{self._left(self._finished)}")
        elif kind == "iteration" and self._cell:
            self._reached[event.get("member", 0)] = event["iteration"]
            finished, planned = sum(self._reached.values()), self._cell["fits"] * self._cell["iterations"]
            share = min((finished + START_WORK * self._cell["fits"]) / (planned + OTHER_WORK * self._cell["fits"]), 1.0)
            done, now = self._finished + float(self._cell["work"]) * share, time.monotonic()
            if self._line is not None or now - self._last >= LOG_SECONDS:
                self._last = now
                text = f"{self._cell_text()}: {finished:,} of {planned:,} iterations; {done / self._total:.0%} of all"
                self._update(f"{text}{self._left(done)}")
        elif kind == "cell_done":
            error = event.get("score_error")
            score = f"  score {event['score']:.4f}" + ("" if error is None else f" ± {error:.4f}")
            self._done, self._finished, self._cell = self._done + 1, self._finished + event["work"], {}
            text = f"{event['cell']}: {duration_text(event['elapsed'])}{score}"
            self.note(f"{text}  ({self._done} of {self._cells} done{self._left(self._finished)})")
        elif kind == "notice":
            self.note(event["text"])
        elif kind == "back":
            self.note(loss_text(event))
        elif kind == "saving":
            member = f"member {event['member']}: " if "member" in event else ""
            self._update(f"{member}{saving_text(event)}")
        elif kind == "compared" and self._line is not None:
            seconds = duration_text(time.monotonic() - self._opened)
            self._line.finish(f"compared {counted(event['rows'], 'cell')} in {seconds}")

    def _cell_text(self) -> str:
        return f"{self._cell['cell']} ({min(self._done + 1, self._cells)} of {self._cells})"

    def _left(self, done: float) -> str:
        completed = done - self._before
        if completed < MIN_SHARE_FOR_ESTIMATE * self._total or done >= self._total:
            return ""
        spent = time.monotonic() - self._began
        return f", about {duration_text(spent / completed * (self._total - done))} left"
