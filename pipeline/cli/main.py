"""The command ``collapsium``: parses with cyclopts, runs a command, and reports wrong usage and errors in one line.

Only the module of the command that is called is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import inspect
import json
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import version
from types import FrameType
from typing import Annotated, Any, Literal, NoReturn, cast, get_args, get_origin

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.exceptions import MissingArgumentError, UnknownOptionError, UnusedCliTokensError
from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from collapsium.pipeline.cli.command import (
    COMMAND_LINE,
    COMMANDS,
    Help,
    UsageError,
    in_flags,
    print_error,
    print_notice,
    spelling,
)
from collapsium.pipeline.monitoring.console import LogLines, show_compilation
from collapsium.pipeline.monitoring.progress import silenced
from collapsium.pipeline.monitoring.terminal import guarded_streams
from collapsium.pipeline.options import (
    Commas,
    Options,
    choices_of,
    flag_description,
    heading_of,
    kinds_of,
    marks_of,
    names_of,
    spelled_flag,
    value_of,
)
from collapsium.storage.errors import (
    CapacityError,
    CollapsiumError,
    OptionError,
    TakenOverError,
    flag_of,
    interrupt_behind,
    suggestion,
)
from collapsium.workers.options import (
    FORMER_FUNCTIONS,
    Accepts,
    RenamedWarning,
    former_names,
    present_names,
    renaming,
    warn_renamed,
)

_HERE = "collapsium.pipeline.cli"
# Headings of the positional arguments, and of the options that declare no heading
ARGUMENTS, OPTIONS = Group("arguments", sort_key=0), Group("options", sort_key=1)

DESCRIPTION = """\
Bayesian topic models on corpora that outgrow one machine.

A corpus is ingested once, into shards on disk. A fit sweeps the shards with threads
or Dask workers and writes a run: a folder with events, checkpoints and the model."""

EPILOG = """\
example:
  collapsium ingest reviews.jsonl reviews --min-documents 5 --max-document-share 0.5
  collapsium split reviews train heldout
  collapsium fit train run --family hdp --topics 200 --heldout heldout
  collapsium topics run

exit codes:
  0    done
  1    an input is missing or damaged, or the work failed; existing files are unchanged
  2    wrong usage: an unknown command or option, or an invalid value, also in a TOML file
  3    batch: the new model scores worse than the published one
  4    batch: another process is working on the job
  5    another process took over the work while this one was suspended
  130  interrupted (Ctrl-C, SIGTERM, or a closed terminal)
  141  the reader of the output closed the pipe

`collapsium COMMAND --help` explains a command.
`collapsium fit --family hdp --help` lists the options of a family."""


def load_command(name: str) -> tuple[Callable[..., Any], str]:
    """Import a command; return its function and the end of its help."""
    module, function = import_module(f"{_HERE}.{COMMANDS[name][0]}"), name.replace("-", "_")
    return getattr(module, function), getattr(module, f"{function.upper()}_EPILOG", "").rstrip("\n")


class RootOptions(Options):
    """Options before the name of a command."""

    debug: bool = Field(False, description="show the traceback of an error")


@dataclass(frozen=True)
class Line:
    """A parsed command line."""

    call: Callable[[], int | None]  # Checks the options and runs the command
    values: dict[str, Any]  # The options that are given, as cyclopts read them
    command: str = ""  # The command's name; empty if none is named


def parse(words: Sequence[str]) -> tuple[Line, bool]:
    """Return a parsed command line, and whether errors are shown with a traceback."""
    position = next((number for number, word in enumerate(words) if not word.startswith("-")), len(words))
    debug = False
    if position == len(words) or position:
        try:
            root = _read(_root(), words[:position], EPILOG)
        except CycloptsError as error:
            raise UsageError(_one_line(error)) from None
        debug = bool(root.values.get("debug"))
        if position == len(words):
            raise UsageError("expected a command")
    name, rest = words[position], words[position + 1 :]
    if name in FORMER_FUNCTIONS:
        warn_renamed(renaming(f"collapsium {name}", f"collapsium {FORMER_FUNCTIONS[name]}"))
        name = FORMER_FUNCTIONS[name]
    if name not in COMMANDS:
        raise UsageError(f"unknown command {name!r}{suggestion(name, COMMANDS)}")
    return read_command(name, rest), debug


def read_command(name: str, words: Sequence[str]) -> Line:
    """Return a parsed command line, without the program's options."""
    run, epilog = load_command(name)
    has_family = any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in inspect.signature(run).parameters.values()
    )
    families = import_module(f"{_HERE}.family_options") if has_family else None
    heading, family = ("", None) if families is None else families.options_of(words)
    former = former_names(*models_of(run).values(), *([] if family is None else [family]))
    names = [word.partition("=")[0].removeprefix("--").replace("-", "_") * word.startswith("--") for word in words]
    present_names(dict.fromkeys(names), former, warn_renamed)
    words = [
        word.replace(flag_of(name), flag_of(former[name]), 1) if name in former else word
        for name, word in zip(names, words, strict=True)
    ]
    app = App(
        name=f"collapsium {name}",
        usage=f"collapsium {name} {usage_of(run)}",
        version_flags=(),
        **_settings(inspect.getdoc(run) or ""),
    )
    app.default(_parser(run, heading, family))
    try:
        return replace(_read(app, words, epilog), command=name)
    except UnknownOptionError as error:
        flag = (error.token.keyword or error.token.value or "").partition("=")[0]
        for model in models_of(run).values():
            for option, text in model.gone.items():
                if flag == flag_of(option):
                    raise UsageError(f"{flag}: is no longer an option: {in_flags(text)}", name) from None
        hint = "" if families is None else families.hint_for(words, flag)
        raise UsageError(". ".join(filter(None, (_one_line(error), hint))).replace("?.", "?"), name) from None
    except CycloptsError as error:
        raise UsageError(_one_line(error, app.usage), name) from None


