"""Progress of public functions for people: one line that is updated in terminals and notebooks, and a final one.

A function that `shows` decorates has the keyword ``verbose``. The outermost of such functions owns the line; those that
it calls write into it. Commands have different views, and `silence` the line.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import logging
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, Protocol, TypeVar

from collapsium.pipeline.formatting import counted, duration_text, plain
from collapsium.pipeline.monitoring.console import is_live
from collapsium.pipeline.monitoring.events import (
    Event,
    RunStatus,
    Sink,
    loss_text,
    member_prefix,
    saving_text,
    sinks_of,
)
from collapsium.pipeline.options import describe_parameter, with_parameter
from collapsium.storage.errors import OptionError
from collapsium.storage.units import Counting, silent
from collapsium.workers.kernels.compilation_text import progress_text

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

DELAY = 0.5  # Seconds of work before a line is shown
PERIOD = 0.5  # Seconds between two updates
LINE_PERIOD = 10.0  # Seconds between two lines where none can be overwritten
WIDTH = 110  # Characters of a line in a notebook, and of a terminal of unknown width
DESCRIPTION = "Whether to show progress, in one line that is updated. By default it is shown in terminals and notebooks"


class Surface(Protocol):
    """A place for a line that is updated."""

    def show(self, text: str) -> None:
        """Show a text in place of the one before."""

    def note(self, text: str) -> None:
        """Write a text that stays."""

    def close(self, text: str | None) -> None:
        """Leave a final text, or nothing."""


class Terminal:
    """A line of standard error that is overwritten."""

    def show(self, text: str) -> None:
        """Overwrite the line."""
        width = shutil.get_terminal_size((WIDTH, 24)).columns - 1
        sys.stderr.write(f"\r\x1b[K{plain(text)[:width]}")
        sys.stderr.flush()

    def note(self, text: str) -> None:
        """Write a line above."""
        sys.stderr.write(f"\r\x1b[K{plain(text)}\n")
        sys.stderr.flush()

    def close(self, text: str | None) -> None:
        """End the line, or erase it."""
        sys.stderr.write("\r\x1b[K" + ("" if text is None else f"{plain(text)}\n"))
        sys.stderr.flush()


class Notebook:
    """An output of a cell that is updated; the front end keeps its last text."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str) -> None:
        """Display the line, or update it."""
        from IPython.display import display

        data = {"text/plain": plain(text)}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def note(self, text: str) -> None:
        """Print a line."""
        print(plain(text))

    def close(self, text: str | None) -> None:
        """Leave a final line."""
        if text is not None:
            self.show(text)


class Lines:
    """Lines of standard error, for files and pipes."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def show(self, text: str) -> None:
        """Write a line, if one is due."""
        if time.monotonic() - self._last >= LINE_PERIOD:
            self.note(text)

    def note(self, text: str) -> None:
        """Write a line."""
        self._last = time.monotonic()
        print(plain(text), file=sys.stderr, flush=True)

    def close(self, text: str | None) -> None:
        """Write the final line."""
        if text is not None:
            self.note(text)


def in_notebook() -> bool:
    """Return True in a kernel of Jupyter, without importing IPython."""
    shell = sys.modules.get("IPython")
    current = None if shell is None else shell.get_ipython()
    return current is not None and hasattr(current, "kernel")


def _surface(verbose: bool | None) -> Surface | None:
    """Return where progress is shown; None if it is not."""
    if verbose is False:
        return None
    if in_notebook():
        return Notebook()
    if sys.stderr is not None and is_live(sys.stderr):
        return Terminal()
    return Lines() if verbose else None


class ProgressLine:
    """A line with the present activity and its time, which a thread updates while nothing else does."""

    def __init__(self, text: str, surface: Surface) -> None:
        self._text, self._surface = text, surface
        self._began, self._shown = time.monotonic(), False
        self._final: str | None = None
        self._changed, self._closed = threading.Lock(), threading.Event()
        # Outputs of a notebook belong to the cell of the context, which a new thread does not have.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._draw,), name="collapsium-progress", daemon=True)
        self._thread.start()

    @property
    def seconds(self) -> float:
        """Seconds since the line began."""
        return time.monotonic() - self._began

    def update(self, text: str) -> None:
        """Change the text, which is drawn when the next update is due."""
        self._text = text

    def note(self, text: str) -> None:
        """Write a line that stays."""
        with self._changed:
            self._surface.note(text)

    def finish(self, text: str) -> None:
        """Set the line that is left at the end."""
        self._final = text

    def close(self, *, failed: bool = False) -> None:
        """Stop drawing, and leave the final line, or one on what was done if a line was shown."""
        self._closed.set()
        self._thread.join()
        end = " (stopped)" if failed else ""
        text = f"{self._text}, {duration_text(self.seconds)}{end}" if self._shown else None
        self._surface.close(text if failed else self._final or text)

    def _draw(self) -> None:
        if self._closed.wait(DELAY):
            return
        while True:
            with self._changed:
                self._shown = True
                self._surface.show(f"{self._text}  {duration_text(self.seconds)}")
            if self._closed.wait(PERIOD):
                return


class Counter:
    """Shows in a line how much has been processed."""

    def __init__(self, line: ProgressLine, activity: str, unit: str = "documents") -> None:
        self._line, self._activity, self._unit = line, activity, unit

    def __call__(self, number: int) -> None:
        """Show a number."""
        self._line.update(f"{self._activity}: {number:,} {self._unit}")

    def of_partitions(self, partitions: int) -> Counting:
        """Return a function that shows how many partitions of a Dask collection are done, given the number in each."""
        numbers = list[int]()

        def show(number: int) -> None:
            numbers.append(number)
            done = f"{len(numbers):,} of {counted(partitions, 'partition')}"
            self._line.update(f"{self._activity}: {done}, {sum(numbers):,} {self._unit}")

        return show


class CompilationInLine(logging.Handler):
    """Shows in a line how many kernels are compiled."""

    def __init__(self, line: ProgressLine) -> None:
        super().__init__(logging.INFO)
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record."""
        self._line.update(record.getMessage())


