"""What several commands' options share: help that keeps its lines, the family's options, and the scheduler."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from collapsium.pipeline.engine.setup.limits import RUN_NAMES, Keys, parse_setting, read_config, read_toml
from collapsium.pipeline.executors.base import PATIENCE, TLS
from collapsium.pipeline.families.base import family_names, load_family
from collapsium.pipeline.formatting import counted, plain
from collapsium.pipeline.monitoring.console import LOG_FORMS, LogLines
from collapsium.storage.errors import CollapsiumError, OptionError, suggestion
from collapsium.storage.io.toml_files import parse_toml, read_toml_text
from collapsium.storage.printable import json_text

if TYPE_CHECKING:
    from collapsium.pipeline.monitoring.events import Sink
    from collapsium.storage.building.ingest_record import Report


class _Help(argparse.RawDescriptionHelpFormatter):
    """Keep the lines of descriptions; name a default once."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=110)


class _Parser(argparse.ArgumentParser):
    """A parser that says an error in one line and suggests the nearest option."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"formatter_class": _Help, "allow_abbrev": False, **kwargs})
        self._line: list[str] = []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            command = isinstance(action, argparse._SubParsersAction)
            near = suggestion(str(value), map(str, action.choices))
            text = f"unknown {'command' if command else 'value'} {value!r}{near}"
            raise argparse.ArgumentError(None if command else action, text)

    def error(self, message: str) -> Any:
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            message = self._unrecognised(unknown.split())
        chosen = " ".join([self.prog, *self._command()])
        print(f"collapsium: error: {message}; see `{chosen} --help`", file=sys.stderr)
        raise SystemExit(2)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._line = list(sys.argv[1:] if args is None else args)
        return super().parse_args(args, namespace)

    def _unrecognised(self, words: Sequence[str]) -> str:
        """Return what is wrong with words that no option takes: the family, whose options they may be, or the first."""
        flag = words[0].partition("=")[0]
        actions = self._every_action()
        family = _requested_family(self._line) if any(action.dest == "family" for action in actions) else None
        if family is not None and family not in family_names():
            return f"argument --family: unknown family {family!r}{suggestion(family, family_names())}"
        known = [option for action in actions for option in action.option_strings]
        if not flag.startswith("-"):
            return f"unexpected argument {flag!r}"
        needs = any(action.dest == "family" for action in actions) and family is None
        hint = "; options of a family need --family" if needs else ""
        return f"unknown option {flag}{suggestion(flag, known)}{hint}"

    def _command(self) -> list[str]:
        """Return the name of the command, if the first word that is no option is one."""
        first = [word for word in self._line if not word.startswith("-")][:1]
        return [word for word in first if word in self._commands()]

    def _commands(self) -> dict[str, argparse.ArgumentParser]:
        subparsers = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        return {name: sub for action in subparsers for name, sub in action.choices.items()}

    def _every_action(self) -> list[argparse.Action]:
        chosen = [sub for name, sub in self._commands().items() if name in self._command()]
        return [*self._actions, *(action for sub in chosen for action in sub._actions)]


def command_parser(**kwargs: Any) -> argparse.ArgumentParser:
    """Make a parser in the project's style."""
    return _Parser(**kwargs)


def add_scheduler(parser: argparse.ArgumentParser, default: str, *, patience: bool = False) -> None:
    """Add ``--scheduler``, ``--workers``, the certificates, and ``--patience`` where it is wanted."""
    group = parser.add_argument_group("where it runs")
    group.add_argument(
        "--scheduler",
        default=default,
        metavar="WHERE",
        help="threads: worker threads in this process; local: a Dask cluster of worker processes on this machine, with "
        "its dashboard; serial: one task after another; or a Dask scheduler's address such as tcp://host:8786 "
        f"(default: {default})",
    )
    group.add_argument(
        "--workers", type=int, metavar="N", help="workers to start (default: one a processor), or to wait for"
    )
    group.add_argument(
        "--tls-ca",
        metavar="FILE",
        help="certificate of the authority, for a cluster whose messages are encrypted (tls://..., or local)",
    )
    group.add_argument("--tls-cert", metavar="FILE", help="this side's certificate")
    group.add_argument("--tls-key", metavar="FILE", help="its private key")
    if patience:
        group.add_argument(
            "--patience",
            type=float,
            metavar="S",
            help="seconds after which a worker without a sign of life is given up, and a cluster that does not answer "
            f"(default: {PATIENCE:.0f})",
        )


def tls_of(arguments: argparse.Namespace) -> TLS | None:
    """Return the certificates that were named.

    Parameters
    ----------
    arguments : argparse.Namespace
        Of a parser with `add_scheduler`.

    Returns
    -------
    TLS or None
        None where none was.

    Raises
    ------
    OptionError
        Only some of them were.
    AbsentError
        One is not there.
    """
    named = {name: getattr(arguments, f"tls_{name}") for name in ("ca", "cert", "key")}
    missing = [name for name, path in named.items() if path is None]
    if len(missing) == len(named):
        return None
    if missing:
        raise OptionError(f"--tls-{missing[0]} is required: --tls-ca, --tls-cert and --tls-key belong together")
    return TLS(**named)