def arguments_of(run: Callable[..., object]) -> dict[str, str]:
    """Return the descriptions of a command's positional arguments by their placeholders in the usage line."""
    descriptions = {}
    for argument in inspect.signature(run, eval_str=True).parameters.values():
        if argument.kind is argument.POSITIONAL_ONLY:
            kind, notation = get_args(argument.annotation)
            label = f"{notation.metavar} ..." if get_origin(kind) is list else str(notation.metavar)
            descriptions[label if argument.default is argument.empty else f"[{label}]"] = str(notation.help)
    return descriptions


def models_of(run: Callable[..., object]) -> dict[str, type[Options]]:
    """Return the models of a command's options by parameter."""
    parameters = inspect.signature(run, eval_str=True).parameters.values()
    return {
        parameter.name: parameter.annotation for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY
    }


def usage_of(run: Callable[..., object]) -> str:
    """Return the usage line of a command, without its name."""
    required = [
        f"{flag_of(name)} {value_of(field).metavar or '|'.join(choices_of(field))}"
        for model in models_of(run).values()
        for name, field in model.model_fields.items()
        if field.is_required()
    ]
    return " ".join(["[OPTIONS]", *required, *arguments_of(run)])


def _root() -> App:
    """Return the program without a command, which lists the commands and imports none of them."""
    app = App(
        name="collapsium",
        version=f"collapsium {version('collapsium')}",
        usage="collapsium [OPTIONS] COMMAND ...",
        group_commands=Group("commands", sort_key=1),
        **_settings(DESCRIPTION),
    )
    for position, (name, (module, text)) in enumerate(COMMANDS.items()):
        app.command(f"{_HERE}.{module}:{name.replace('-', '_')}", name=name, help=text, sort_key=position)
    for flag in app.version_flags:
        app[flag].group, app[flag].help = (OPTIONS,), "show the version and exit"

    def execute(*, options: RootOptions) -> None:
        """Replace the command when only the options of the program are read."""

    app.default(_parser(execute))
    return app


def _settings(description: str) -> dict[str, Any]:
    return {
        "help_formatter": Help(description),
        "help_format": "plaintext",
        # The last value of a repeated flag counts, so that wrappers can be overridden.
        "default_parameter": Parameter(negative=(), allow_repeating=True),
    }