class FitProgress:
    """A sink that shows the progress of a fit in a line."""

    def __init__(self, line: ProgressLine) -> None:
        self._line, self._status = line, RunStatus()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        status = self._status
        status.add(event)
        kind = event["event"]
        if kind == "compiling":
            self._line.update(progress_text(event["compiled"], event["kernels"]))
        elif kind == "start":
            self._line.update(f"{event['family']}: start from {status.sizes()}")
        elif kind in ("iteration", "member"):
            left = status.fit.left(status.planned)
            texts = [f"{status.family}: iteration {status.fit.iteration:,}/{status.planned:,}{self._score()}"]
            texts += [status.members_text()] if status.restarts else []
            texts += [f"about {duration_text(left)} left"] if left else []
            self._line.update(", ".join(texts))
        elif kind == "notice":
            self._line.note(f"{member_prefix(event)}{event['text']}")
        elif kind == "saving":
            self._line.update(f"{member_prefix(event)}{saving_text(event)}")
        elif kind == "back":
            self._line.update(f"{member_prefix(event)}{loss_text(event)}")
        elif kind == "end" and ("member" not in event or not status.restarts):
            ended = counted(event.get("iteration", 0), "iteration") if "members" not in event else ""
            ended = ended or f"{event['ended']} of {counted(event['members'], 'member')}"
            seconds = duration_text(self._line.seconds)
            self._line.finish(f"{status.family}: {ended} in {seconds} ({event['reason']}){self._score()}")

    def _score(self) -> str:
        curves = self._status.fit.curves
        name, digits = ("score", 4) if "score" in curves else ("objective", 1)
        return f", {name} {curves[name].last:.{digits}f}" if name in curves else ""


_line: contextvars.ContextVar[ProgressLine | None] = contextvars.ContextVar("collapsium_line", default=None)
_silent: contextvars.ContextVar[bool] = contextvars.ContextVar("collapsium_silent", default=False)


@contextmanager
def silenced() -> Iterator[None]:
    """Show no lines in the block, because the code there has another view."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


@contextmanager
def shown(text: str, verbose: bool | None = None) -> Iterator[ProgressLine | None]:
    """Show a line; None where none is to be shown, or where a caller's line goes on."""
    if not isinstance(verbose, bool | None):
        raise OptionError(f"expected true, false or None, found {verbose!r}", "verbose")
    surface = None if _silent.get() or _line.get() is not None else _surface(verbose)
    if surface is None:
        with silenced() if verbose is False else contextlib.nullcontext():
            yield None
        return
    line = ProgressLine(text, surface)
    token = _line.set(line)
    log, handler = logging.getLogger("collapsium.compiling"), CompilationInLine(line)
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    failed = True
    try:
        yield line
        failed = False
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        _line.reset(token)
        line.close(failed=failed)


def _line_here() -> ProgressLine | None:
    """Return the line of the caller; None if there is none, or it is not to be shown."""
    return None if _silent.get() else _line.get()


def counter_here(activity: str, unit: str = "documents") -> Counting:
    """Return a function that shows a number in the line of the caller; a silent one if there is none."""
    line = _line_here()
    return silent if line is None else Counter(line, activity, unit)


def partitions_here(activity: str, partitions: int) -> Counting:
    """Return a function that shows partitions in the line of the caller, given the number of documents in each."""
    line = _line_here()
    return silent if line is None else Counter(line, activity).of_partitions(partitions)


def iteration_here() -> Callable[[str, int, int], None]:
    """Return a function that shows the family, the iteration and the number of iterations in the line of the caller."""
    line = _line_here()
    if line is None:
        return lambda family, iteration, planned: None  # noqa: ARG005

    def show(family: str, iteration: int, planned: int) -> None:
        line.update(f"{family}: iteration {iteration:,}/{planned:,}")
        line.finish(f"{family}: {counted(iteration, 'iteration')} in {duration_text(line.seconds)}")

    return show


def shows(
    activity: str, unit: str = "documents", *, view: Callable[[ProgressLine], Sink] = FitProgress
) -> Callable[[Callable[_Arguments, _Result]], Callable[..., _Result]]:
    """Return a decorator that gives a function ``verbose``, and shows what its ``sinks`` or ``progress`` receive.

    `view` makes the sink that shows events in a line.
    """

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[..., _Result]:
        parameters = inspect.signature(function).parameters

        @functools.wraps(function)
        def call(*args: Any, verbose: bool | None = None, **options: Any) -> _Result:
            if "sinks" in options and "sinks" in parameters:
                options["sinks"] = sinks_of(options["sinks"])
            listened = any(options.get(name) for name in ("sinks", "progress"))
            with shown(activity, False if listened and verbose is None else verbose):
                line = _line_here()
                if line is not None and "sinks" in parameters:
                    options["sinks"] = [*options.get("sinks", ()), view(line)]
                elif line is not None and "progress" in parameters and "progress" not in options:
                    options["progress"] = Counter(line, activity, unit)
                return function(*args, **options)

        if "progress" in parameters:
            describe_parameter(call, "progress", "callable", f"Called with the number of {unit} processed so far.")
        receivers = [f"`{name}`" for name in ("sinks", "progress") if name in parameters]
        unless = f", unless {' or '.join(receivers)} receives it" if receivers else ""
        return with_parameter(call, "verbose", bool | None, None, f"{DESCRIPTION}{unless}.")

    return decorate