def add_memory(parser: argparse.ArgumentParser) -> None:
    """Add ``--memory`` and ``--scratch``."""
    group = parser.add_argument_group("what it may take")
    group.add_argument(
        "--memory",
        metavar="SIZE",
        help="what each worker process may hold, such as 750MB or 1.5GB (threads are one process); local states that "
        "do not fit lie on disk (default: what the machine has left, or what the cluster says)",
    )
    group.add_argument(
        "--scratch", metavar="FOLDER", help="where they lie, on each machine (default: the system's temporary folder)"
    )


def add_callbacks(parser: argparse.ArgumentParser) -> None:
    """Add ``--callback``."""
    parser.add_argument(
        "--callback",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="call this function, or what this class makes, with each event, a dict; may be given again; an error in "
        "it is told and does not end the run. collapsium.pipeline.monitoring.mlflow_callback:MLflow logs to MLflow "
        "(extra: mlflow)",
    )


def callbacks_of(arguments: argparse.Namespace, run: str, notice: Callable[[str], None]) -> list[Sink]:
    """Import the callbacks that were named, and tell them what run they will hear of.

    Parameters
    ----------
    arguments : argparse.Namespace
        Of a parser with `add_callbacks`.
    run : str
        The run's folder.
    notice : callable
        Told in a line what one of them raised.

    Returns
    -------
    list of callable
        Sinks for `fit`.

    Raises
    ------
    OptionError
        One cannot be imported.
    """
    if not arguments.callback:
        return []
    from collapsium.pipeline.monitoring.callbacks import guarded

    found = guarded(arguments.callback, notice)
    for sink in found:
        sink({"event": "run", "iteration": 0, "elapsed": 0.0, "run": run})
    return found


