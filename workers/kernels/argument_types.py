"""Types of kernels' arguments: annotations that give the compiler its signatures.

A kernel's parameter is annotated with one of the aliases below, with ``int``, ``float`` or ``numpy.uint64``, or with a
`typing.NamedTuple` whose fields are so annotated. Arrays that belong together, such as the pairs of a shard's
documents, then travel as one argument. `Filled` marks a tuple that the kernel writes to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias, get_args, get_type_hints

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class ArgumentType:
    """The type of a number, or of a contiguous array."""

    dtype: str  # Name of the number's type
    ndim: int = 0  # Dimensions of the array; 0 for a number
    written: bool = False  # Whether the kernel writes to the array; other arrays are read-only

    def convert(self, value: Any) -> Any:
        """Return a value in the form that the compiler takes within a tuple, where it converts nothing."""
        if not self.ndim:
            return CONVERTERS[self.dtype](value)
        if self.written or not value.flags.writeable:
            return value
        view = value.view()
        view.flags.writeable = False
        return view


@dataclass(frozen=True, slots=True)
class RecordType:
    """The type of a named tuple of arguments."""

    record: type[tuple[object, ...]]  # The `typing.NamedTuple`
    fields: tuple[ArgumentType | RecordType, ...]  # Types of its fields

    def convert(self, value: Any) -> Any:
        """Return the tuple with its fields in the form that the compiler takes."""
        return self.record(*[field.convert(item) for field, item in zip(self.fields, value, strict=True)])


@dataclass(frozen=True, slots=True)
class Filled:
    """Marks a named tuple of arrays that a kernel fills, all but some."""

    read: tuple[str, ...] = ()  # Names of the arrays that are read


Array: TypeAlias = npt.NDArray[Any]  # An array in a helper, whose type the compiler infers
Number: TypeAlias = Any  # A number in a helper, whose type the compiler infers

CONVERTERS: dict[str, Callable[[Number], Number]] = {"int64": int, "float64": float, "uint64": np.uint64}
NUMBERS = {
    int: ArgumentType("int64"),
    float: ArgumentType("float64"),
    np.uint64: ArgumentType("uint64"),
}

Float32Vector: TypeAlias = Annotated[Array, ArgumentType("float32", 1)]
Float32Matrix: TypeAlias = Annotated[Array, ArgumentType("float32", 2)]
Float64Vector: TypeAlias = Annotated[Array, ArgumentType("float64", 1)]
Float64Matrix: TypeAlias = Annotated[Array, ArgumentType("float64", 2)]
Float64Cube: TypeAlias = Annotated[Array, ArgumentType("float64", 3)]
Int32Vector: TypeAlias = Annotated[Array, ArgumentType("int32", 1)]
Int32Matrix: TypeAlias = Annotated[Array, ArgumentType("int32", 2)]
Int64Vector: TypeAlias = Annotated[Array, ArgumentType("int64", 1)]
Int64Matrix: TypeAlias = Annotated[Array, ArgumentType("int64", 2)]
UInt8Vector: TypeAlias = Annotated[Array, ArgumentType("uint8", 1)]
UInt16Vector: TypeAlias = Annotated[Array, ArgumentType("uint16", 1)]
UInt64Vector: TypeAlias = Annotated[Array, ArgumentType("uint64", 1)]

OutFloat32Vector: TypeAlias = Annotated[Array, ArgumentType("float32", 1, written=True)]
OutFloat32Matrix: TypeAlias = Annotated[Array, ArgumentType("float32", 2, written=True)]
OutFloat64Vector: TypeAlias = Annotated[Array, ArgumentType("float64", 1, written=True)]
OutFloat64Matrix: TypeAlias = Annotated[Array, ArgumentType("float64", 2, written=True)]
OutFloat64Cube: TypeAlias = Annotated[Array, ArgumentType("float64", 3, written=True)]
OutInt32Vector: TypeAlias = Annotated[Array, ArgumentType("int32", 1, written=True)]
OutInt32Matrix: TypeAlias = Annotated[Array, ArgumentType("int32", 2, written=True)]
OutInt64Vector: TypeAlias = Annotated[Array, ArgumentType("int64", 1, written=True)]
OutInt64Matrix: TypeAlias = Annotated[Array, ArgumentType("int64", 2, written=True)]
OutUInt8Vector: TypeAlias = Annotated[Array, ArgumentType("uint8", 1, written=True)]
OutUInt64Vector: TypeAlias = Annotated[Array, ArgumentType("uint64", 1, written=True)]
OutUInt16Vector: TypeAlias = Annotated[Array, ArgumentType("uint16", 1, written=True)]


def argument_types(function: Callable[..., object]) -> tuple[ArgumentType | RecordType, ...]:
    """Return the types of a kernel's arguments, from their annotations."""
    hints = get_type_hints(function, include_extras=True)
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return tuple(_argument_type(hints[name], f"{function.__qualname__}({name})") for name in names)


def _argument_type(hint: object, place: str) -> ArgumentType | RecordType:
    if hint in NUMBERS:
        return NUMBERS[hint]
    for extra in get_args(hint):
        if isinstance(extra, ArgumentType):
            return extra
        if isinstance(extra, Filled):
            record = get_args(hint)[0]
            return RecordType(record, tuple(_field_types(record, extra)))
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return RecordType(hint, tuple(_field_types(hint)))
    raise TypeError(f"{place}: expected an array type of `argument_types`, a number or a NamedTuple, found {hint}")


def _field_types(record: type, filled: Filled | None = None) -> Iterator[ArgumentType | RecordType]:
    for name, hint in get_type_hints(record, include_extras=True).items():
        kind = _argument_type(hint, f"{record.__qualname__}.{name}")
        if filled and isinstance(kind, ArgumentType) and kind.ndim and name not in filled.read:
            kind = replace(kind, written=True)
        yield kind
