"""Typed states: named arrays of a model, of a block of the vocabulary, or of a shard's documents.

A state is a frozen dataclass. Its fields are arrays, single numbers, or states themselves, whose arrays then lie beside
its own. In checkpoints, models and spill files it is a bag of named arrays (`State.to_arrays`), each named as its
field.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
NUMBERS: dict[Any, Any] = {bool: np.bool_, int: np.int64, float: np.float64}
BLOCK_ONLY = "block_only"


def block_only() -> Any:
    """Declare an array of a block's rows that sweeps do not see; where rows are gathered for a sweep it is None."""
    return dataclasses.field(default=None, metadata={BLOCK_ONLY: True})


@dataclass(frozen=True)
class _FieldType:
    """How a field is made of arrays: a number's type, a state's class, or None for an array."""

    name: str
    number: Any
    state: Any
    optional: bool
    metadata: Mapping[str, bool]


class State:
    """Base of all states; subclasses are frozen dataclasses."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def to_arrays(self) -> dict[str, Array]:
        """Return the arrays by name; what is None is left out, a single number is an array without dimensions."""
        arrays: dict[str, Array] = {}
        for field in _field_types(type(self)):
            value = getattr(self, field.name)
            if value is None:
                continue
            if field.state is not None:
                arrays.update(value.to_arrays())
            else:
                arrays[field.name] = value if field.number is None else np.array(value, dtype=NUMBERS[field.number])
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        """Return the state that named arrays hold.

        Parameters
        ----------
        arrays : mapping of str to numpy.ndarray
            The arrays, which were checked where they come from outside. Others than those of the fields are ignored.

        Returns
        -------
        State
            The state; it shares the arrays.

        Raises
        ------
        KeyError
            An array is missing that the state cannot be without.
        """
        values: dict[str, Any] = {}
        for field in _field_types(cls):
            if field.state is not None:
                if not field.optional or field.state.is_in(arrays):
                    values[field.name] = field.state.from_arrays(arrays)
            elif field.name in arrays:
                value = arrays[field.name]
                values[field.name] = value if field.number is None else field.number(value)
            elif not field.optional:
                raise KeyError(field.name)
        return cls(**values)

    @classmethod
    def is_in(cls, arrays: Mapping[str, Any]) -> bool:
        """Return whether named arrays hold all that the state cannot be without."""
        return all(
            field.state.is_in(arrays) if field.state is not None else field.name in arrays
            for field in _field_types(cls)
            if not field.optional
        )

    @classmethod
    def array_names(cls) -> frozenset[str]:
        """Return the names of all arrays that the state may have."""
        return frozenset().union(
            *(field.state.array_names() if field.state is not None else {field.name} for field in _field_types(cls))
        )

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return sum(int(values.nbytes) for values in self.to_arrays().values())

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays."""
        return self.nbytes


@dataclass(frozen=True)
class GlobalState(State):
    """What every shard needs of a model and has no row a word, such as hyperparameters and totals of topics."""


@dataclass(frozen=True)
class Rows(State):
    """What a model holds of each word of a run of the vocabulary, or of the words of a shard.

    Every array has a row for each word. Fields declared by `block_only` stay with the blocks.
    """

    def of_words(self, chosen: Any, *, complete: bool) -> Self:
        """Return the rows of some words.

        Parameters
        ----------
        chosen : slice or numpy.ndarray of int
            Places of the words.
        complete : bool
            Whether to take also what sweeps do not see.

        Returns
        -------
        Rows
            Their rows.
        """
        names = [field.name for field in _field_types(type(self)) if complete or BLOCK_ONLY not in field.metadata]
        values = {name: getattr(self, name) for name in names}
        return type(self)(**{name: None if value is None else value[chosen] for name, value in values.items()})

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of several runs of words, one after another; numbers have the types of the first."""
        values: dict[str, Any] = {}
        for field in _field_types(cls):
            pieces = [getattr(part, field.name) for part in parts]
            values[field.name] = (
                None if pieces[0] is None else np.concatenate(pieces, dtype=pieces[0].dtype, casting="unsafe")
            )
        return cls(**values)

    def counted(self) -> Self:
        """Return the rows by which held-out tokens are scored, where sweeps see others."""
        return self


@dataclass(frozen=True)
class LocalState(State):
    """What a shard keeps of its documents between sweeps."""


_fields_of: dict[Any, tuple[_FieldType, ...]] = {}  # looked up again and again


def _field_types(cls: Any) -> tuple[_FieldType, ...]:
    """Return how each field of a state is made of arrays."""
    if cls in _fields_of:
        return _fields_of[cls]
    hints = get_type_hints(cls)
    found = []
    for field in dataclasses.fields(cls):
        hint, optional = hints[field.name], field.default is not dataclasses.MISSING
        if get_origin(hint) in (Union, types.UnionType):
            (hint,) = [one for one in get_args(hint) if one is not type(None)]
            optional = True
        state = hint if isinstance(hint, type) and issubclass(hint, State) else None
        number = hint if hint in NUMBERS else None
        found.append(_FieldType(field.name, number, state, optional, field.metadata))
    _fields_of[cls] = tuple(found)
    return _fields_of[cls]
