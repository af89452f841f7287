"""The command line as the command-line library has it: its commands, of which only the one that is called is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.exceptions import CoercionError, MissingArgumentError, UnknownOptionError, UnusedCliTokensError
from pydantic import Field

from collapsium.pipeline.cli.command import OPTIONS, Call, Command, Flags, UsageError
from collapsium.pipeline.cli.help import Help
from collapsium.pipeline.options import Options, choices_of, kinds_of, spelled_flag, value_of
from collapsium.storage.errors import flag_of, suggestion

_WITH_OPTIONS = Group(OPTIONS, sort_key=1)
_HERE = "collapsium.pipeline.cli"
COMMANDS = {
    "ingest": ("corpora.ingest", "read files into a corpus"),
    "append": ("corpora.append", "add documents or vectors to a corpus"),
    "split": ("corpora.split", "split documents' tokens, whole documents or labels into training and held-out parts"),
    "flatten": ("corpora.flatten", "make documents of the segments of a corpus"),
    "estimate": ("runs.estimate", "predict the memory, disk and traffic of a fit"),
    "fit": ("runs.fit", "fit a model family to a corpus"),
    "watch": ("runs.watch", "watch a run, here or elsewhere"),
    "compare": ("runs.compare", "compare families over numbers of topics and seeds: a table and plots"),
    "topics": ("models.topics", "print the topics of a model, or draw their tree"),
    "report": ("models.report", "write a page that shows a run: topics, examples, labels, the course of the fit"),
    "plot": ("models.plot", "draw the course of a fit, its topics' sizes and their map, as PNG or SVG"),
    "evaluate": (
        "models.evaluate",
        "score a model on held-out tokens, unseen documents or vectors, or its topics' coherence",
    ),
    "infer": ("models.infer", "write topic proportions of documents, seen or unseen"),
    "predict": ("models.predict", "predict labels or ratings of documents from their words"),
    "export": ("models.export", "write a model for pyLDAvis or gensim, or as tables (CSV)"),
    "simulate": ("corpora.simulate", "draw a corpus with known truth"),
    "info": ("models.info", "say what a corpus, run, comparison or model is"),
    "verify": ("models.verify", "check a corpus, run, comparison or model, and name what is broken"),
    "batch": ("runs.batch", "ingest or append, fit, evaluate, infer and publish, as one job"),
    "versions": ("runs.versions", "list the published versions of a batch job"),
    "rollback": ("runs.rollback", "make an older version of a batch job the current one"),
    "sample-texts": ("corpora.sample_texts", "write texts of Python's own documentation, to try things on"),
    "demo": ("runs.demo", "ingest, fit and print topics of text that is on this machine"),
}
"""Module of each command, imported when it is called, and what the list of commands says of it."""

DESCRIPTION = """\
Bayesian topic models on corpora that outgrow one machine.

A corpus is ingested once, cut into shards on disk; a fit sweeps the shards on
Dask workers and writes a run, with its events and, at the end, its model."""

EPILOG = """\
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


def load_command(name: str) -> Command:
    """Import a command."""
    found = import_module(f"{_HERE}.{COMMANDS[name][0]}").COMMAND
    assert isinstance(found, Command)  # noqa: S101
    return found


class RootOptions(Options):
    """Options of all commands, which stand before the command."""

    debug: bool = Field(False, description="on an error, show where in the code it came from")


@dataclass(frozen=True)
class Line:
    """A command line that was read.

    Attributes
    ----------
    call : Call
        What is asked for.
    command : str
        The command's name; empty where none is named.
    debug : bool
        Whether errors are shown with where they come from.
    """

    call: Call
    command: str
    debug: bool


def parse(words: Sequence[str]) -> Line:
    """Read a command line.

    Parameters
    ----------
    words : sequence of str
        The command line, without the program's name.

    Returns
    -------
    Line
        What is asked for.

    Raises
    ------
    UsageError
        There is no such command or option, an argument is missing, or a value cannot be read.
    SystemExit
        Help or the version was asked for, and is printed.
    """
    place = next((number for number, word in enumerate(words) if not word.startswith("-")), len(words))
    debug = False
    if place == len(words) or place:
        root = Command(_nothing, (RootOptions,), epilog=EPILOG)
        call = _read(_root(root), root, words[:place])
        debug = call.flags.of(RootOptions).debug
        if place == len(words):
            return Line(call, "", debug)
    name, rest = words[place], words[place + 1 :]
    if name not in COMMANDS:
        raise UsageError(f"unknown command {name!r}{suggestion(name, COMMANDS)}")
    command = load_command(name)
    try:
        return Line(_read(command_app(name, command, rest), command, rest), name, debug)
    except UsageError as error:
        raise UsageError(error.message, name) from None


