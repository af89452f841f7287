"""Options of the families on the command line: flags, `--set` and the configuration file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field

from collapsium.pipeline.cli.command import named_options
from collapsium.pipeline.engine.setup.limits import (
    RUN_NAMES,
    Keys,
    former_names_of,
    option_of,
    read_config,
    read_toml,
)
from collapsium.pipeline.models.registry import elsewhere, family_names, load_family
from collapsium.pipeline.options import Location, Options, Texts, Value, parse_setting
from collapsium.storage.errors import CollapsiumError, OptionError, flag_of, suggestion
from collapsium.storage.io.encodings import parse_toml, read_toml_text
from collapsium.storage.runs.run import Run
from collapsium.workers.options import former_names, present_names, warn_renamed

_FAMILIES = f"{', '.join(family_names())}; with --help, its options are listed too"


class FamilyFlags(Options):
    """The family, and its options as text; with a family named, these are flags too."""

    family: Annotated[str | None, Value("FAMILY")] = Field(None, description=f"model family (required): {_FAMILIES}")
    settings: Annotated[Texts, Value("NAME=VALUE", flag="--set", note="may be repeated")] = Field(
        (), description="an option of the family, with a TOML value, such as --set 'learn=[\"alpha\"]'"
    )


class ConfiguredFamilyFlags(FamilyFlags):
    """The family and its options, where a configuration or a resumed run may name them instead."""

    family: Annotated[str | None, Value("FAMILY")] = Field(
        None, description=f"model family, required unless the configuration or a resumed run names it: {_FAMILIES}"
    )


class ConfigOptions(Options):
    """A file of options."""

    config: Annotated[Location | None, Value("FILE.toml")] = Field(
        None, description="TOML file with options; flags and --set take precedence"
    )


class TopicCountOptions(Options):
    """The number of topics, which is an option of most families."""

    topics: int | None = Field(
        None,
        description="number of topics, required with most families; for families that infer it, the largest number "
        "(default with hdp: 200)",
    )


def options_of(words: Sequence[str]) -> tuple[str, type[BaseModel]]:
    """Return the heading and the options of the family that the words name; without one, the number of topics."""
    family = requested_family(words)
    if family not in family_names():
        return "", TopicCountOptions
    config = load_family(str(family)).Options
    return f"options of {family} ({config.model_config.get('title', '')})", config


def hint_for(words: Sequence[str], flag: str) -> str:
    """Return the reason why a flag is unknown, or an empty string: a wrong family, or none."""
    family = requested_family(words)
    if family is None:
        return "Options of a family need --family"
    if family not in family_names():
        return f"--family: unknown family {family!r}{suggestion(family, family_names())}"
    return elsewhere(flag.partition("=")[0].removeprefix("--").replace("-", "_")).removeprefix("; ").capitalize()


def requested_family(words: Sequence[str]) -> str | None:
    """Return the family that ``--family``, the configuration file or the run to resume names."""
    values: dict[str, str] = {}
    for number, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if equals:
            values[flag] = value
        elif number + 1 < len(words):
            values[flag] = words[number + 1]
    family, config, resumed = (values.get(flag) for flag in ("--family", "--config", "--resume"))
    if family is None and config is not None:
        # Errors of the file are reported when the command reads it.
        with contextlib.suppress(OSError, ValueError):
            family = parse_toml(read_toml_text(config)).get("family")
    if family is None and resumed is not None:
        with contextlib.suppress(CollapsiumError):
            family = Run(resumed).record().get("family")
    return None if family is None else str(family)


@dataclass(frozen=True)
class FamilyRequest:
    """A family with its options and the command's, from ``--config``, ``--set`` and flags."""

    family: str  # The family's name
    options: dict[str, Any]  # The family's options and the command's
    keys: Keys | None = None  # The options of the configuration file that nothing overrides, as the file spells them

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Let errors name options of the configuration file as the file spells them."""
        try:
            yield
        except OptionError as error:
            if self.keys is None:
                raise
            raise self.keys.explain(error) from error


def gather(
    chosen: FamilyFlags,
    config: str | None,
    flags: Mapping[str, str],
    options: Sequence[Options],
    recorded: str | None = None,
) -> FamilyRequest:
    """Combine ``--config``, ``--set`` and the flags, in ascending order of precedence."""
    family = chosen.family or recorded
    written = read_config(config, family) if config is not None else {}
    named = named_options(*options)
    settings: dict[str, Any] = {}
    arguments: dict[str, str] = {}
    texts = [(f"--set {text}", text) for text in chosen.settings]
    texts += [(f"{flag_of(name)} {text}", f"{name}={text}") for name, text in flags.items()]
    for argument, text in texts:
        name, value = parse_setting(text)
        if name in arguments:
            raise OptionError(f"expected one value, found {arguments[name]} and {argument}", name)
        arguments[name], settings[name] = argument, value
    family = family or written.get("family")
    written.pop("family", None)
    if family is None:
        raise OptionError(f"`family` is required: {', '.join(family_names())}")
    keys = None
    if config is not None:
        former = former_names_of(family)
        table = read_toml(config)
        keys = Keys.of(config, (key for key in table if option_of(key, former) not in {*named, *settings}), former)
    known = load_family(family).Options.model_fields
    settings = present_names(settings, former_names(load_family(family).Options), warn_renamed)
    for name in settings:
        if name in RUN_NAMES:
            raise OptionError(f"--set: '{name}' is not an option of a family; use `{name}` instead")
        if name not in known:
            raise OptionError(f"--set: unknown option '{name}' of family '{family}'{suggestion(name, known)}")
    return FamilyRequest(family, {**written, **settings, **named}, keys)
