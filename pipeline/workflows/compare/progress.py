"""Telling a person how a comparison goes: a live bar over the whole grid in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import IO, Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from collapsium.pipeline.formatting import counted, lasting
from collapsium.pipeline.monitoring.console import LogLines
from collapsium.workers.kernels.compilation_text import progress_text

FORESEEN = 0.02  # of all work: what must be done before the rest is foreseen
PLAIN_SECONDS = 10.0  # between two plain lines


class GridView:
    """A sink that shows a comparison.

    Parameters
    ----------
    stream : file, optional
        Where to write; standard error by default. A bar is drawn if it is a terminal, else a line now and then.
    form : str, optional
        As for `collapsium.pipeline.monitoring.console.LogLines`; one that is named writes lines to a terminal too.

    Attributes
    ----------
    log : LogLines
        Writes the lines.
    """

    def __init__(self, stream: IO[str] | None = None, form: str | None = None) -> None:
        self.log = LogLines(stream, form)
        self._bar: Progress | None = None
        self._task: Any = None
        self._cells = self._done = self._baselines = 0
        self._total = self._finished = self._before = 0.0  # work: steps of all fits
        self._cell: dict[str, Any] = {}  # as it was told when it began
        self._reached: dict[int, int] = {}  # iterations of the cell's fits
        self._began = self._last = time.monotonic()

    def __call__(self, event: dict[str, Any]) -> None:
        """Show an event, if it is one to show."""
        handler = getattr(self, f"_{event['event']}", None)
        if handler is not None:
            handler(event)

    def close(self) -> None:
        """Stop drawing; nothing happens if nothing is drawn."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _print(self, text: str) -> None:
        self.log.write(text)

    def _compiling(self, event: dict[str, Any]) -> None:
        text, left = progress_text(event["compiled"], event["kernels"]), event["kernels"] - event["compiled"]
        if self._bar is not None:
            self._bar.update(self._task, description=text if left else "comparing")
        elif not event["compiled"]:
            self._print(text)

    def _grid(self, event: dict[str, Any]) -> None:
        self._cells, self._done = event["cells"], event["done"]
        self._total, self._finished = max(event["work"], 1.0), event["work_done"]
        self._baselines = event.get("baselines", 0)
        self._before, self._began = self._finished, time.monotonic()
        self._print(f"{counted(self._cells, 'cell')}, {self._done} done before")
        if self.log.live:
            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=self.log.console)
            self._task = self._bar.add_task("comparing", total=self._total, completed=int(self._finished))
            self._bar.start()

    def _cell_named(self) -> str:
        return f"{self._cell['cell']} ({min(self._done + 1, self._cells)} of {self._cells})"

    def _here(self) -> float:
        """Return the work done in the cell so far."""
        whole = max(self._cell["fits"] * self._cell["iterations"], 1)
        made: int = sum(self._reached.values())
        return float(self._cell["work"]) * min(made / float(whole), 1.0)

    def _left(self, done: float) -> str:
        made = done - self._before
        # Nobody knows how long other libraries and classifiers take.
        if made < FORESEEN * self._total or done >= self._total or self._baselines:
            return ""
        spent = time.monotonic() - self._began
        return f", about {lasting(spent / made * (self._total - done))} left"

    def _iteration(self, event: dict[str, Any]) -> None:
        if not self._cell:
            return
        self._reached[event.get("member", 0)] = event["iteration"]
        done = self._finished + self._here()
        if self._bar is not None:
            self._bar.update(self._task, completed=done, description=self._cell_named())
            return
        now = time.monotonic()
        if now - self._last >= PLAIN_SECONDS:
            self._last = now
            iterations = sum(self._reached.values())
            whole = self._cell["fits"] * self._cell["iterations"]
            text = f"{self._cell_named()}: {iterations:,} of {whole:,} iterations; {done / self._total:.0%} of all"
            self._print(f"{text}{self._left(done)}")

    def _notice(self, event: dict[str, Any]) -> None:
        self._print(event["text"])

    def _back(self, event: dict[str, Any]) -> None:
        self._print(f"work was lost ({event['reason']}); going on from iteration {event['iteration']}")

    def _saving(self, event: dict[str, Any]) -> None:
        member = f"member {event['member']}: " if "member" in event else ""
        self._print(f"{member}saving iteration {event['iteration']}; interrupt again to stop at once")

    def _cell_begins(self, event: dict[str, Any]) -> None:
        self._cell, self._reached = event, {}
        if self._bar is not None:
            self._bar.update(self._task, description=self._cell_named())
            return
        self._print(
            f"{self._cell_named()}: {counted(event['fits'], 'fit')} of {counted(event['iterations'], 'iteration')}"
        )

    def _cell_done(self, event: dict[str, Any]) -> None:
        score = ""
        if "score" in event:
            error = event.get("score_error")
            score = f"  score {event['score']:.4f}" + ("" if error is None else f" ± {error:.4f}")
        figures = {name: value for name, value in event.get("figures", {}).items() if value is not None}
        score += "".join(f"  {name} {value:.4f}" for name, value in figures.items())
        self._done, self._finished, self._cell = self._done + 1, self._finished + event["work"], {}
        if self._bar is not None:
            self._bar.update(self._task, completed=self._finished)
        if not {"score", "figures"} & set(event):  # it was left out, which has been said
            return
        text = f"{event['cell']}: {lasting(event['elapsed'])}{score}"
        self._print(f"{text}  ({self._done} of {self._cells} done{self._left(self._finished)})")

    def _compared(self, event: dict[str, Any]) -> None:  # noqa: ARG002
        self.close()
