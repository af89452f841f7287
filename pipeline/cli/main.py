"""Entry point of the command ``collapsium``: runs a command and reports errors in one line."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from collapsium.pipeline.cli.app import parse
from collapsium.pipeline.cli.command import COMMAND_LINE, UsageError, spelling
from collapsium.pipeline.cli.options import print_notice
from collapsium.pipeline.cli.output import print_error
from collapsium.pipeline.monitoring.console import LogLines, show_compilation
from collapsium.pipeline.monitoring.progress import silenced
from collapsium.pipeline.monitoring.terminal import guarded_streams
from collapsium.storage.errors import CapacityError, CollapsiumError, OptionError, TakenOverError, flag_of
from collapsium.workers.options import RenamedWarning

# Exit codes. The signal of a closed pipe stays ignored, as it would end a driver whose scheduler has died.
FAILURE, USAGE, TAKEN_OVER, INTERRUPTED, CLOSED_PIPE = 1, 2, 5, 130, 128 + signal.SIGPIPE

MAX_MESSAGE = 4000  # Letters of an error, at most; names out of files, which it repeats, may be of any length


# Seconds within which signals count as one: `timeout` sends one to the process and one to its group
REPEATED_SIGNAL = 1.0
ZARR_STOP = 10.0  # Seconds to wait for Zarr's event loop to stop
# New objects after which Python searches for garbage among them, by default 700. The imports of a fit make 280,000
# objects, which stay. Searches among them took 0.18 s, and take 0.06 s with this number, as none covers all objects.
NEW_OBJECTS = 10_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command."""
    # Commands have views of their own.
    with guarded_streams(), silenced(), warnings.catch_warnings():
        # Dask's dashboard then takes another port.
        warnings.filterwarnings("ignore", "Port .* is already in use", UserWarning)
        warnings.simplefilter("always", RenamedWarning)
        warnings.showwarning = functools.partial(_show_warning, warnings.showwarning)
        try:
            return _run(argv)
        finally:
            _discard_unwritten()


def _run(argv: Sequence[str] | None) -> int:
    """Run a command and return its exit code; see `main`."""
    gc.set_threshold(NEW_OBJECTS)
    signal.signal(signal.SIGTERM, _interrupted)
    signal.signal(signal.SIGINT, _interrupted)
    _interrupts.clear()
    atexit.unregister(_ended)
    atexit.register(_ended)
    # Commands report errors of workers and of the cluster themselves.
    for library in ("distributed", "asyncio"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    try:
        try:
            COMMAND_LINE[:] = sys.argv[1:] if argv is None else argv
            line, debug = parse(COMMAND_LINE)
        # Help or the version has been printed.
        finally:
            sys.stdout.flush()
    except UsageError as error:
        _refuse(str(error), error.command)
    except BrokenPipeError:
        return CLOSED_PIPE
    except CollapsiumError as error:
        return _fail(_explained(error), _code_of(error))
    form = line.values.get("log_format")
    form = form if form in ("text", "json") else None  # Another one is an error of the command
    show_compilation(form, quiet=line.values.get("quiet", False))
    try:
        result = line.call() or 0
        sys.stdout.flush()
    except UsageError as error:
        _refuse(str(error), line.command)
    except KeyboardInterrupt:
        return _interrupt(form)
    except BrokenPipeError:
        return CLOSED_PIPE
    except Exception as error:
        if debug:
            raise
        if _interrupts and not isinstance(error, CollapsiumError | OSError | MemoryError):
            # A library was interrupted and raised an error of its own.
            return _interrupt(form)
        text, table = _explained(error), ""
        if isinstance(error, CapacityError):
            # Its table does not fit into one line.
            text, _, table = text.partition("\n")
        code = _fail(text, _code_of(error), form)
        if table:
            print(table, file=sys.stderr)
        return code
    finally:
        # Exit handlers run in reverse order of registration, so these run before Zarr's. Freezing keeps the
        # interpreter from searching all objects for garbage as it ends, which took 0.3 s after a fit.
        for handler in (_stop_zarr, gc.freeze):
            atexit.unregister(handler)
            atexit.register(handler)
    return result


def _show_warning(show: Callable[..., None], message: Warning | str, category: type[Warning], *place: Any) -> None:
    """Print the notice of a former name in one line; show any other warning as Python does."""
    if issubclass(category, RenamedWarning):
        print_notice(str(message))
    else:
        show(message, category, *place)


def _discard_unwritten() -> None:
    """Discard output that cannot be written; the interpreter would write it again at exit, and report that."""
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _code_of(error: Exception) -> int:
    if isinstance(error, TakenOverError):
        return TAKEN_OVER
    return USAGE if isinstance(error, OptionError) else FAILURE


def _explained(error: Exception) -> str:
    """Return the message of an error, with options named as on the command line."""
    if isinstance(error, OptionError):
        return error.spelled(spelling, flag_of)
    if isinstance(error, CollapsiumError):
        return error.spelled(spelling)
    if isinstance(error, MemoryError):
        return "out of memory; see `collapsium estimate` for what a fit needs, and set --memory to spill more to disk"
    if isinstance(error, OSError):
        return f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}"
    return f"{type(error).__name__}: {error} (this is a bug; `collapsium --debug ...` shows the traceback)"


def _interrupt(form: str | None) -> int:
    if form is None:
        print("collapsium: interrupted", file=sys.stderr)
    else:
        LogLines(form=form).write("interrupted", "warning")
    return INTERRUPTED


def _refuse(text: str, command: str) -> NoReturn:
    """Exit with a message about a command line, and the command whose help explains it."""
    program = f"collapsium {command}".rstrip()
    end = " See" if text.endswith("?") else "; see"
    raise SystemExit(_fail(f"{text}{end} `{program} --help`", USAGE))


def _fail(text: str, code: int = FAILURE, form: str | None = None) -> int:
    line = " ".join(text.split())
    if len(line) > MAX_MESSAGE:
        half = MAX_MESSAGE // 2
        line = f"{line[:half]} ... {line[-half:]}"
    print_error(line, form)
    return code


_interrupts: list[float] = []  # Times of the signals, by the monotonic clock


def _ended() -> None:
    """Ignore signals from now on: at exit the interpreter restores handlers that would kill the process."""
    if _interrupts:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


def _stop_zarr() -> None:
    """Wait for Zarr's event loop to stop; Zarr waits 0.2 s and then prints a traceback on a busy machine."""
    module = sys.modules.get("zarr.core.sync")
    for loop, thread in zip(getattr(module, "loop", []), getattr(module, "iothread", []), strict=False):
        if loop is not None and thread is not None and not loop.is_closed():
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=ZARR_STOP)


def _interrupted(number: int, frame: object) -> None:  # noqa: ARG001
    """Interrupt the command, as Ctrl-C does; a second signal stops it at once, as all writes are atomic."""
    now = time.monotonic()
    if _interrupts and now - _interrupts[-1] < REPEATED_SIGNAL:
        _interrupts.append(now)
        return
    _interrupts.append(now)
    if len(_interrupts) > 1:
        # A live view has hidden the cursor.
        show_cursor = b"\x1b[?25h" if os.isatty(2) else b""
        os.write(2, show_cursor + b"collapsium: stopped at once\n")
        os._exit(INTERRUPTED)
    raise KeyboardInterrupt