def _parser(run: Callable[..., Any], heading: str = "", family: type[BaseModel] | None = None) -> Callable[..., Line]:
    """Return the function that cyclopts fills in: it takes a command's arguments, and each option as a separate flag.

    Cyclopts takes the first value of a repeated flag if it makes a model itself, and leaves strings to strict models.
    """
    models = models_of(run)
    fields = {name: (model, field) for model in models.values() for name, field in model.model_fields.items()}
    headings = dict.fromkeys([heading, *(heading_of(model, name) for name, (model, _) in fields.items())])
    groups = {name: Group(name, sort_key=number) if name else OPTIONS for number, name in enumerate(headings, 2)}
    parameters = [
        argument.replace(annotation=Annotated[argument.annotation, Parameter(group=ARGUMENTS)])
        for argument in inspect.signature(run, eval_str=True).parameters.values()
        if argument.kind is argument.POSITIONAL_ONLY
    ]
    for name, (model, field) in fields.items():
        kinds, value = kinds_of(field.annotation), value_of(field)
        several = str not in kinds and any(get_origin(kind) in (tuple, dict) for kind in kinds) and not value.text
        # The model converts the text.
        kind: Any = bool if kinds == (bool,) else list[str] if several else str
        metavar = value.metavar or ("" if several else "|".join(choices_of(field))) or None
        flag = spelled_flag(name, field), metavar, groups[heading_of(model, name)]
        parameters.append(_parameter(name, field, kind, *flag, required=field.is_required()))
    chosen = []
    for name, field in {} if family is None else family.model_fields.items():
        # The value is TOML, or a file with what Python accepts as a mapping.
        kinds, files = kinds_of(field.annotation), ["FILE" for mark in field.metadata if isinstance(mark, Accepts)]
        types = ((bool, "true|false"), (int, "N"), (float, "X"))
        metavar = next((shown for kind, shown in types if kind in kinds), files[0] if files else "VALUE")
        metavar = "|".join([*choices_of(field), *files]) if get_origin(kinds[0]) is Literal else metavar
        chosen.append(_parameter(name, field, str, flag_of(name), metavar, groups[heading], required=False))
    # The options of a family follow the flag that names it.
    position = next((number for number, flag in enumerate(parameters, 1) if flag.name == "family"), 0)
    parameters[position:position] = chosen

    def line(*arguments: object, **values: Any) -> Line:
        def call() -> int | None:
            options = {
                parameter: model(
                    **{
                        name: _read_value(field, values[name])
                        for name, field in model.model_fields.items()
                        if name in values
                    }
                )
                for parameter, model in models.items()
            }
            settings = {name: value for name, value in values.items() if name not in fields}
            return cast("int | None", run(*arguments, **options, **settings))

        return Line(call, values)

    vars(line)["__signature__"] = inspect.Signature(parameters)
    line.__annotations__ = {keyword.name: keyword.annotation for keyword in parameters}
    return line


def _parameter(
    name: str, field: FieldInfo, kind: Any, flag: str, metavar: str | None, group: Group, *, required: bool
) -> inspect.Parameter:
    """Return the keyword that cyclopts fills in for an option; None if the command line lacks the flag."""
    notation = Parameter(name=flag, help=help_of(field), metavar=metavar, group=group)
    annotation: Any = Annotated[kind, notation] if required else Annotated[kind | None, notation]
    default = inspect.Parameter.empty if required else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _read_value(field: FieldInfo, value: Any) -> Any:
    """Return the value of a flag for its model: a number, a choice, a list of names, or as cyclopts read it."""
    if any(isinstance(mark, Commas) for mark in (*field.metadata, *marks_of(field.annotation))):
        return [name for text in value for name in names_of(text)]
    kinds = kinds_of(field.annotation)
    for number in (int, float):
        if number in kinds and str not in kinds and isinstance(value, str) and not value_of(field).text:
            with contextlib.suppress(ValueError):
                return number(value)
    choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    return next((choice for choice in choices if str(choice) == value), value)


def help_of(field: FieldInfo) -> str:
    """Return the help of an option: its description, with flags for parameters, and its default."""
    text, default = in_flags(flag_description(field)), field.default
    if field.is_required():
        return f"{text} (required)"
    if default is None or default is False or default in ((), {}) or "(default" in text:
        return text
    if isinstance(default, tuple) and value_of(field).text:
        shown = ",".join(map(str, default))
    elif isinstance(default, tuple | bool):
        shown = json.dumps(default)
    else:
        shown = f"{default:g}" if isinstance(default, float) else str(default)
    return f"{text} (default: {shown})"


def _read(app: App, words: Sequence[str], epilog: str) -> Line:
    """Parse the words after a command, or after the program's name; exit if they ask for help or the version."""
    for flag in app.help_flags:
        app[flag].group, app[flag].help = (OPTIONS,), "show this help and exit"
    function, bound, _ = app.parse_args(list(words), exit_on_error=False, print_error=False)
    line = function(*bound.args, **bound.kwargs)
    if isinstance(line, Line):
        return line
    if function == app.help_print and epilog:
        print(epilog)
    raise SystemExit(0)


def _one_line(error: CycloptsError, usage: object = "") -> str:
    """Return an error of cyclopts as one line, with the usage if an argument is missing."""
    error.verbose = False
    if isinstance(error, MissingArgumentError) and error.argument is not None and error.argument.required:
        name = error.argument.name
        return f"{name if name.startswith('-') else error.argument.parameter.metavar} is missing (usage: {usage})"
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"unexpected argument {error.unused_tokens[0]!r}"
    return " ".join(str(error).split()).rstrip(".")


