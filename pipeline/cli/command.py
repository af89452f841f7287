"""A command: a function of positional arguments, with the models of options whose fields are its flags."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeVar, get_args, get_origin

from cyclopts import Group, Parameter, Token
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from collapsium.pipeline.options import (
    Commas,
    Options,
    choices_of,
    heading_of,
    kinds_of,
    names_of,
    spelled_flag,
    value_of,
)
from collapsium.storage.errors import flag_of

_Model = TypeVar("_Model", bound=Options)
# The name of a parameter or function in a message or description of the library
_MENTION = re.compile(r"`([a-z][a-z0-9_]*)`")
_FAMILY = "family_"  # Prefix of the parameters of a family's options, as a command may have options of the same names
# Functions of the library with a command of the same name; messages may mention them
FUNCTIONS = (
    "append",
    "batch",
    "compare",
    "estimate",
    "evaluate",
    "fit",
    "flatten",
    "infer",
    "ingest",
    "predict",
    "split",
)
# Headings of the positional arguments, and of the options without a heading of their own
ARGUMENTS, OPTIONS = "arguments", "options"


class UsageError(Exception):
    """A command line is not valid."""

    def __init__(self, message: str, command: str = "") -> None:
        self.message, self.command = message, command
        super().__init__(message)


@dataclass(frozen=True)
class Flags:
    """The options of a command line."""

    values: Mapping[str, Any]  # Options of the command by name, without those that the command line leaves out
    family: Mapping[str, str]  # Options of the family by name, with their values as text
    words: tuple[str, ...] = ()  # The complete command line

    @property
    def json(self) -> bool:
        """True if the result is printed as JSON."""
        return bool(self.values.get("as_json"))

    def named(self, *models: type[Options]) -> dict[str, Any]:
        """Return the options of some models that the command line names."""
        names = [name for model in models for name in model.model_fields]
        return {name: self.values[name] for name in names if name in self.values}

    def of(self, model: type[_Model]) -> _Model:
        """Return the options of a model, validated; those that are not named have their defaults."""
        return model(**self.named(model))


@dataclass(frozen=True)
class Call:
    """A command with its arguments and flags."""

    run: Callable[..., int | None]  # The command
    arguments: tuple[object, ...] = ()  # Its positional arguments; None for each optional one that is left out
    flags: Flags = field(default_factory=lambda: Flags({}, {}))  # Its options

    def __call__(self) -> int | None:
        """Run the command and return its exit code."""
        return self.run(*self.arguments, flags=self.flags)


class FamilySource(Protocol):
    """Looks up the family that a command line names."""

    def config(self, words: Sequence[str]) -> tuple[str, type[BaseModel]]:
        """Return the heading and the options of the family."""

    def unknown(self, words: Sequence[str], flag: str) -> tuple[str, str]:
        """Return an error about the family's name and a hint for an unknown option; empty strings if there is none."""


class Flag(NamedTuple):
    """A parameter of the function that cyclopts calls, with its heading in help."""

    name: str
    kind: Any
    heading: str
    parameter: Parameter
    required: bool = False


@dataclass(frozen=True)
class Command:
    """A command."""

    # A function of the positional arguments and of `Flags`. It returns the exit code, None for 0.
    run: Callable[..., int | None]
    options: tuple[type[Options], ...] = ()  # The models whose fields are its flags
    epilog: str | Callable[[], str] = ""  # The end of its help, or a function that returns it
    family: FamilySource | None = None  # Looks up the family that the command line names, whose options are flags too

    @property
    def description(self) -> str:
        """The purpose of the command, which is the docstring of its module."""
        return sys.modules[self.run.__module__].__doc__ or ""

    @property
    def arguments(self) -> list[inspect.Parameter]:
        """Its positional arguments."""
        parameters = inspect.signature(self.run, eval_str=True).parameters.values()
        return [one for one in parameters if one.kind is one.POSITIONAL_ONLY]

    @property
    def fields(self) -> dict[str, FieldInfo]:
        """Its options by name."""
        return {name: one for model in self.options for name, one in model.model_fields.items()}

    @property
    def usage(self) -> str:
        """The usage line, without the command's name."""
        return " ".join(["[OPTIONS]", *self._required(), *map(label_of, self.arguments)])

    def missing_from(self, name: str) -> str:
        """Return the required arguments from a missing one on, and the required options."""
        labels = {one.name: label_of(one).partition(" ")[0] for one in self.arguments if one.default is one.empty}
        names = list(labels)
        positional = [labels[one] for one in names[names.index(name) :]] if name in labels else []
        return ", ".join([*positional, *(flag.partition(" ")[0] for flag in self._required())])

    def _required(self) -> list[str]:
        return [
            f"{flag_of(name)} {value_of(one).metavar or '|'.join(_choices(_kind(one)))}"
            for name, one in self.fields.items()
            if one.is_required()
        ]

    def bound(
        self, words: Sequence[str] = (), heading: str = "", config: type[BaseModel] | None = None
    ) -> Callable[..., Call]:
        """Return a function for cyclopts, whose parameters are the arguments and flags."""
        flags = [flag for model in self.options for flag in _flags(model)]
        flags += [] if config is None else _family_flags(heading, config)

        def call(*arguments: object, **values: Any) -> Call:
            own = {name: value for name, value in values.items() if not name.startswith(_FAMILY)}
            family = {name.removeprefix(_FAMILY): text for name, text in values.items() if name not in own}
            left_out = [None] * (len(self.arguments) - len(arguments))
            return Call(self.run, (*arguments, *left_out), Flags(own, family, tuple(words)))

        order = dict.fromkeys([ARGUMENTS, OPTIONS, heading, *(flag.heading for flag in flags)])
        groups = {name: Group(name, sort_key=position) for position, name in enumerate(order) if name}
        parameters = [*(_positional(one, groups[ARGUMENTS]) for one in self.arguments), *_parameters(flags, groups)]
        vars(call)["__signature__"] = inspect.Signature(parameters)
        call.__annotations__ = {one.name: one.annotation for one in parameters}
        return call


