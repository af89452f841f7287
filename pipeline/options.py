"""Options, declared once as fields of models, for keywords of functions, flags of commands and keys of TOML files.

A field has a name, a type, a default, limits, a way of writing its value, and a description. `keywords` gives a
function the fields of models as keyword arguments; `collapsium.pipeline.cli.main` makes flags of them.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import operator
import os
import reprlib
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

import annotated_types
import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from collapsium.storage.data_types import is_annotated
from collapsium.storage.errors import OptionError, flag_of, near, suggestion
from collapsium.storage.io.encodings import parse_toml
from collapsium.workers.options import Accepts, complaint, former_names, plain, present_names, warn_renamed

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Value:
    """Notation of an option's value."""

    # Placeholder in help, such as ``N``; by default the choices, if the value is one of several
    metavar: str | None = None
    unit: str | None = None  # Unit, such as ``seconds``
    # Expected value in messages, such as ``a share in [0, 1)``; by default derived from the type and the limits
    expected: str | None = None
    text: bool = False  # Whether the command line passes the text to the model unchanged
    flag: str | None = None  # Flag, if it differs from the name
    heading: str | None = None  # Heading in help, if it differs from the model's
    # Remark about the flag, such as ``may be repeated``, that follows the description on the command line only
    note: str | None = None


class Options(BaseModel):
    """A group of options; a function with several groups takes several models."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    heading: ClassVar[str] = ""  # Heading of the group in help; by default the heading of the command's options
    gone: ClassVar[Mapping[str, str]] = {}  # Options of earlier versions, with what to use instead

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**{name: python_value(value) for name, value in values.items()})
        except pydantic.ValidationError as error:
            raise option_error(error, type(self)) from None


class OverwriteOptions(Options):
    """Replacement of results."""

    overwrite: bool = pydantic.Field(
        False,
        description="replace an existing output; if this fails, the old output is kept, possibly renamed to "
        "NAME.replaced",
    )


def python_value(value: Any) -> Any:
    """Return an option's value with Python's numbers in place of NumPy's, and lists in place of its arrays."""
    kind = type(value)
    if kind in (str, int, float, bool):
        return value
    if kind in (list, tuple):
        return kind(python_value(item) for item in value)
    if kind is dict:
        return {python_value(key): python_value(item) for key, item in value.items()}
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    return python_number(value)


