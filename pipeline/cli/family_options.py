"""Options of the families: flags made of their fields, `--set`, and what a configuration file says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field

from collapsium.pipeline.cli.command import OPTIONS, Flags
from collapsium.pipeline.engine.setup.limits import RUN_NAMES, Keys, parse_setting, read_config, read_toml
from collapsium.pipeline.families.registry import family_names, load_family
from collapsium.pipeline.options import Location, Options, Texts, Value
from collapsium.storage.errors import CollapsiumError, OptionError, suggestion
from collapsium.storage.io.toml_files import parse_toml, read_toml_text
from collapsium.storage.runs.run import Run


class FamilyFlags(Options):
    """The family, and options of it as text; its own options are flags too once it is named."""

    family: Annotated[str | None, Value("|".join(family_names()))] = Field(
        None, description="the model family; with --help, its options too"
    )
    settings: Annotated[Texts, Value("NAME=VALUE", flag="--set")] = Field(
        (), description="an option of the family, as a TOML value: --set 'learn=[\"alpha\"]'"
    )


class ConfigOptions(Options):
    """A file of options."""

    config: Annotated[Location | None, Value("FILE.toml")] = Field(
        None, description="options by name, as for fit; flags and --set go over it"
    )


class TopicCountOptions(Options):
    """The number of topics, which is an option of most families."""

    topics: int | None = Field(None, description="number of topics, or the most there can be")


class NamedFamily:
    """The family that ``--family``, the configuration file or the run to resume names."""

    def config(self, words: Sequence[str]) -> tuple[str, type[BaseModel]]:
        """Return the heading and the options of the family; of none what most have."""
        family = requested_family(words)
        if family not in family_names():
            return OPTIONS, TopicCountOptions
        config = load_family(str(family)).Options
        return f"options of {family} ({config.model_config.get('title', '')})", config

    def unknown(self, words: Sequence[str]) -> tuple[str, str]:
        """Return what is wrong with the family's name, and a hint for options that nobody knows; empty if nothing."""
        family = requested_family(words)
        if family is None:
            return "", "; options of a family need --family"
        known = family in family_names()
        return "" if known else f"unknown family {family!r}{suggestion(family, family_names())}", ""


def _value_behind(words: Sequence[str], flag: str) -> str | None:
    """Return the last value of a flag."""
    found = None
    for number, word in enumerate(words):
        if word.startswith(f"{flag}="):
            found = word.partition("=")[2]
        elif word == flag and number + 1 < len(words):
            found = words[number + 1]
    return found


def requested_family(words: Sequence[str]) -> str | None:
    """Return the family that ``--family``, the configuration file or the run to resume names."""
    family, config, resumed = (_value_behind(words, flag) for flag in ("--family", "--config", "--resume"))
    if family is None and config is not None:
        with contextlib.suppress(OSError, ValueError):  # what is wrong with the file is said when it is used
            family = parse_toml(read_toml_text(config)).get("family")
    if family is None and resumed is not None:
        with contextlib.suppress(CollapsiumError):
            family = Run(resumed).record().get("family")
    return None if family is None else str(family)


def family_options(flags: Flags) -> dict[str, Any]:
    """Gather the family's options from ``--set`` and the flags of its own, the flags last.

    Parameters
    ----------
    flags : Flags
        Of a command with `FamilyFlags`.

    Returns
    -------
    dict
        Options by name.

    Raises
    ------
    OptionError
        A ``--set`` has no value.
    """
    options = dict(parse_setting(text) for text in flags.of(FamilyFlags).settings)
    options.update(parse_setting(f"{name}={text}") for name, text in flags.family.items())
    return options


@dataclass(frozen=True)
class Asked:
    """What is asked for with ``--config``, ``--set`` and flags, each over the one before.

    Attributes
    ----------
    family : str
        The family's name.
    options : dict
        The family's options and the command's.
    keys : Keys or None
        Options that the configuration file names, as it names them.
    """

    family: str
    options: dict[str, Any]
    keys: Keys | None = None

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Name the options that errors are about as the configuration file does, where it names them."""
        try:
            yield
        except OptionError as error:
            if self.keys is None:
                raise
            raise self.keys.explain(error) from error


def gather(flags: Flags, models: Sequence[type[Options]], recorded: str | None = None) -> Asked:
    """Put together what ``--config``, ``--set`` and the flags say, each over the one before.

    Parameters
    ----------
    flags : Flags
        Of a command with `FamilyFlags`.
    models : sequence of type of Options
        The command's own options.
    recorded : str, optional
        The family of the run that is resumed, which need not be named then.

    Returns
    -------
    Asked
        All of it.

    Raises
    ------
    OptionError
        No family is named, or an option has no such name.
    InputError
        The configuration file is wrong.
    """
    path, chosen = flags.values.get("config"), flags.values.get("family", recorded)
    options = read_config(path, chosen) if path is not None else {}
    own, given = family_options(flags), flags.given(*models)
    given.pop("family", None)
    keys = None
    if path is not None:
        written = (name for name in read_toml(path) if name.replace("-", "_") not in {*given, *own})
        keys = Keys.of(path, written)
    family = chosen or options.get("family")
    options.pop("family", None)
    if family is None:
        raise OptionError(f"`family` is required: {', '.join(family_names())}")
    known = load_family(family).Options.model_fields
    for name in own:
        if name in RUN_NAMES:
            raise OptionError(f"--set: '{name}' is no option of a family; say `{name}`")
        if name not in known:
            raise OptionError(f"--set: unknown option '{name}' of family '{family}'{suggestion(name, known)}")
    return Asked(family, {**options, **own, **given}, keys)
