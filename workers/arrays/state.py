"""Typed states: named arrays of a model, of a block of the vocabulary, or of a shard's documents.

A state is a frozen dataclass. Its fields are arrays, single numbers, or states themselves, whose arrays then join its
own. Checkpoints, models and spill files hold its arrays by name (`State.to_arrays`), each named as its field or, for a
renamed field, as `SavedAs` says.

A field is the one declaration of its array (`annotations`): `State.checked` checks arrays from disk against the fields,
and against the conditions on several arrays in `State.faults`. An array may be missing where its type allows None.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import numpy.typing as npt

from collapsium.storage.data_types import AnyArray
from collapsium.storage.errors import DamagedError
from collapsium.workers.arrays.annotations import (
    SAVED,
    UNSAVED,
    Declared,
    SavedAs,
    SizeNames,
    Sizes,
    fault_of,
    number_types,
    numbers,
)

if TYPE_CHECKING:
    from collapsium.storage.corpus.vectors import AnyShard

Array: TypeAlias = AnyArray  # An array of numbers whose type is known elsewhere, such as by a field's annotation

Arrays: TypeAlias = Mapping[str, Array]
T = TypeVar("T")
NUMBERS: dict[type, type[np.generic]] = {bool: np.bool_, int: np.int64, float: np.float64}
BLOCK_ONLY = "block_only"


def present(values: T | None) -> T:
    """Return an optional array of a state, which the state of a fit, or of a finished model, has."""
    if values is None:
        raise ValueError("expected an array of a fit or of a finished model, found a state of the other kind")
    return values


def block_only() -> Any:
    """Declare an array of a block's rows that sweeps do not see: it is None where rows are gathered for a sweep."""
    return dataclasses.field(default=None, metadata={BLOCK_ONLY: True})


@dataclass(frozen=True)
class CheckContext:
    """Knowledge about arrays from outside of them, against which they are checked."""

    sizes: Sizes  # Sizes by name; the sizes that arrays bind are added
    global_state: Any = None  # The model's global state; None while it is checked itself
    shard: AnyShard | None = None  # The documents of a local state; None if they are not loaded
    finished: bool = False  # Whether the arrays are of a finished model, and not of a checkpoint


@dataclass(frozen=True)
class _FieldType:
    """Type of a state's field: the type of a single number, the class of a nested state, or neither for an array."""

    name: str
    array: str  # Name of the array, without the prefix of its state
    number: type[bool] | type[int] | type[float] | None
    state: type[State] | None
    optional: bool
    nullable: bool  # Whether the arrays may be missing on disk
    declared: Declared | None  # None for a nested state, a field that is never written, and an undeclared field
    saved: bool  # False for a field that is never written
    sizes: Mapping[str, str]  # Other names of a nested state's sizes
    metadata: Mapping[str, bool]