def add_log_format(parser: argparse.ArgumentParser) -> None:
    """Add ``--log-format``."""
    parser.add_argument(
        "--log-format",
        choices=LOG_FORMS,
        help="lines on standard error: text, each with its time (ISO 8601), or json, an object a line with time, "
        "level, message and figures (default: a live view in a terminal, else text)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def print_error(text: str, form: str | None = None) -> None:
    """Write in a line why a command failed; `form` is as for `collapsium.pipeline.monitoring.console.LogLines`."""
    if form is None:
        print(f"collapsium: error: {plain(text)}", file=sys.stderr)
    else:
        LogLines(form=form).write(text, "error")


def print_json(value: Any) -> None:
    """Print JSON with floats in their shortest exact form."""
    print(json_text(value, indent=2))


def add_sides(parser: argparse.ArgumentParser) -> None:
    """Add the options of side files."""
    sides = parser.add_argument_group("side files (labels and numbers of documents that lie beside them)")
    sides.add_argument(
        "--label-files",
        action="append",
        default=[],
        metavar="FILE",
        help="labels of the documents: a line a document in the order in which they are read, or .csv, .tsv, .jsonl or "
        ".parquet, records with the documents' ids (--id) in any order, all of whose fields are labels, or covariates "
        "if they are numbers, where --labels and --covariates name none of them; NAME=FILE names the field; may be "
        "repeated",
    )
    sides.add_argument(
        "--label-names",
        action="append",
        default=[],
        metavar="FILE",
        help="names, one a line, of labels of side files that are numbers from 1; FIELD=FILE says of which field",
    )


def say_report(report: Report, one: str = "document") -> None:
    """Print what ingesting left out, and why; nothing where nothing was. `one` is what the corpus holds one of."""
    known = "its id is" if report.skipped_documents == 1 else "their ids are"
    found = [
        (report.skipped_documents, f"left out, as {known} there already"),
        (report.missing_text, "without a text, kept"),
        (report.replaced_bytes, "with bytes that are not UTF-8, which were replaced"),
        (report.empty_documents, "without a word that is kept, kept"),
    ]
    for number, what in found:
        if number:
            print(f"  {counted(number, one)} {what}")
    if report.unmatched_rows:
        print(f"  {counted(report.unmatched_rows, 'id')} of side files that no document has")
    if report.phrases:
        print(f"  {counted(report.phrases, 'phrase')} of two words")
    if report.segments:
        print(f"  {counted(report.segments, 'segment')}, {report.segments / max(report.documents, 1):.1f} a document")
    for rule in report.dropped:
        print(f"  dropped: {counted(rule.words, 'word')} with {counted(rule.tokens, 'token')} ({rule.rule})")


def add_family(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add ``--family`` and, if the words name one, its options; a family that is not there is an error only later."""
    parser.add_argument(
        "--family", metavar="|".join(family_names()), help="the model family; with --help, its options too"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="settings",
        help="an option of the family, as a TOML value: --set 'learn=[\"alpha\"]'",
    )
    family = _named_family(argv)
    if family is None:
        parser.add_argument("--topics", metavar="K", help="number of topics, or the most there can be")
        return
    config = load_family(family).Config
    group = parser.add_argument_group(f"options of {family} ({config.model_config.get('title', '')})")
    for name, field in config.model_fields.items():
        default = " (required)" if field.is_required() else f" (default: {_shown(field.default)})"
        default = "" if field.default is None else default
        group.add_argument(
            f"--{name.replace('_', '-')}",
            dest=f"family_{name}",
            metavar=_metavar(field.annotation),
            help=f"{field.description}{default}".replace("%", "%%"),
        )


def _named_family(argv: Sequence[str]) -> str | None:
    """Look ahead for the family, whose options are flags too; None where there is no such family."""
    family = _requested_family(argv)
    return family if family in family_names() else None


def _requested_family(argv: Sequence[str]) -> str | None:
    """Return the family that ``--family``, the configuration file or the run to resume names."""
    ahead = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    ahead.add_argument("--family", nargs="?")
    ahead.add_argument("--config", nargs="?")
    ahead.add_argument("--resume", nargs="?")
    found, _ = ahead.parse_known_args(list(argv))
    family = found.family
    if family is None and found.config is not None:
        with contextlib.suppress(OSError, ValueError):  # what is wrong with the file is said when it is used
            family = parse_toml(read_toml_text(found.config)).get("family")
    if family is None and found.resume is not None:
        from collapsium.storage.runs.run import Run

        with contextlib.suppress(CollapsiumError):
            family = Run(found.resume).record().get("family")
    return None if family is None else str(family)


def _shown(value: Any) -> str:
    return json.dumps(list(value)) if isinstance(value, tuple) else str(value)


def _metavar(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "|".join(str(value) for value in get_args(annotation))
    numbers = [kind for kind in (annotation, *get_args(annotation)) if kind in (int, float, bool)]
    return {int: "N", float: "X", bool: "true|false"}[numbers[0]] if numbers else "VALUE"


def family_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Gather the family's options from ``--set`` and the generated flags, the flags last.

    Parameters
    ----------
    arguments : argparse.Namespace
        Of a parser with `add_family`.

    Returns
    -------
    dict
        Options by name.

    Raises
    ------
    OptionError
        A ``--set`` has no value.
    """
    options = dict(parse_setting(text) for text in arguments.settings)
    for name, value in vars(arguments).items():
        if name.startswith("family_") and value is not None:
            options.update([parse_setting(f"{name.removeprefix('family_')}={value}")])
    if getattr(arguments, "topics", None) is not None:
        options.update([parse_setting(f"topics={arguments.topics}")])
    return options


def gather(arguments: argparse.Namespace, names: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Put together what ``--config``, ``--set`` and the flags say, each over the one before.

    Parameters
    ----------
    arguments : argparse.Namespace
        Of a parser with `add_family`; a flag that was not given is None.
    names : sequence of str
        The command's own flags that a configuration file may give too.

    Returns
    -------
    family : str
        The family's name.
    options : dict
        The family's options and the command's.

    Raises
    ------
    OptionError
        No family is named, or an option has no such name.
    InputError
        The configuration file is wrong.
    """
    path = getattr(arguments, "config", None)
    options = read_config(path, arguments.family) if path is not None else {}
    given = family_options(arguments)
    flags = {name for name in names if getattr(arguments, name) is not None}
    if path is not None:
        written = (name for name in read_toml(path) if name.replace("-", "_") not in flags.union(given))
        arguments.keys = Keys.of(path, written)
    family = arguments.family or options.pop("family", None)
    options.pop("family", None)
    if family is None:
        raise OptionError(f"--family is required: {', '.join(family_names())}")
    known = load_family(family).Config.model_fields
    for name in given:
        if name in RUN_NAMES:
            raise OptionError(f"--set: '{name}' is no option of a family; say --{name.replace('_', '-')}")
        if name not in known:
            raise OptionError(f"--set: unknown option '{name}' of family '{family}'{suggestion(name, known)}")
    options.update(given)
    options.update({name: getattr(arguments, name) for name in flags})
    return family, options


def gather_again(arguments: argparse.Namespace, names: Sequence[str]) -> tuple[str | None, dict[str, Any]]:
    """Put together what is said of a run that is resumed: as `gather`, but nothing must be said.

    Parameters
    ----------
    arguments, names
        As for `gather`.

    Returns
    -------
    family : str or None
        The family, if it was named again.
    options : dict
        Options that were said.

    Raises
    ------
    OptionError
        An option has no such name.
    InputError
        The configuration file is wrong.
    """
    from collapsium.storage.runs.run import Run

    chosen = arguments.family
    recorded = Run(arguments.resume).record().get("family")
    arguments.family = chosen or recorded
    family, options = gather(arguments, names)
    return (family if family != recorded else None), options
