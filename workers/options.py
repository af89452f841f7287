"""The validation of options wherever they are declared: what comes out of a record, and complaints in plain English."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import reprlib
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationInfo
from pydantic_core import ErrorDetails

from collapsium.storage.errors import OptionError

_Value = TypeVar("_Value")
_importing = threading.RLock()  # Held while the search path has the current folder

FORMER_FUNCTIONS = {"flatten": "explode"}  # Public functions, and commands, by the names that they had in 0.1
RECORDED = "recorded"  # Context of the validation of options from a record
_BOUNDS = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")

# Plain English for the phrases of pydantic
_PLAIN = {
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "a string",
    "a valid boolean": "true or false",
    "a valid tuple": "a list",
    "a valid dictionary( or instance of .*)?": "a table",
}


@dataclass(frozen=True)
class Accepts:
    """The type of the values that Python's functions accept, if it is wider than the field's."""

    kind: Any
    text: str | None = None  # The type as docstrings write it, if the words do not follow from `kind`


@dataclass(frozen=True)
class Formerly:
    """The name that an option had in 0.1, in the metadata of its field.

    Users who write it get a notice of the present name. Records and files of jobs may have it for ever.
    """

    name: str


class RenamedWarning(FutureWarning):
    """An option or a function was called by the name that it had in 0.1."""


def former_names(*models: type[BaseModel]) -> dict[str, str]:
    """Return the present names of options by those that they had in 0.1."""
    fields = ((name, mark) for model in models for name, field in model.model_fields.items() for mark in field.metadata)
    return {mark.name: name for name, mark in fields if isinstance(mark, Formerly)}


def present_names(
    values: Mapping[str, _Value], former: Mapping[str, str], notice: Callable[[str], None] | None = None
) -> dict[str, _Value]:
    """Return options by their present names; without `notice`, as in records, former ones are silent."""
    for name in values:
        present = former.get(name)
        if present is not None and present in values:
            raise OptionError(f"was also given by its former name, `{name}`; use one of the two", present)
        if present is not None and notice is not None:
            notice(renaming(name, present))
    return {former.get(name, name): value for name, value in values.items()}


def first_names(values: Mapping[str, _Value], *models: type[BaseModel]) -> dict[str, _Value]:
    """Return options by the names that they had in 0.1, by which digests and records identify them."""
    former = {present: name for name, present in former_names(*models).items()}
    return {former.get(name, name): value for name, value in values.items()}


def renaming(former: str, present: str) -> str:
    """Return the notice that a name has changed."""
    return f"`{former}` is now called `{present}`; the former name works until 0.3"


def warn_renamed(text: str) -> None:
    """Warn of a former name, with the line outside Collapsium that has it."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("collapsium."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, RenamedWarning, stacklevel=level)


def import_named(name: str) -> Any:
    """Import what the user names as ``module:attribute``; the module may lie in the current folder."""
    module, _, attribute = name.partition(":")
    with _importing:
        folder = os.getcwd()  # noqa: PTH109 - an entry of sys.path
        is_new = folder not in sys.path
        sys.path += [folder] * is_new
        try:
            return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
        finally:
            if is_new:
                sys.path.remove(folder)


def require_named(info: ValidationInfo) -> None:
    """Raise `ValueError` for the name of a file from a record.

    Only users name files of options. Records have the contents, and may be untrusted.
    """
    if info.context == RECORDED:
        raise ValueError("expected a table, as a record names no file")


def complaint(error: ErrorDetails) -> str:
    """Return a validation error in plain English, with the value: ``expected a whole number, found 'x'``."""
    if error["type"] == "value_error":
        # Collapsium's validators name the value where it helps; a table could fill a page.
        return str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "missing":
        return f"the key {str(error['loc'][-1])!r} is required"
    return f"expected {plain(error)}, found {reprlib.repr(error['input'])}"


def plain(error: ErrorDetails) -> str:
    """Return what a validation error expected, in plain English."""
    text = str(error["msg"]).removeprefix("Input should be ")
    for pattern, replacement in _PLAIN.items():
        text = re.sub(pattern, replacement, text)
    return f"a value {text}" if error["type"] in _BOUNDS else text
