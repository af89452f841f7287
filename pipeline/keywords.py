"""Keyword arguments of the public functions: unknown and missing ones are errors that name the nearest known one."""

from __future__ import annotations

import functools
import inspect
import os
import reprlib
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from collapsium.storage.errors import OptionError, suggestion

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def option_names(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the names by which a public function takes arguments, those of its ``**options`` included as declared.

    Parameters
    ----------
    function : callable
        Decorated with `checked_keywords`, or any other.

    Returns
    -------
    tuple of str
        In the order of the signature.
    """
    return tuple(
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    )


def checked_keywords(
    further: Iterable[inspect.Parameter] = (),
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Make a function raise `OptionError` for a keyword argument that it does not have, or that it lacks.

    A function that takes ``**options`` checks those itself, as they depend on others (on the family), unless `further`
    declares them.

    Parameters
    ----------
    further : iterable of inspect.Parameter, optional
        What the function takes as ``**options``; ``help`` and completion then show these instead.

    Returns
    -------
    callable
        The decorator.
    """

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        signature, declared = inspect.signature(function), tuple(further)
        own = list(signature.parameters.values())
        is_open = any(one.kind is one.VAR_KEYWORD for one in own)
        if declared:
            own = [one for one in own if one.kind is not one.VAR_KEYWORD] + list(declared)
            signature = signature.replace(parameters=own)
        known = [one.name for one in own]
        required = [one.name for one in own if one.kind is one.KEYWORD_ONLY and one.default is one.empty]

        @functools.wraps(function)
        def checked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            if declared or not is_open:
                unknown = next((name for name in kwargs if name not in known), None)
                if unknown is not None:
                    raise OptionError(f"{function.__name__}: unknown option {unknown!r}{suggestion(unknown, known)}")
            missing = next((name for name in required if name not in kwargs), None)
            if missing is not None:
                raise OptionError(f"{function.__name__}: the option {missing!r} is required")
            return function(*args, **kwargs)

        vars(checked)["__signature__"] = signature
        return checked

    return decorate


def parameters_of(names: Iterable[tuple[str, object]]) -> list[inspect.Parameter]:
    """Return keyword-only parameters by name and default."""
    return [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default) for name, default in names]


def names_of(value: Any, option: str = "names") -> tuple[str, ...]:
    """Return the names in an option that takes several.

    Parameters
    ----------
    value : str or sequence of str
        A list, or a string with commas between; numbers are written out, as columns of vectors may be numbers.
    option : str, optional
        What the option is called, for the error.

    Returns
    -------
    tuple of str
        The names.

    Raises
    ------
    OptionError
        It is something else.
    """
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return tuple(name.strip() for name in str(value).split(",") if name.strip())
    if isinstance(value, (list, tuple)) and all(isinstance(one, (str, int)) for one in value):
        return tuple(str(one) for one in value)
    raise OptionError(f"expected a list of strings, found {reprlib.repr(value)}", option)


def paths_of(value: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return the paths in an option that takes several: a list, or a single one, commas and all."""
    return tuple(os.fspath(one) for one in ((value,) if isinstance(value, (str, os.PathLike)) else value))


def require_kind(name: str, value: Any, kind: Any, where: str = "") -> None:
    """Refuse a value that is not of the type of an option.

    Parameters
    ----------
    name : str
        The option.
    value : object
        What it was given.
    kind : type
        Its annotation.
    where : str, optional
        What the error begins with, if not with the option alone.

    Raises
    ------
    OptionError
        The value is of another type.
    """
    import pydantic

    try:
        pydantic.TypeAdapter(kind).validate_python(value, strict=True)
    except pydantic.ValidationError as error:
        text = str(error.errors()[0]["msg"]).replace("Input should be", "expected")
        text = text.replace("a valid tuple", "a list of strings")
        text = f"{text}, found {reprlib.repr(value)}"
        raise (OptionError(f"{where}'{name}': {text}") if where else OptionError(text, name)) from None
