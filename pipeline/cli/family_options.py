"""Options of the families: flags made of their fields, `--set`, and what a configuration file says."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from collapsium.pipeline.engine.setup.limits import RUN_NAMES, Keys, parse_setting, read_config, read_toml
from collapsium.pipeline.families.registry import family_names, load_family
from collapsium.storage.errors import CollapsiumError, OptionError, suggestion
from collapsium.storage.io.toml_files import parse_toml, read_toml_text


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
    config = load_family(family).Options
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
    family = requested_family(argv)
    return family if family in family_names() else None


def requested_family(argv: Sequence[str]) -> str | None:
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
    known = load_family(family).Options.model_fields
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