# Exit codes. The signal of a closed pipe stays ignored, because it would end a driver whose scheduler has died.
FAILURE, USAGE, TAKEN_OVER, INTERRUPTED, CLOSED_PIPE = 1, 2, 5, 130, 128 + signal.SIGPIPE

MAX_MESSAGE = 4000  # Characters of an error, at most; names out of files, which it repeats, may be of any length


REPEAT_AFTER = 0.01  # Seconds after which an interrupt that was lost comes again
# Seconds within which signals count as one: `timeout` sends one to the process and one to its group
REPEATED_SIGNAL = 1.0
ZARR_STOP = 10.0  # Seconds to wait for Zarr's event loop to stop
# New objects after which Python searches for garbage among them, by default 700. The imports of a fit make 280,000
# objects, which stay. Searches among them took 0.18 s, and take 0.06 s with this number, as none covers all objects.
NEW_OBJECTS = 10_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **named: Any) -> None:
        """Print the notice of a former name in one line; show any other warning as Python does."""
        if issubclass(category, RenamedWarning):
            print_notice(str(message))
        else:
            show_by_default(message, category, *place, **named)

    # Commands have different views.
    with guarded_streams(), silenced(), warnings.catch_warnings():
        # Dask's dashboard then takes another port.
        warnings.filterwarnings("ignore", "Port .* is already in use", UserWarning)
        warnings.simplefilter("always", RenamedWarning)
        show_by_default: Callable[..., None] = warnings.showwarning
        warnings.showwarning = show
        try:
            return _run(argv)
        finally:
            # Output that cannot be written is discarded; the interpreter would write it at exit, and report that.
            for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
                try:
                    stream.flush()
                except (OSError, ValueError):
                    with contextlib.suppress(OSError, ValueError):
                        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(argv: Sequence[str] | None) -> int:
    """Run a command and return its exit code; see `main`."""
    gc.set_threshold(NEW_OBJECTS)
    _catch_signals()
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
    except KeyboardInterrupt:
        # The options of a command are modules whose import takes a second.
        return _interrupt(None)
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
        other = not isinstance(error, CollapsiumError | OSError | MemoryError)
        if _interrupts and (other or isinstance(interrupt_behind(error), KeyboardInterrupt)):
            # The system or a library was interrupted and raised a different error.
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
        for handler in (_stop_zarr, _close_clusters, gc.freeze):
            atexit.unregister(handler)
            atexit.register(handler)
    return result


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
# Functions after whose interruption a lock would stay taken for ever, as they are not within its `with`
LOCKING = {threading.Condition.__enter__.__code__, threading.Condition.__exit__.__code__}


SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # SIGHUP: the terminal was closed


def _catch_signals() -> None:
    """Let signals interrupt the command, as Ctrl-C does; SIGHUP stays ignored under `nohup`."""
    for number in SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupted)
    _interrupts.clear()
    sys.unraisablehook = _repeat_lost
    atexit.unregister(_ended)
    atexit.register(_ended)


def _repeat_lost(lost: sys.UnraisableHookArgs) -> None:
    """Interrupt the command again if an interrupt came while an object was finalised, where errors are ignored."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
    elif _interrupts:
        _interrupts.clear()
        _repeat()


def _repeat() -> None:
    threading.Timer(REPEAT_AFTER, os.kill, (os.getpid(), signal.SIGINT)).start()


def _ended() -> None:
    """Ignore signals from now on: at exit the interpreter restores handlers that would kill the process."""
    if _interrupts:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _stop_zarr() -> None:
    """Wait for Zarr's event loop to stop; Zarr waits 0.2 s and then prints a traceback on a busy machine."""
    module = sys.modules.get("zarr.core.sync")
    for loop, thread in zip(getattr(module, "loop", []), getattr(module, "iothread", []), strict=False):
        if loop is not None and thread is not None and not loop.is_closed():
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=ZARR_STOP)


def _close_clusters() -> None:
    """Close Dask's local clusters; Dask itself prints a traceback if an interrupt came while one started or closed."""
    close = getattr(sys.modules.get("distributed.deploy.spec"), "close_clusters", None)
    if close is not None:
        atexit.unregister(close)
        with contextlib.suppress(Exception):
            close()


def _interrupted(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """Interrupt the command, as Ctrl-C does; a second signal stops it at once, as all writes are atomic."""
    if frame is not None and frame.f_code in LOCKING:
        _repeat()
        return
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
