"""The command line in cyclopts: the list of commands, parsing, and messages about wrong usage.

Only the module of the command that is called is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.exceptions import CoercionError, MissingArgumentError, UnknownOptionError, UnusedCliTokensError
from pydantic import Field

from collapsium.pipeline.cli.command import OPTIONS, Call, Command, Flags, UsageError, in_flags
from collapsium.pipeline.cli.output import Help
from collapsium.pipeline.options import Options, choices_of, kinds_of, spelled_flag, value_of
from collapsium.storage.errors import flag_of, suggestion

_WITH_OPTIONS = Group(OPTIONS, sort_key=1)
_HERE = "collapsium.pipeline.cli"
# The module of each command, and its summary in the list of commands
COMMANDS = {
    "ingest": ("corpora.ingest", "make a corpus from files of texts, word counts or vectors"),
    "append": ("corpora.append", "add documents or vectors to a corpus"),
    "split": ("corpora.split", "split tokens, documents or labels into a training and a held-out corpus"),
    "flatten": ("corpora.flatten", "make a corpus whose documents are the segments of another"),
    "estimate": ("runs.estimate", "estimate the memory, disk space and network traffic of a fit"),
    "fit": ("runs.fit", "fit a model family to a corpus"),
    "watch": ("runs.watch", "follow the progress of a run, from any machine"),
    "compare": ("runs.compare", "compare families over numbers of topics and seeds, as a table and plots"),
    "topics": ("models.topics", "print the topics of a model, or draw their tree"),
    "edit": ("models.edit", "merge, delete, split and rename topics, as a new model"),
    "report": ("models.report", "write an HTML report of a run: topics, examples, labels, course of the fit"),
    "plot": ("models.plot", "draw the course of a fit, topic sizes and a topic map, as PNG or SVG"),
    "evaluate": ("models.evaluate", "score a model on held-out data, or compute the coherence of its topics"),
    "infer": ("models.infer", "write the topic proportions of documents, seen or unseen"),
    "predict": ("models.predict", "predict a label or rating of documents from their words"),
    "export": ("models.export", "export a model to pyLDAvis, to gensim, or as tables (CSV)"),
    "simulate": ("corpora.simulate", "draw a corpus from the generative model of a family"),
    "info": ("models.info", "print what a corpus, run, comparison or model holds"),
    "verify": ("models.verify", "check a corpus, run, comparison or model for damage"),
    "batch": ("runs.batch", "run a job: ingest or append, fit, evaluate, infer and publish"),
    "versions": ("runs.versions", "list the published versions of a batch job"),
    "rollback": ("runs.rollback", "make an older version of a batch job the current one"),
    "sample-texts": ("corpora.sample_texts", "write sample texts: presidents' addresses, in paragraphs"),
    "demo": ("runs.demo", "try it on presidents' addresses: ingest, fit, topics over time, report"),
    "compile": ("runs.compile", "compile all numerical code now, for an image or before a cluster starts"),
}

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
  130  interrupted (Ctrl-C or SIGTERM)
  141  the reader of the output closed the pipe

`collapsium COMMAND --help` explains a command.
`collapsium fit --family hdp --help` lists the options of a family."""


def load_command(name: str) -> Command:
    """Import a command."""
    command = import_module(f"{_HERE}.{COMMANDS[name][0]}").COMMAND
    assert isinstance(command, Command)  # noqa: S101
    return command


class RootOptions(Options):
    """Options before the name of a command."""

    debug: bool = Field(False, description="show the traceback of an error")


@dataclass(frozen=True)
class Line:
    """A parsed command line."""

    call: Call  # The command with its arguments and flags
    command: str  # The command's name; empty if none is named
    debug: bool  # Whether errors are shown with a traceback


