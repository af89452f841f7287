"""Values of families' options in a comparison: single ones (``--set``), and several to compare (``--vary``)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collapsium.pipeline.families.registry import load_family
from collapsium.pipeline.options import parse_setting
from collapsium.storage.data_types import Json, JsonObject
from collapsium.storage.errors import OptionError, flag_of, suggestion

NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
SHARE = re.compile(rf"\s*({NUMBER})\s*/\s*K\s*")
UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]")  # Characters that names of folders do not have
EVERY = "*"  # All families that have the option, in place of a family's name
# Options of families that span the grid, and are set by the comparison's options of these names
GRID_OPTIONS = ("topics", "start_topics")


def parse_settings(texts: Sequence[str]) -> dict[str, JsonObject]:
    """Read texts such as ``hdp.order=2``, whose values are TOML, and return the values by family and option."""
    settings: dict[str, JsonObject] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        owner, dot, option = name.strip().partition(".")
        if not (equals and dot and owner and option.strip()):
            raise OptionError(f"--set: expected FAMILY.OPTION=VALUE, found {text!r}")
        option, parsed = parse_setting(f"{option}={value}")
        if option in settings.setdefault(owner, {}):
            raise OptionError(f"--set {owner}.{option}: is given twice")
        settings[owner][option] = parsed
    return settings


def number_of(value: Json, topics: int | None, named: str) -> Json:
    """Return a value, with a text such as ``0.1/K`` replaced by its number; nothing else is evaluated."""
    match = SHARE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    if topics is None:
        raise OptionError(f"--set {named}={value}: this family has no K, as it determines the number of topics")
    return float(match.group(1)) / topics


def parse_vary(texts: Sequence[str]) -> dict[str, dict[str, list[Any]]]:
    """Read texts such as ``eta=0.1,0.5`` or ``lda.alpha=1,2``; return the values by family, or ``*``, and option."""
    vary: dict[str, dict[str, list[Any]]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        owner, dot, option = name.strip().rpartition(".")
        parsed = [parse_setting(f"{option}={one.strip()}") for one in values.split(",") if one.strip()]
        if not (equals and option and parsed and bool(dot) == bool(owner)):
            raise OptionError(f"--vary: expected OPTION=V,V or FAMILY.OPTION=V,V, found {text!r}")
        own = vary.setdefault(owner or EVERY, {})
        if parsed[0][0] in own:
            raise OptionError(f"--vary {name.strip()}: is given twice")
        own[parsed[0][0]] = [value for _, value in parsed]
    return vary


def require_varied(vary: Mapping[str, Mapping[str, Sequence[Any]]], families: Sequence[str]) -> None:
    """Refuse options that no family has, and repeated values."""
    known = {family: list(load_family(family).Options.model_fields) for family in families}
    for owner, options in vary.items():
        if owner != EVERY and owner not in known:
            name = f"{owner}.{next(iter(options), 'option')}"
            raise OptionError(f"--vary {name}: '{owner}' is not compared{suggestion(owner, families)}")
        options_of_owner = list(
            dict.fromkeys(name for family in known for name in known[family] if owner in (EVERY, family))
        )
        for option, values in options.items():
            named = option if owner == EVERY else f"{owner}.{option}"
            if option in GRID_OPTIONS:
                raise OptionError(f"--vary {named}: these span the grid; use --{option.replace('_', '-')}")
            if option not in options_of_owner:
                owners = "no compared family has such an" if owner == EVERY else f"family '{owner}' has no such"
                raise OptionError(f"--vary {named}: {owners} option{suggestion(option, options_of_owner)}")
            repeated = next((one for number, one in enumerate(values) if one in values[:number]), None)
            if repeated is not None or not values:
                raise OptionError(f"--vary {named}: expected different values, found {shown(list(values))}")


@dataclass(frozen=True)
class Variant:
    """Values of options by which a cell differs from others of its family; empty if no option varies."""

    options: JsonObject

    @property
    def suffix(self) -> str:
        """The end of the names of its cells' folders."""
        return "".join(f"-{name}-{UNSAFE.sub('_', str(value))}" for name, value in self.options.items())

    @property
    def label(self) -> str:
        """The values as text."""
        return ", ".join(f"{name} = {value}" for name, value in self.options.items())


def variants_of(vary: Mapping[str, Mapping[str, Sequence[Any]]], family: str) -> list[Variant]:
    """Return all combinations of the values of a family's options; a single empty one if no option varies."""
    fields = load_family(family).Options.model_fields
    varied = {**vary.get(EVERY, {}), **vary.get(family, {})}
    own = {option: values for option, values in varied.items() if option in fields}
    return [Variant(dict(zip(own, values, strict=True))) for values in itertools.product(*own.values())]


def with_flags(error: OptionError, owner: str, flags: Mapping[str, str]) -> OptionError:
    """Return an error that names each option as on the command line: ``--set lda.alpha``, or ``--alpha``."""

    def spell(option: str) -> str:
        return f"{flags[option]} {owner}.{option.replace('_', '-')}" if option in flags else flag_of(option)

    return OptionError(error.spelled(spell))


def shown(value: object) -> str:
    """Return an option's value as text."""
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return " ".join(f"{owner}.{name}={one}" for owner, own in value.items() for name, one in own.items()) or "none"
    return "none" if value is None else str(value)[:40]