def _nothing(flags: Flags) -> None:  # noqa: ARG001
    """Stand for a command line without a command."""
    raise UsageError("the following arguments are required: COMMAND")


def _root(command: Command) -> App:
    """Return the program without a command, which lists the commands and loads none."""
    app = App(
        name="collapsium",
        version=f"collapsium {version('collapsium')}",
        usage="collapsium [OPTIONS] COMMAND ...",
        group_commands=Group("commands", sort_key=1),
        **_settings(DESCRIPTION),
    )
    for place, (name, (module, text)) in enumerate(COMMANDS.items()):
        app.command(f"{_HERE}.{module}:COMMAND", name=name, help=text, sort_key=place)
    _describe_help(app)
    for flag in app.version_flags:
        app[flag].group = app["--help"].group
    app.default(command.bound(("collapsium",)))
    return app


def command_app(name: str, command: Command, words: Sequence[str]) -> App:
    """Return a command as the command-line library has it.

    Parameters
    ----------
    name : str
        Its name.
    command : Command
        The command.
    words : sequence of str
        The command line, which may name a family.

    Returns
    -------
    App
        The command.
    """
    heading, config = ("", None) if command.family is None else command.family.config(words)
    app = App(
        name=f"collapsium {name}",
        usage=f"collapsium {name} {command.usage}",
        version_flags=(),
        **_settings(command.description),
    )
    _describe_help(app)
    app.default(command.bound((name, *words), heading, config))
    return app


def _describe_help(app: App) -> None:
    """List ``--help`` among the options."""
    for flag in app.help_flags:
        app[flag].group, app[flag].help = (_WITH_OPTIONS,), "show this help and end"


def _settings(description: str) -> dict[str, Any]:
    return {
        "help_formatter": Help(description),
        "help_format": "plaintext",
        "default_parameter": Parameter(negative=(), allow_repeating=True),
    }


def _read(app: App, command: Command, words: Sequence[str]) -> Call:
    """Read the words behind a command, or behind the program's name."""
    try:
        function, bound, _ = app.parse_args(list(words), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise UsageError(explained(error, command, words)) from None
    found = function(*bound.args, **bound.kwargs)  # prints help or the version
    if isinstance(found, Call):
        return found
    if function == app.help_print and command.epilog:
        print(command.epilog if isinstance(command.epilog, str) else command.epilog())
    raise SystemExit(0)


def explained(error: CycloptsError, command: Command, words: Sequence[str]) -> str:
    """Return in a line what is wrong with a command line.

    Parameters
    ----------
    error : CycloptsError
        As the command-line library has it.
    command : Command
        The command.
    words : sequence of str
        What stood behind it.

    Returns
    -------
    str
        The line.
    """
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.argument.field_info.name
        given = any(word == flag_of(name) or word.startswith(f"{flag_of(name)}=") for word in words)
        if given or name.startswith("family_"):
            return f"argument {flag_of(name.removeprefix('family_'))}: expected one argument"
        return f"the following arguments are required: {command.missing_from(name)}"
    if isinstance(error, CoercionError) and error.token is not None:
        return _unreadable(error.token.keyword or "", error.token.value, command)
    if isinstance(error, UnknownOptionError):
        return _unknown(error.token.value or error.token.keyword or "", error, command, words)
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"unexpected argument {error.unused_tokens[0]!r}"
    return str(error).splitlines()[-1]


def _unreadable(flag: str, text: str, command: Command) -> str:
    """Return what is wrong with a value."""
    field = next((one for name, one in command.fields.items() if spelled_flag(name, one) == flag), None)
    if field is None:
        return f"argument {flag}: invalid value: {text!r}"
    expected, choices = value_of(field).expected, choices_of(field)
    if expected is not None:
        return f"argument {flag}: expected {expected}, found {repr(text) if choices else text}"
    if choices:
        return f"argument {flag}: unknown value {text!r}{suggestion(text, choices)}"
    kind = next((kind.__name__ for kind in (int, float) if kind in kinds_of(field.annotation)), "")
    return f"argument {flag}: invalid {kind} value: {text!r}"


def _unknown(word: str, error: UnknownOptionError, command: Command, words: Sequence[str]) -> str:
    """Return what is wrong with an option that is not there: the family, whose it may be, or the option."""
    flag = word.partition("=")[0]
    wrong, hint = ("", "") if command.family is None else command.family.unknown(words)
    if wrong:
        return f"argument --family: {wrong}"
    known = [name for argument in error.argument_collection for name in argument.names if name.startswith("-")]
    return f"unknown option {flag}{suggestion(flag, [*known, '--help'])}{hint}"