def python_number(value: Any) -> Any:
    """Return a number of any library as an int or a float, and any other value unchanged."""
    if isinstance(value, (bool, float)) and type(value) in (bool, float):
        return value
    if isinstance(value, numbers.Integral):
        return operator.index(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return bool(value) if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_") else value


def without_none(options: Options) -> dict[str, Any]:
    """Return the options that are not None."""
    return {name: value for name, value in options if value is not None}


def value_of(field: FieldInfo) -> Value:
    """Return the notation of a field's value."""
    return next((entry for entry in field.metadata if isinstance(entry, Value)), Value())


def spelled_flag(name: str, field: FieldInfo) -> str:
    """Return the flag of an option."""
    return value_of(field).flag or flag_of(name)


def flag_description(field: FieldInfo) -> str:
    """Return the description of an option for the command line, with the remark about its flag."""
    text, note = field.description or "", value_of(field).note
    return text if note is None else f"{text}; {note}"


def kinds_of(annotation: Any) -> tuple[Any, ...]:
    """Return the types of a field without None: a single one, or the types of a union."""
    if get_origin(annotation) in (Literal, dict, tuple) or not get_args(annotation):
        return (annotation,)
    if get_origin(annotation) is Annotated:
        return kinds_of(get_args(annotation)[0])
    return tuple(kind for argument in get_args(annotation) for kind in kinds_of(argument) if kind is not type(None))


def marks_of(annotation: Any) -> Iterator[Any]:
    """Yield the marks of an annotation, and of each type of a union."""
    if get_origin(annotation) is Annotated:
        yield from get_args(annotation)[1:]
        yield from marks_of(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for kind in get_args(annotation):
            yield from marks_of(kind)


def python_type(annotation: Any, metadata: Iterable[Any] = ()) -> Any:
    """Return the type of the values that a function accepts for an option, without the marks of its field."""
    accepted = next((mark.kind for mark in metadata if isinstance(mark, Accepts)), None)
    if accepted is not None:
        return accepted
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return python_type(inner[0], inner[1:])
    if origin in (Union, UnionType):
        return functools.reduce(operator.or_, (python_type(kind) for kind in inner))
    if origin is tuple and inner[-1] is ...:
        return Sequence[python_type(inner[0])]  # type: ignore[misc]
    if origin is dict:
        return Mapping[python_type(inner[0]), python_type(inner[1])]  # type: ignore[misc]
    return annotation


def choices_of(field: FieldInfo) -> tuple[str, ...]:
    """Return the possible values of a field; empty if they are not enumerated."""
    for kind in kinds_of(field.annotation):
        inner = get_args(kind)[0] if get_origin(kind) is tuple else kind
        if get_origin(inner) is Literal:
            return tuple(str(choice) for choice in get_args(inner))
    return ()


def heading_of(model: type[Options], name: str) -> str:
    """Return the heading of an option: the one it declares, or the heading of its model."""
    heading = value_of(model.model_fields[name]).heading
    if heading is not None:
        return heading
    owner = next(base for base in model.__mro__ if name in vars(base).get("__annotations__", {}))
    return owner.heading if issubclass(owner, Options) else ""


def limits_of(field: FieldInfo) -> dict[str, float]:
    """Return the limits of a number: ``ge``, ``gt``, ``le`` and ``lt``."""
    kinds = {"ge": annotated_types.Ge, "gt": annotated_types.Gt, "le": annotated_types.Le, "lt": annotated_types.Lt}
    return {
        name: getattr(entry, name)
        for entry in field.metadata
        for name, kind in kinds.items()
        if isinstance(entry, kind)
    }


def option_error(error: pydantic.ValidationError, model: type[BaseModel]) -> OptionError:
    """Return the first validation error as an `OptionError` that names the option."""
    return error_of(error.errors()[0], model)


def error_of(first: ErrorDetails, model: type[BaseModel]) -> OptionError:
    """Return one of a model's validation errors as an `OptionError` that names the option."""
    cause = first.get("ctx", {}).get("error")
    name = str(first["loc"][0]) if first["loc"] else None
    if isinstance(cause, OptionError):
        return cause if cause.subject or name is None else OptionError(cause.message, name)
    if name is None or name not in model.model_fields:
        return OptionError(str(first["msg"]).removeprefix("Value error, "), name)
    field, value = model.model_fields[name], first["input"]
    if first["type"] == "missing" and len(first["loc"]) == 1:
        return OptionError(f"`{name}` is required: {field.description}")
    hint = near(value, choices_of(field)) if first["type"] == "literal_error" and isinstance(value, str) else ""
    if any(get_origin(kind) is dict for kind in kinds_of(field.annotation)) and len(first["loc"]) > 1:
        # A key of a wrong type is followed by a mark, and a missing one is named in the complaint.
        path = [key for key in first["loc"][1 : -1 if first["type"] == "missing" else None] if key != "[key]"]
        keys = "".join(f"'{key}': " for key in path)
        return OptionError(f"{keys}{complaint(first)}", name)
    if first["type"] == "value_error" and value_of(field).expected is None:
        return OptionError(complaint(first), name)
    kind, limits, expected = first["type"], limits_of(field), value_of(field).expected
    is_integer = int in kinds_of(field.annotation) and "ge" in limits
    if expected is None and kind == "literal_error":
        choices = choices_of(field)
        expected = (" or " if len(choices) == 2 else ", ").join(choices)
    elif expected is None and is_integer and kind == "less_than_equal":
        expected = f"a whole number of {limits['le']:,} or less"
    elif expected is None and is_integer and kind == "less_than":
        expected = f"a whole number less than {limits['lt']:,}"
    elif expected is None and is_integer:
        expected = f"a whole number of {limits['ge']} or more"
    elif (
        expected is None
        and kind == "greater_than_equal"
        and type(value) is int
        and float not in kinds_of(field.annotation)
    ):
        expected = f"a whole number of {first['ctx']['ge']} or more"
    return OptionError(f"expected {expected or plain(first)}, found {reprlib.repr(value)}{hint}", name)


def keywords(**models: type[Options]) -> Callable[[Callable[_Arguments, _Result]], Callable[..., _Result]]:
    """Return a decorator that gives a function the options of models as keyword arguments.

    An unknown or missing keyword is an `OptionError`. If the function also takes ``**options``, it validates those
    itself, also earlier versions' options, as they depend on others (on the family, or on texts).
    """

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[..., _Result]:
        written = [
            parameter for parameter in inspect.signature(function).parameters.values() if parameter.name not in models
        ]
        parameters = [*written]
        for model in models.values():
            for name, field in model.model_fields.items():
                default = inspect.Parameter.empty if field.is_required() else field.default
                kind = python_type(field.annotation, field.metadata)
                keyword = inspect.Parameter.KEYWORD_ONLY
                parameters.append(inspect.Parameter(name, keyword, default=default, annotation=kind))
        known = {parameter.name: parameter for parameter in sorted(parameters, key=lambda parameter: parameter.kind)}
        is_open = any(parameter.kind is parameter.VAR_KEYWORD for parameter in written)
        # Documents and callables, besides numbers, are no options.
        plain = {parameter.name for parameter in written}
        required = [
            parameter.name
            for parameter in known.values()
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
        ]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> _Result:
            kwargs = present_names(kwargs, former_names(*models.values()), warn_renamed)
            unknown = next((name for name in kwargs if name not in known), None)
            for model in models.values():
                if unknown is not None and unknown in model.gone and not is_open:
                    raise OptionError(f"is no longer an option: {model.gone[unknown]}", unknown)
            if unknown is not None and not is_open:
                raise OptionError(f"{function.__name__}: unknown option {unknown!r}{suggestion(unknown, known)}")
            missing = next((name for name in required if name not in kwargs), None)
            if missing is not None:
                raise OptionError(f"{function.__name__}: the option {missing!r} is required")
            args = tuple(python_number(value) for value in args)
            kwargs = {name: (python_number if name in plain else python_value)(kwargs[name]) for name in kwargs}
            for name, model in models.items():
                kwargs[name] = model(**{name: kwargs.pop(name) for name in model.model_fields if name in kwargs})
            return function(*args, **kwargs)

        vars(call)["__signature__"] = inspect.Signature(list(known.values()))
        vars(call)["option_models"] = tuple(models.values())  # For the types that editors and mypy read
        call.__doc__ = _described(function.__doc__, models)
        return call

    return decorate


def _described(text: str | None, models: dict[str, type[Options]]) -> str | None:
    """Return a docstring with the options of models in place of the parameters that receive them."""
    lines = inspect.cleandoc(text or "").split("\n")
    for parameter, model in models.items():
        entries = []
        for name, field in model.model_fields.items():
            kind = _accepted_text(field.annotation, field.metadata)
            entries += _entry(name, f"{kind}{'' if field.is_required() else ', optional'}", field.description or "")
        start = next((number for number, line in enumerate(lines) if line.startswith(f"{parameter} : ")), None)
        if start is None:
            lines = _with_entries(lines, entries)
        else:
            end = next((n for n in range(start + 1, len(lines)) if not lines[n].startswith(" ")), len(lines))
            lines[start:end] = entries
    return "\n".join(lines) if text else text


def _entry(name: str, kind: str, description: str) -> list[str]:
    """Return the lines of a parameter in a numpydoc docstring."""
    body = textwrap.wrap(description, 110, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return [f"{name} : {kind}", *body]


def _with_entries(lines: list[str], entries: list[str]) -> list[str]:
    """Return the lines of a docstring with further entries at the end of its parameters, if it has a section after."""
    end = next((n for n, line in enumerate(lines) if line in ("Returns", "Raises", "Examples")), None)
    if end is None:
        return lines
    end = next((n for n, line in enumerate(lines) if line.startswith("**")), end - 1)
    return [*lines[:end], *entries, *lines[end:]]


def describe_parameter(function: Callable[..., object], name: str, kind: object, description: str) -> None:
    """Add an optional parameter to the docstring of a function."""
    entry = _entry(name, f"{_kind_text(kind)}, optional", description)
    function.__doc__ = "\n".join(_with_entries(inspect.cleandoc(function.__doc__ or "").split("\n"), entry))


def _accepted_text(annotation: Any, metadata: Iterable[Any]) -> str:
    """Return the type of the values that a function accepts for an option, as numpydoc docstrings write it."""
    marks = (mark for mark in (*metadata, *marks_of(annotation)) if isinstance(mark, Accepts))
    written = next((mark.text for mark in marks if mark.text is not None), None)
    return _kind_text(python_type(annotation, metadata)) if written is None else written


def _kind_text(kind: Any) -> str:
    """Return a type as numpydoc docstrings write it: a choice with its values, a union without None."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        choices = (f'"{choice}"' if isinstance(choice, str) else str(choice) for choice in inner)
        return f"{{{', '.join(choices)}}}"
    if origin in (Union, UnionType):
        *first, last = dict.fromkeys(_kind_text(part) for part in inner if part is not type(None))
        return f"{', '.join(first)} or {last}" if first else last
    if origin is Sequence:
        return f"sequence of {_kind_text(inner[0])}"
    if origin is Mapping:
        return "mapping" if inner[1] is Any else f"mapping of {_kind_text(inner[0])} to {_kind_text(inner[1])}"
    if origin is tuple:
        return f"({', '.join(map(_kind_text, inner))})"
    names = {Sequence: "sequence", Mapping: "mapping", os.PathLike: "path-like"}
    return names.get(origin or kind) or str(getattr(kind, "__name__", kind))


def with_parameter(
    function: Callable[..., _Result], name: str, kind: Any, default: object, description: str
) -> Callable[..., _Result]:
    """Add a keyword that a decorator handles to the signature and the docstring of a function."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    place = next(
        (n for n, parameter in enumerate(parameters) if parameter.kind is parameter.VAR_KEYWORD), len(parameters)
    )
    added = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
    vars(function)["__signature__"] = signature.replace(parameters=[*parameters[:place], added, *parameters[place:]])
    describe_parameter(function, name, kind, description)
    return function


def option_names(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the names of the arguments of a public function, options included."""
    return tuple(
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    )


def names_of(value: object, option: str = "names") -> tuple[str, ...]:
    """Return the names of an option with several names."""
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return tuple(name.strip() for name in str(value).split(",") if name.strip())
    if isinstance(value, (list, tuple)) and all(isinstance(item, (str, int)) for item in value):
        return tuple(str(item) for item in value)
    raise OptionError(f"expected a list of strings, found {reprlib.repr(value)}", option)


def paths_of(value: object) -> tuple[str, ...]:
    """Return the paths of an option with several paths: a list, or a single one, which may contain commas.

    AnnData objects in place of paths are returned as they are.
    """
    paths: object = (value,) if isinstance(value, (str, os.PathLike)) or is_annotated(value) else value
    # The items of mappings and frames are their names.
    has_items = isinstance(paths, Iterable) and not isinstance(paths, Mapping) and not hasattr(paths, "columns")
    items: list[Any] = list(paths) if has_items else [paths]  # type: ignore[call-overload]
    for item in items:
        if not isinstance(item, (str, os.PathLike)) and not is_annotated(item):
            raise OptionError(f"expected paths, found {type(item if has_items else value).__name__}")
    return tuple(path if is_annotated(path) else os.fspath(path) for path in items)


def path_text(value: object) -> object:
    """Return a path as text; any other value is left to the type's validation."""
    return os.fspath(value) if isinstance(value, os.PathLike) else value


@dataclass(frozen=True)
class Commas:
    """Marks an option whose flag takes several values, separated by commas."""


Path = str | os.PathLike[str]
Location = Annotated[str, BeforeValidator(path_text), Accepts(Path)]  # A path or URL
# Paths, or a single path; the flag may be repeated
Locations = Annotated[tuple[str, ...], BeforeValidator(paths_of), Accepts(Path | Sequence[Path])]
# Names, or a string with commas; the flag may be repeated
Names = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value, info: names_of(value, info.field_name or "names")),
    Commas(),
    Accepts(str | Sequence[str]),
]
# Texts, unchanged; the flag may be repeated
Texts = Annotated[tuple[str, ...], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)]


