"""Typed states: named arrays of a model, of a block of the vocabulary, or of a shard's documents.

A state is a frozen dataclass. Its fields are arrays, single numbers, or states themselves, whose arrays then join its
own. Checkpoints, models and spill files hold its arrays by name (`State.to_arrays`), each named as its field.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import AnyArray

Array: TypeAlias = AnyArray  # An array of numbers whose type is known elsewhere, such as by an `ArrayField`

Arrays: TypeAlias = Mapping[str, Array]
NUMBERS: dict[type, type[np.generic]] = {bool: np.bool_, int: np.int64, float: np.float64}
BLOCK_ONLY = "block_only"


def block_only() -> Any:
    """Declare an array of a block's rows that sweeps do not see: it is None where rows are gathered for a sweep."""
    return dataclasses.field(default=None, metadata={BLOCK_ONLY: True})


@dataclass(frozen=True)
class _FieldType:
    """Type of a state's field: the type of a single number, the class of a nested state, or neither for an array."""

    name: str
    number: type[bool] | type[int] | type[float] | None
    state: type[State] | None
    optional: bool
    metadata: Mapping[str, bool]


class State:
    """Base of all states; subclasses are frozen dataclasses."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[object]]]

    def to_arrays(self) -> dict[str, Array]:
        """Return the arrays by name; without those that are None; a single number has no dimensions."""
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
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Return the state that named arrays hold."""
        values: dict[str, object] = {}
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
    def is_in(cls, arrays: Arrays) -> bool:
        """Return whether named arrays hold all required fields."""
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
    """Base of global states: the part of a model that every shard needs, such as hyperparameters and topic totals.

    The other arrays of a model have a row for each word (`Rows`), or an entry for each document (`LocalState`).
    """


@dataclass(frozen=True)
class Rows(State):
    """Base of rows: arrays with a row for each word, of a block of the vocabulary or of the words of a shard.

    Fields declared by `block_only` stay with the blocks.
    """

    def of_words(self, index: slice | npt.NDArray[np.integer], *, complete: bool) -> Self:
        """Return the rows of some words.

        Parameters
        ----------
        index : slice or numpy.ndarray of int
            Rows of the words.
        complete : bool
            Whether to include the fields declared by `block_only`.

        Returns
        -------
        Rows
            Their rows.
        """
        names = [field.name for field in _field_types(type(self)) if complete or BLOCK_ONLY not in field.metadata]
        values = {name: getattr(self, name) for name in names}
        return type(self)(**{name: None if value is None else value[index] for name, value in values.items()})

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of consecutive runs of words; arrays have the number types of the first run."""
        values: dict[str, Array | None] = {}
        for field in _field_types(cls):
            pieces = [getattr(part, field.name) for part in parts]
            values[field.name] = (
                None if pieces[0] is None else np.concatenate(pieces, dtype=pieces[0].dtype, casting="unsafe")
            )
        return cls(**values)

    def counted(self) -> Self:
        """Return the rows that score held-out tokens; families in which sweeps see other rows override this."""
        return self


@dataclass(frozen=True)
class LocalState(State):
    """Base of local states: arrays of a shard's documents that stay with the shard between sweeps."""


_cached_field_types: dict[type[State], tuple[_FieldType, ...]] = {}


def _field_types(cls: type[State]) -> tuple[_FieldType, ...]:
    """Return the types of a state's fields; cached, as every conversion needs them."""
    if cls in _cached_field_types:
        return _cached_field_types[cls]
    hints = get_type_hints(cls)
    field_types = []
    for field in dataclasses.fields(cls):
        hint, optional = hints[field.name], field.default is not dataclasses.MISSING
        if get_origin(hint) in (Union, types.UnionType):
            (hint,) = [member for member in get_args(hint) if member is not type(None)]
            optional = True
        state = hint if isinstance(hint, type) and issubclass(hint, State) else None
        number = hint if hint in NUMBERS else None
        field_types.append(_FieldType(field.name, number, state, optional, field.metadata))
    return _cached_field_types.setdefault(cls, tuple(field_types))