def parse(words: Sequence[str]) -> Line:
    """Parse a command line."""
    position = next((number for number, word in enumerate(words) if not word.startswith("-")), len(words))
    debug = False
    if position == len(words) or position:
        root = Command(_no_command, (RootOptions,), epilog=EPILOG)
        call = _read(_root(root), root, words[:position])
        debug = call.flags.of(RootOptions).debug
        if position == len(words):
            return Line(call, "", debug)
    name, rest = words[position], words[position + 1 :]
    if name not in COMMANDS:
        raise UsageError(f"unknown command {name!r}{suggestion(name, COMMANDS)}")
    command = load_command(name)
    try:
        return Line(_read(command_app(name, command, rest), command, rest), name, debug)
    except UsageError as error:
        raise UsageError(error.message, name) from None


def _no_command(flags: Flags) -> None:  # noqa: ARG001
    """Refuse a command line without a command."""
    raise UsageError("the following arguments are required: COMMAND")


def _root(command: Command) -> App:
    """Return the program without a command, which lists the commands and imports none of them."""
    app = App(
        name="collapsium",
        version=f"collapsium {version('collapsium')}",
        usage="collapsium [OPTIONS] COMMAND ...",
        group_commands=Group("commands", sort_key=1),
        **_settings(DESCRIPTION),
    )
    for position, (name, (module, text)) in enumerate(COMMANDS.items()):
        app.command(f"{_HERE}.{module}:COMMAND", name=name, help=text, sort_key=position)
    _describe_help(app)
    for flag in app.version_flags:
        app[flag].group, app[flag].help = app["--help"].group, "show the version and exit"
    app.default(command.bound(("collapsium",)))
    return app


def command_app(name: str, command: Command, words: Sequence[str]) -> App:
    """Return a command as a cyclopts application."""
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
        app[flag].group, app[flag].help = (_WITH_OPTIONS,), "show this help and exit"


def _settings(description: str) -> dict[str, Any]:
    return {
        "help_formatter": Help(description),
        "help_format": "plaintext",
        # Of a flag that is repeated the last value counts, so that wrappers can be overridden.
        "default_parameter": Parameter(negative=(), allow_repeating=True),
    }


def _read(app: App, command: Command, words: Sequence[str]) -> Call:
    """Parse the words after a command, or after the program's name."""
    try:
        function, bound, _ = app.parse_args(list(words), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise UsageError(explained(error, command, words)) from None
    # Other functions than the command's own print help or the version.
    call = function(*bound.args, **bound.kwargs)
    if isinstance(call, Call):
        return call
    if function == app.help_print and command.epilog:
        print(command.epilog if isinstance(command.epilog, str) else command.epilog())
    raise SystemExit(0)


def explained(error: CycloptsError, command: Command, words: Sequence[str]) -> str:
    """Return an error of cyclopts as one line."""
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.argument.field_info.name
        has_flag = any(word == flag_of(name) or word.startswith(f"{flag_of(name)}=") for word in words)
        if has_flag or name.startswith("family_"):
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
    """Return the message about a value that cannot be read."""
    field = next((one for name, one in command.fields.items() if spelled_flag(name, one) == flag), None)
    if field is None:
        return f"argument {flag}: invalid value: {text!r}"
    expected, choices = value_of(field).expected, choices_of(field)
    if expected is not None:
        return f"argument {flag}: expected {expected}, found {repr(text) if choices else text}"
    if choices:
        return f"argument {flag}: unknown value {text!r}{suggestion(text, choices)}"
    kinds = kinds_of(field.annotation)
    kind = "a number" if float in kinds else "a whole number" if int in kinds else "another value"
    return f"argument {flag}: expected {kind}, found {text!r}"


def _unknown(word: str, error: UnknownOptionError, command: Command, words: Sequence[str]) -> str:
    """Return the message about an unknown option: the family may be wrong, or the option."""
    flag = word.partition("=")[0]
    gone = {flag_of(name): text for model in command.options for name, text in model.gone.items()}
    if flag in gone:
        return f"{flag}: is no longer an option: {in_flags(gone[flag])}"
    wrong, hint = ("", "") if command.family is None else command.family.unknown(words, flag)
    if wrong:
        return f"argument --family: {wrong}"
    known = [name for argument in error.argument_collection for name in argument.names if name.startswith("-")]
    of_others = hint.startswith("; families")
    return f"unknown option {flag}{'' if of_others else suggestion(flag, [*known, '--help'])}{hint}"