def parse_setting(text: str) -> tuple[str, Any]:
    """Parse ``name=VALUE``, where the value is TOML or else a string.

    Returns name: The name, with ``_`` for ``-``; value: The value
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise OptionError(f"expected name=VALUE, found {text!r}", "set")
    try:
        parsed = parse_toml(f"value = {value}")["value"]
    except ValueError:
        parsed = value
    return name.strip().replace("-", "_"), parsed


Measure = Literal["probability", "frex", "lift", "relevance"]  # A measure that orders a topic's words


class RankOptions(Options):
    """Measure that orders a topic's words."""

    rank_by: Measure = Field(
        "probability",
        description="order a topic's words by probability; by frex, which prefers words that are both frequent in the "
        "topic and exclusive to it; by lift, the probability divided by the word's share of the corpus; or by "
        "relevance, between probability and lift",
    )
    rank_weight: Annotated[float | None, Value("X", expected="a weight from 0 to 1")] = Field(
        None,
        ge=0,
        le=1,
        description="weight of exclusivity in frex (default: 0.5), or of probability in relevance (default: 0.6)",
    )

    @model_validator(mode="after")
    def _only_weighted_measures(self) -> RankOptions:
        if self.rank_weight is not None and self.rank_by not in ("frex", "relevance"):
            raise OptionError(f"applies to `rank_by` frex and relevance, found {self.rank_by}", "rank_weight")
        return self
