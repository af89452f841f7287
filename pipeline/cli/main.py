"""The command ``collapsium``: finds the commands, runs one, and says in one line what went wrong."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from importlib.metadata import version

from collapsium.pipeline.cli.corpora import append, flatten, ingest, simulate, split
from collapsium.pipeline.cli.models import evaluate, export, infer, info, plot, predict, report, topics, verify
from collapsium.pipeline.cli.output import print_error
from collapsium.pipeline.cli.parser import command_parser
from collapsium.pipeline.cli.runs import batch, compare, demo, estimate, fit, rollback, versions, watch
from collapsium.pipeline.monitoring.console import LogLines, show_compilation
from collapsium.pipeline.monitoring.terminal import guarded_streams
from collapsium.storage.errors import CapacityError, CollapsiumError, OptionError, TakenOverError, flag_of

FAILURE, USAGE, TAKEN_OVER, INTERRUPTED = 1, 2, 5, 130  # exit codes
SAME = 1.0  # seconds within which further signals are the first one again: `timeout` sends two
ZARR_SECONDS = 10.0  # that Zarr's event loop may take to stop
COMMANDS = {
    "ingest": ingest,
    "append": append,
    "split": split,
    "flatten": flatten,
    "estimate": estimate,
    "fit": fit,
    "watch": watch,
    "compare": compare,
    "topics": topics,
    "report": report,
    "plot": plot,
    "evaluate": evaluate,
    "infer": infer,
    "predict": predict,
    "export": export,
    "simulate": simulate,
    "info": info,
    "verify": verify,
    "batch": batch,
    "versions": versions,
    "rollback": rollback,
    "demo": demo,
}

DESCRIPTION = """\
Bayesian topic models on corpora that outgrow one machine.

A corpus is ingested once, cut into shards on disk; a fit sweeps the shards on
Dask workers and writes a run, with its events and, at the end, its model."""

EXAMPLE = """\
example:
  collapsium ingest reviews.jsonl reviews --min-documents 5 --max-document-share 0.5
  collapsium split reviews train heldout
  collapsium fit train run --family hdp --topics 200 --heldout heldout
  collapsium topics run

exit codes:
  0    done
  1    an input is missing or damaged, or the work failed; what was there before is as it was
  2    wrong usage: an unknown command or option, or a value that an option cannot take, also in a TOML file
  3    batch: the new model scores worse than the published one
  4    batch: another process works on the job
  5    another process has taken the work over, as this one slept; it has written nothing since
  130  interrupted (Ctrl-C or SIGTERM)
  141  whoever read the output has closed it

`collapsium COMMAND --help` teaches a command, `collapsium fit --family hdp --help` a family's options."""


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = command_parser(prog="collapsium", description=DESCRIPTION, epilog=EXAMPLE)
    parser.add_argument("--version", action="version", version=f"collapsium {version('collapsium')}")
    parser.add_argument("--debug", action="store_true", help="on an error, show where in the code it came from")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in argv if not word.startswith("-")), None)
    for name, module in COMMANDS.items():
        sub = commands.add_parser(
            name, help=module.HELP, description=module.__doc__, epilog=getattr(module, "EPILOG", None)
        )
        if name == chosen:  # the options of some take long to gather
            module.configure(sub, argv)
            sub.set_defaults(handler=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, optional
        Its words; by default those of the process.

    Returns
    -------
    int
        See `EXAMPLE`. A `SystemExit` ends what the parser refuses, with the same codes.
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
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = _parser(words).parse_args(words)
    except OptionError as error:
        return _fail(error.spelled(flag_of), USAGE)
    except CollapsiumError as error:
        return _fail(str(error))
    form = getattr(arguments, "log_format", None)
    show_compilation(form, quiet=getattr(arguments, "quiet", False))
    try:
        result: int = arguments.handler(arguments) or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _interrupt(form)
    except BrokenPipeError:
        # `collapsium topics RUN | head` is no error. (The signal itself must stay ignored: it would end a driver whose
        # scheduler has died.) What is still to be written goes nowhere.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:
        if arguments.debug:
            raise
        if _interrupts and not isinstance(error, CollapsiumError | OSError | MemoryError):
            return _interrupt(form)  # a library met the interrupt in the middle of something and raised its own error
        text, table = _explained(error, arguments), ""
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


def _explained(error: Exception, arguments: argparse.Namespace) -> str:
    """Say what went wrong; options have the names of the configuration file, or else of the command line."""
    if isinstance(error, OptionError):
        keys = getattr(arguments, "keys", None)
        return (error if keys is None else keys.explain(error)).spelled(flag_of)
    if isinstance(error, CollapsiumError):
        return str(error)
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