def argument(metavar: str, text: str) -> Parameter:
    """Describe a positional argument."""
    return Parameter(metavar=metavar, help=text)


def described(argument: inspect.Parameter) -> tuple[Any, Parameter]:
    """Return a positional argument's type and its description."""
    kind, *notes = get_args(argument.annotation)
    return kind, next(one for one in notes if isinstance(one, Parameter))


def label_of(argument: inspect.Parameter) -> str:
    """Return the placeholder of a positional argument in the usage line."""
    kind, parameter = described(argument)
    text = f"{parameter.metavar} ..." if get_origin(kind) is list else str(parameter.metavar)
    return text if argument.default is argument.empty else f"[{text}]"


def _positional(argument: inspect.Parameter, group: Group) -> inspect.Parameter:
    kind, parameter = described(argument)
    return argument.replace(annotation=Annotated[kind, parameter, Parameter(group=group)])


def _parameters(flags: Iterable[Flag], groups: Mapping[str, Group]) -> Iterator[inspect.Parameter]:
    """Return keyword parameters; cyclopts passes on only those that the command line names."""
    for flag in flags:
        note = Parameter.combine(flag.parameter, Parameter(group=groups[flag.heading]))
        if flag.required:
            default, annotation = inspect.Parameter.empty, Annotated[flag.kind, note]
        else:
            default, annotation = None, Annotated[flag.kind | None, note]
        yield inspect.Parameter(flag.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _flags(model: type[Options]) -> Iterator[Flag]:
    """Return the flags of a model's options."""
    for name, one in model.model_fields.items():
        kind = _kind(one)
        metavar = value_of(one).metavar or "|".join(_choices(kind)) or None
        parameter = Parameter(
            name=spelled_flag(name, one), help=help_of(one), metavar=metavar, converter=_converter(kind, one)
        )
        yield Flag(name, kind, heading_of(model, name) or OPTIONS, parameter, one.is_required())


def _family_flags(heading: str, config: type[BaseModel]) -> Iterator[Flag]:
    """Return the flags of a family's options, whose values are TOML."""
    for name, one in config.model_fields.items():
        parameter = Parameter(name=flag_of(name), help=help_of(one), metavar=_metavar(one.annotation))
        yield Flag(_FAMILY + name, str, heading, parameter)


def _metavar(annotation: Any) -> str:
    kinds = kinds_of(annotation)
    if get_origin(kinds[0]) is Literal:
        return "|".join(map(str, get_args(kinds[0])))
    return next((name for kind, name in ((bool, "true|false"), (int, "N"), (float, "X")) if kind in kinds), "VALUE")


def spelling(name: str) -> str:
    """Return the flag of a parameter, or the command of a function."""
    if name == "resume":
        return "`collapsium fit --resume`"
    return f"`collapsium {name}`" if name in FUNCTIONS else flag_of(name)


def in_flags(text: str) -> str:
    """Return a text of the library with flags in place of parameters."""
    return _MENTION.sub(lambda mention: spelling(mention[1]), text)


def help_of(field: FieldInfo) -> str:
    """Return the help of an option: its description, with flags for parameters, and its default."""
    text = in_flags(field.description or "")
    if field.is_required():
        return f"{text} (required)"
    default = field.default
    if default is None or default is False or default in ((), {}) or "(default" in text:
        return text
    return f"{text} (default: {_default_text(field)})"


def _default_text(field: FieldInfo) -> str:
    default = field.default
    if isinstance(default, tuple) and value_of(field).text:
        return ",".join(map(str, default))
    if isinstance(default, tuple | bool):
        return json.dumps(default)
    return f"{default:g}" if isinstance(default, float) else str(default)


def _kind(field: FieldInfo) -> Any:
    """Return the type that cyclopts reads a flag as; the model converts the result."""
    kinds = kinds_of(field.annotation)
    several = next((kind for kind in kinds if get_origin(kind) is tuple), None)
    choice = next((kind for kind in kinds if get_origin(kind) is Literal), None)
    if value_of(field).text or str in kinds:
        return str
    if choice is not None and float in kinds:
        return float | str
    if several is not None or any(get_origin(kind) is dict for kind in kinds):
        return list[str]
    return kinds[0] if choice is None else choice


def _choices(kind: Any) -> tuple[str, ...]:
    return tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else ()


def _converter(kind: Any, field: FieldInfo) -> Callable[[Any, Sequence[Token]], Any] | None:
    """Return a converter for a flag that cyclopts would read otherwise than intended, else None."""
    if kind in (int, float):
        return lambda _, tokens: kind(tokens[-1].value)
    if kind == float | str:
        return lambda _, tokens: _number_or_choice(tokens[-1].value, choices_of(field))
    if any(isinstance(one, Commas) for one in field.metadata):
        return lambda _, tokens: [name for token in tokens for name in names_of(token.value)]
    return None


def _number_or_choice(text: str, choices: Sequence[str]) -> float | str:
    return text if text in choices else float(text)
