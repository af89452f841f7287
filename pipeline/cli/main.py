"""The command ``collapsium``: runs a command, and says in one line what went wrong."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from typing import NoReturn

from collapsium.pipeline.cli.app import parse
from collapsium.pipeline.cli.command import UsageError, spelling
from collapsium.pipeline.cli.output import print_error
from collapsium.pipeline.monitoring.console import LogLines, show_compilation
from collapsium.pipeline.monitoring.terminal import guarded_streams
from collapsium.storage.errors import CapacityError, CollapsiumError, OptionError, TakenOverError

FAILURE, USAGE, TAKEN_OVER, INTERRUPTED = 1, 2, 5, 130  # exit codes
SAME = 1.0  # seconds within which further signals are the first one again: `timeout` sends two
ZARR_SECONDS = 10.0  # that Zarr's event loop may take to stop


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, optional
        Its words; by default those of the process.

    Returns
    -------
    int
        See `collapsium.pipeline.cli.app.EPILOG`.

    Raises
    ------
    SystemExit
        The command line is wrong, or its help is printed; with the same codes.
    """
    with guarded_streams():
        return _run(argv)


def _run(argv: Sequence[str] | None) -> int:
    """Run a command behind guards of its streams; see `main`."""
    signal.signal(signal.SIGTERM, _interrupted)
    signal.signal(signal.SIGINT, _interrupted)
    _interrupts.clear()
    atexit.unregister(_ended)
    atexit.register(_ended)
    warnings.filterwarnings("ignore", "Port .* is already in use", UserWarning)  # of a dashboard: it takes another
    for library in ("distributed", "asyncio"):  # what a user shall know, the commands say themselves
        logging.getLogger(library).setLevel(logging.CRITICAL)
    try:
        line = parse(list(sys.argv[1:] if argv is None else argv))
    except UsageError as error:
        _refuse(error.message, error.command)
    except CollapsiumError as error:
        return _fail(error.spelled(spelling), _code_of(error))
    form, quiet = line.call.flags.values.get("log_format"), line.call.flags.values.get("quiet", False)
    show_compilation(form, quiet=quiet)
    try:
        result = line.call() or 0
        sys.stdout.flush()
    except UsageError as error:
        _refuse(error.message, line.command)
    except KeyboardInterrupt:
        return _interrupt(form)
    except BrokenPipeError:
        # `collapsium topics RUN | head` is no error. (The signal itself must stay ignored: it would end a driver whose
        # scheduler has died.) What is still to be written goes nowhere.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:
        if line.debug:
            raise
        if _interrupts and not isinstance(error, CollapsiumError | OSError | MemoryError):
            return _interrupt(form)  # a library met the interrupt in the middle of something and raised its own error
        text, table = _explained(error), ""
        if isinstance(error, CapacityError):  # whose table is of no use in one line
            text, _, table = text.partition("\n")
        code = _fail(text, _code_of(error), form)
        if table:
            print(table, file=sys.stderr)
        return code
    finally:
        # Functions run at exit in the reverse order of their registration, and Zarr's was registered by its import.
        atexit.unregister(_stop_zarr)
        atexit.register(_stop_zarr)
    return result


def _code_of(error: Exception) -> int:
    if isinstance(error, TakenOverError):
        return TAKEN_OVER
    return USAGE if isinstance(error, OptionError) else FAILURE


def _explained(error: Exception) -> str:
    """Say what went wrong; options have the names that they have on the command line."""
    if isinstance(error, CollapsiumError):
        return error.spelled(spelling)
    if isinstance(error, MemoryError):
        return "memory ran out; `collapsium estimate` says what a fit takes, --memory lets it keep more on disk"
    if isinstance(error, OSError):
        return f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}"
    return f"{type(error).__name__}: {error} (a defect; `collapsium --debug ...` shows where)"


def _interrupt(form: str | None) -> int:
    if form is None:
        print("collapsium: interrupted", file=sys.stderr)
    else:
        LogLines(form=form).write("interrupted", "warning")
    return INTERRUPTED


def _refuse(text: str, command: str) -> NoReturn:
    """Say what is wrong with a command line, and whose help tells more."""
    program = f"collapsium {command}".rstrip()
    raise SystemExit(_fail(f"{text}; see `{program} --help`", USAGE))


def _fail(text: str, code: int = FAILURE, form: str | None = None) -> int:
    print_error(" ".join(text.split()), form)
    return code


_interrupts: list[float] = []  # when each came


def _ended() -> None:
    """Let no signal kill what has ended: the interpreter's last steps would put the system's handlers back."""
    if _interrupts:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


def _stop_zarr() -> None:
    """Wait for Zarr's event loop to stop; Zarr itself gives it 0.2 s, and on a busy machine prints a traceback then."""
    module = sys.modules.get("zarr.core.sync")
    for loop, thread in zip(getattr(module, "loop", []), getattr(module, "iothread", []), strict=False):
        if loop is not None and thread is not None and not loop.is_closed():
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=ZARR_SECONDS)


def _interrupted(number: int, frame: object) -> None:  # noqa: ARG001
    """SIGTERM ends a command as Ctrl-C does; the second time, at once: nothing on disk is ever half replaced."""
    now = time.monotonic()
    if _interrupts and now - _interrupts[-1] < SAME:  # one to the process, and one to its group
        _interrupts.append(now)
        return
    _interrupts.append(now)
    if len(_interrupts) > 1:
        shown = b"\x1b[?25h" if os.isatty(2) else b""  # a live view has hidden the cursor
        os.write(2, shown + b"collapsium: stopped at once\n")
        os._exit(INTERRUPTED)
    raise KeyboardInterrupt