class State:
    """Base of all states; subclasses are frozen dataclasses."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[object]]]
    PREFIX: ClassVar[str] = ""  # Prefix of the names of its arrays

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
                arrays[field.array] = value if field.number is None else np.array(value, dtype=NUMBERS[field.number])
        return {f"{self.PREFIX}{name}": array for name, array in arrays.items()} if self.PREFIX else arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Return the state that named arrays hold."""
        values: dict[str, object] = {}
        arrays = cls._without_prefix(arrays)
        for field in _field_types(cls):
            if field.state is not None:
                if not field.optional or field.state.is_in(arrays):
                    values[field.name] = field.state.from_arrays(arrays)
            elif field.array in arrays:
                value = arrays[field.array]
                values[field.name] = value if field.number is None else field.number(value)
            elif not field.optional:
                raise KeyError(field.array)
        return cls(**values)

    @classmethod
    def is_in(cls, arrays: Arrays) -> bool:
        """Return whether named arrays hold all required fields."""
        arrays = cls._without_prefix(arrays)
        return all(
            field.state.is_in(arrays) if field.state is not None else field.array in arrays
            for field in _field_types(cls)
            if not field.optional
        )

    @classmethod
    def _without_prefix(cls, arrays: Arrays) -> Arrays:
        if not cls.PREFIX:
            return arrays
        return {name.removeprefix(cls.PREFIX): arrays[name] for name in arrays if name.startswith(cls.PREFIX)}

    @classmethod
    def array_names(cls) -> frozenset[str]:
        """Return the names of all arrays that may be on disk."""
        return frozenset(cls.declared_arrays())

    @classmethod
    def declared_arrays(cls) -> Mapping[str, Declared]:
        """Return the declarations of all arrays that may be on disk, by name."""
        if cls not in _cached_declarations:
            declared: dict[str, Declared] = {}
            for field in _field_types(cls):
                if field.state is not None:
                    nested = field.state.declared_arrays().items()
                    declared |= {name: array.resized(field.sizes) for name, array in nested}
                elif field.declared is not None:
                    declared[field.array] = field.declared
                elif field.saved:
                    raise TypeError(f"expected an annotation of {cls.__name__}.{field.name}, such as `numbers(...)`")
            _cached_declarations[cls] = {f"{cls.PREFIX}{name}": array for name, array in declared.items()}
        return _cached_declarations[cls]

    @classmethod
    def required_arrays(cls, present: Collection[str]) -> Iterator[str]:
        """Yield the names of arrays that must be on disk; an optional nested state has all of its arrays or none."""
        present = {name.removeprefix(cls.PREFIX) for name in present if name.startswith(cls.PREFIX)}
        for field in _field_types(cls):
            if field.state is None:
                if field.declared is not None and not field.nullable:
                    yield f"{cls.PREFIX}{field.array}"
            elif not field.nullable or not field.state.array_names().isdisjoint(present):
                yield from (f"{cls.PREFIX}{name}" for name in field.state.required_arrays(present))

    @classmethod
    def stored_type(cls, context: CheckContext) -> type[State]:  # noqa: ARG003
        """Return the class of a state on disk; a base class of states of several forms chooses one."""
        return cls

    @classmethod
    def stored(cls, context: CheckContext) -> Collection[str] | None:  # noqa: ARG003
        """Return the names of the arrays that must be on disk, and no others; None where the fields alone decide."""
        return None

    def faults(self, context: CheckContext) -> Iterator[str]:  # noqa: ARG002
        """Yield the faults of several arrays that are sound one by one; subclasses call their base's first."""
        yield from ()

    @classmethod
    def checked(cls, arrays: Arrays, context: CheckContext, where: str) -> Any:
        """Return the state that arrays from disk hold; raise `DamagedError` if they differ from their declaration."""
        kind = cls.stored_type(context)
        declared, stored = kind.declared_arrays(), kind.stored(context)
        for name in arrays:
            if name not in (declared if stored is None else stored):
                raise DamagedError(f"{where}/{name}", "expected no array of this name; it is of another model")
        required = set(kind.required_arrays(arrays) if stored is None else stored)
        unbound: list[str] = []
        for name, array in declared.items():
            if name not in arrays:
                if name in required:
                    raise DamagedError(f"{where}/{name}", "the array is missing")
            elif (bound := array.below.partition("+")[0]) and bound not in {*context.sizes, *array.dims}:
                unbound.append(name)
            elif fault := fault_of(arrays[name], array, context.sizes):
                raise DamagedError(f"{where}/{name}", fault)
        for name in unbound:
            if fault := fault_of(arrays[name], declared[name], context.sizes):
                raise DamagedError(f"{where}/{name}", fault)
        state = kind.from_arrays(arrays)
        for fault in state._faults_of_all(context):
            raise DamagedError(where, fault)
        return state

    def _faults_of_all(self, context: CheckContext) -> Iterator[str]:
        """Yield the faults of nested states, then its own."""
        for field in _field_types(type(self)):
            nested = getattr(self, field.name)
            if field.state is not None and nested is not None:
                for fault in nested._faults_of_all(context):
                    yield f"{fault} (of '{nested.PREFIX}')" if nested.PREFIX else fault
        yield from self.faults(context)

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

    @property
    def mean_weights(self) -> Array | None:
        """Mean weight of each word's tokens in the corpus, shape (words,); None if the fit does not weigh words."""
        return None


@dataclass(frozen=True)
class LocalState(State):
    """Base of local states: arrays of a shard's documents that stay with the shard between sweeps."""


_cached_field_types: dict[type[State], tuple[_FieldType, ...]] = {}
_cached_declarations: dict[type[State], Mapping[str, Declared]] = {}


def _field_types(cls: type[State]) -> tuple[_FieldType, ...]:
    """Return the types of a state's fields; cached, as every conversion needs them."""
    if cls in _cached_field_types:
        return _cached_field_types[cls]
    hints = get_type_hints(cls, include_extras=True)
    field_types = []
    for field in dataclasses.fields(cls):
        hint, marks = _unwrapped(hints[field.name])
        nullable = get_origin(hint) in (Union, types.UnionType)
        if nullable:
            (hint,) = [member for member in get_args(hint) if member is not type(None)]
            hint, more = _unwrapped(hint)
            marks = (*marks, *more)
        optional = nullable or field.default is not dataclasses.MISSING
        state = hint if isinstance(hint, type) and issubclass(hint, State) else None
        number = hint if hint in NUMBERS else None
        declared = next((mark for mark in marks if isinstance(mark, Declared)), None)
        if declared is None and number is not None and UNSAVED not in marks:
            declared = numbers("", 0, 1) if number is bool else numbers()
        if declared is not None and not declared.dtypes:
            dtypes = number_types(hint) if number is None else (np.dtype(NUMBERS[number]).str[1:],)
            if not dtypes:
                raise TypeError(f"expected number types of {cls.__name__}.{field.name}: its type names several")
            declared = replace(declared, dtypes=dtypes)
        sizes = next((mark.names for mark in marks if isinstance(mark, SizeNames)), {})
        missing = (nullable and SAVED not in marks) or (declared is not None and declared.optional)
        saved = UNSAVED not in marks
        array = next((mark.name for mark in marks if isinstance(mark, SavedAs)), field.name)
        field_types.append(
            _FieldType(field.name, array, number, state, optional, missing, declared, saved, sizes, field.metadata)
        )
    return _cached_field_types.setdefault(cls, tuple(field_types))


def _unwrapped(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a type without its annotations, and the annotations."""
    return (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())
