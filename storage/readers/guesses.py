"""Guesses of readers about their input, which are reported, recorded, and followed when later documents are read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from collapsium.storage.readers.read_options import ReadOptions

# Options for which later documents follow the guess about the first ones
FOLLOWED = ("separator", "label_separator", "header")

MISSING_VALUES = "missing values"  # Property of texts, such as NA, that are read as missing labels and numbers


@dataclass(frozen=True)
class Guess:
    """A property of the input that a reader has found out by itself."""

    what: str  # The property, such as ``separator``; side files say so, as in ``separator of side files``
    value: str  # What was found
    option: str = ""  # The option that overrides it, by its name in Python; empty if there is none


def distinct_guesses(*groups: Iterable[Guess]) -> tuple[Guess, ...]:
    """Return all guesses of several readers, each once, in the order in which they were made."""
    return tuple(dict.fromkeys(guess for group in groups for guess in group))


def with_guesses(options: ReadOptions, guesses: Iterable[Guess]) -> ReadOptions:
    """Return options in which a guess about earlier documents stands in place of an option that was not set.

    If files differ, such as tables with commas and with semicolons, the option stays unset.
    """
    values: dict[str, set[Any]] = {}
    for guess in guesses:
        if guess.what == guess.option and guess.option in FOLLOWED:
            values.setdefault(guess.option, set()).add(guess.value)
    return replace(
        options,
        **{
            name: distinct.pop()
            for name, distinct in values.items()
            if len(distinct) == 1 and getattr(options, name, None) is None
        },
    )
