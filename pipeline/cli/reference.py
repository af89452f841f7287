"""All commands with their options as data, for the reference pages."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from pydantic.fields import FieldInfo

from collapsium.pipeline.cli.command import COMMANDS
from collapsium.pipeline.cli.main import arguments_of, load_command, models_of, usage_of
from collapsium.pipeline.models.registry import family_names, load_family
from collapsium.pipeline.options import (
    choices_of,
    flag_description,
    heading_of,
    kinds_of,
    limits_of,
    spelled_flag,
    value_of,
)


@dataclass(frozen=True)
class OptionEntry:
    """An option, as the reference lists it."""

    name: str  # The keyword of functions, and the key in TOML files
    flag: str  # The flag of the command line
    kinds: tuple[str, ...]  # The types of its value
    default: object  # Its default; None if it is required or has no fixed default
    required: bool  # Whether it has no default
    choices: tuple[str, ...]  # Its possible values; empty if they are not enumerated
    limits: dict[str, float]  # The limits of a number, by ``ge``, ``gt``, ``le`` and ``lt``
    unit: str | None  # The unit of its value
    metavar: str | None  # Placeholder of its value in help
    heading: str  # Heading of its group; empty for the command's own options
    description: str  # Its help text


@dataclass(frozen=True)
class CommandEntry:
    """A command, as the reference lists it."""

    name: str  # Its name
    summary: str  # One line, as in the list of commands
    description: str  # Its purpose, in paragraphs
    usage: str  # Its usage line, without its name
    arguments: dict[str, str]  # Descriptions of its positional arguments
    options: tuple[OptionEntry, ...]  # Its options, without families' options
    epilog: str  # The end of its help


def commands() -> list[CommandEntry]:
    """Return all commands with their arguments and options."""
    entries = []
    for name, (_, summary) in COMMANDS.items():
        run, epilog = load_command(name)
        description = inspect.getdoc(run) or ""
        options = tuple(
            _option(option, field, heading_of(model, option))
            for model in models_of(run).values()
            for option, field in model.model_fields.items()
        )
        entries.append(CommandEntry(name, summary, description, usage_of(run), arguments_of(run), options, epilog))
    return entries


def families() -> dict[str, tuple[OptionEntry, ...]]:
    """Return the options of all families."""
    return {
        name: tuple(_option(option, field, "") for option, field in load_family(name).Options.model_fields.items())
        for name in family_names()
    }


def _option(name: str, field: FieldInfo, heading: str) -> OptionEntry:
    value = value_of(field)
    kinds = tuple(getattr(kind, "__name__", str(kind)) for kind in kinds_of(field.annotation))
    return OptionEntry(
        name,
        spelled_flag(name, field),
        kinds,
        None if field.is_required() else field.default,
        field.is_required(),
        choices_of(field),
        limits_of(field),
        value.unit,
        value.metavar,
        heading,
        flag_description(field),
    )
