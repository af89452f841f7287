"""Compiler's code of the operations of `lanes`."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import TypeAlias

from llvmlite import ir
from numba.core import types
from numba.core.base import BaseContext
from numba.core.cgutils import get_or_insert_function
from numba.core.datamodel import DataModelManager
from numba.core.registry import cpu_target
from numba.core.typing import Signature, signature
from numba.core.typing.templates import ConcreteTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model

from collapsium.workers.kernels.jit import LANES, ONE_BITS

# Writes the instructions of an intrinsic
Generator: TypeAlias = Callable[[BaseContext, ir.IRBuilder, Signature, Sequence[ir.Value]], ir.Value]


@functools.cache
def operations() -> dict[str, types.Type]:
    """Return the compiler's types of the operations, by name."""
    context, intrinsics = cpu_target.typing_context, _intrinsics()
    # It learns of what was declared since it was made.
    context.refresh()
    return {name: context.resolve_value_type(intrinsic) for name, intrinsic in intrinsics.items()}


@functools.cache
def _lanes_type() -> types.Type:
    """Return the compiler's type of a vector, with its addition, subtraction and multiplication."""

    class LanesType(types.Type):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name=f"Lanes({LANES})")

    class LanesModel(models.PrimitiveModel):  # type: ignore[misc]
        def __init__(self, manager: DataModelManager, lanes_type: types.Type) -> None:
            super().__init__(manager, lanes_type, ir.VectorType(ir.FloatType(), LANES))

    lanes = LanesType()
    register_model(LanesType)(LanesModel)
    instructions = {operator.add: "fadd", operator.sub: "fsub", operator.mul: "fmul"}
    for operation, instruction in instructions.items():

        def lower(
            _context: BaseContext,
            builder: ir.IRBuilder,
            _signature: Signature,
            args: Sequence[ir.Value],
            instruction: str = instruction,
        ) -> ir.Value:
            return getattr(builder, instruction)(*args)

        members = {"key": operation, "cases": [signature(lanes, lanes, lanes)]}
        infer_global(operation)(type(f"Lanes{instruction.title()}", (ConcreteTemplate,), members))
        lower_builtin(operation, lanes, lanes)(lower)
    return lanes


class _Code:
    """Instructions of one operation."""

    def __init__(
        self, context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
    ) -> None:
        self.context, self.builder, self.types, self.args = context, builder, signature.args, args
        self.byte, self.half, self.integer, self.index = (ir.IntType(bits) for bits in (8, 16, 32, 64))
        self.floats, self.integers, self.halves = (
            ir.VectorType(number, LANES) for number in (ir.FloatType(), self.integer, self.half)
        )
        self.nothing = ir.Constant(self.floats, ir.Undefined)

    def address(self, argument: int, offset: ir.Value) -> ir.Value:
        """Return the address of a number of an array."""
        array = self.context.make_array(self.types[argument])(self.context, self.builder, self.args[argument])
        return self.builder.gep(array.data, [offset])

    def vector_address(self, vector: ir.VectorType) -> ir.Value:
        """Return the address of the vector at the second argument in the first one."""
        return self.builder.bitcast(self.address(0, self.args[1]), vector.as_pointer())

    def load(self, vector: ir.VectorType, size: int) -> ir.Value:
        """Return a vector whose numbers have `size` bytes; it need not be aligned to a boundary of vectors."""
        loaded = self.builder.load(self.vector_address(vector))
        loaded.align = size
        return loaded

    def store(self, value: ir.Value, size: int) -> None:
        """Write a vector whose numbers have `size` bytes."""
        self.builder.store(value, self.vector_address(value.type)).align = size

    def evenly(self, number: ir.Value) -> ir.Value:
        """Return a number eight times."""
        single = self.builder.insert_element(self.nothing, number, self.integer(0))
        zeros = ir.Constant(self.integers, [0] * LANES)
        return self.builder.shuffle_vector(single, self.nothing, zeros)

    def gathered(self) -> ir.Value:
        """Return the numbers of `cells`: single loads, as instructions that gather took 1.15 times as long (Zen 5)."""
        gathered = ir.Constant(self.integers, ir.Undefined)
        for lane, address in enumerate(self.cells()):
            gathered = self.builder.insert_element(gathered, self.builder.load(address), self.integer(lane))
        return gathered

    def added(self) -> ir.Value:
        """Return the whole parts of the last argument minus the whole parts of the one before."""
        old, new = (self.builder.fptosi(lanes, self.integers) for lanes in self.args[-2:])
        return self.builder.sub(new, old)

    def cells(self) -> list[ir.Value]:
        """Return the addresses of eight numbers of the first argument, at the second and the places of the third."""
        row = self.address(0, self.args[1])
        places = self.builder.bitcast(self.address(2, self.args[3]), self.integer.as_pointer())
        addresses = []
        for lane in range(LANES):
            place = self.builder.load(self.builder.gep(places, [self.index(lane)]))
            addresses.append(self.builder.gep(row, [self.builder.zext(place, self.index)]))
        return addresses


@functools.cache
def _intrinsics() -> dict[str, Callable[..., object]]:
    """Return the operations as numba's intrinsics, by name."""
    lanes, index, nothing, number = _lanes_type(), types.int64, types.void, types.float32
    written: dict[str, tuple[Callable[[_Code], ir.Value | None], Callable[..., Signature]]] = {
        "load": (_load, lambda values, _first: lanes(values, index)),
        "store": (_store, lambda values, _first, _lanes: nothing(values, index, lanes)),
        "load_steps": (_load_steps, lambda values, _first: lanes(values, index)),
        "store_steps": (_store_steps, lambda values, _first, _lanes: nothing(values, index, lanes)),
        "load_counts": (_load_counts, lambda values, _first: lanes(values, index)),
        "gather_counts": (_gather_counts, lambda values, _first, places, _at: lanes(values, index, places, index)),
        "replace_counts": (
            _replace_counts,
            lambda values, _first, _old, _new: nothing(values, index, lanes, lanes),
        ),
        "scatter_counts": (
            _scatter_counts,
            lambda values, _first, places, _at, _old, _new: nothing(values, index, places, index, lanes, lanes),
        ),
        "spread_evenly": (lambda code: code.evenly(code.args[0]), lambda _number: lanes(number)),
        "larger": (_larger, lambda _lanes, _others: lanes(lanes, lanes)),
        "truncate": (_truncate, lambda _lanes: lanes(lanes)),
        "to_power": (_to_power, lambda _lanes, _power: lanes(lanes, number)),
        "sum_of": (_sum_of, lambda _lanes: number(lanes)),
        "first_of": (
            lambda code: code.builder.extract_element(code.args[0], code.integer(0)),
            lambda _lanes: number(lanes),
        ),
        "prefetch": (_prefetch, lambda values, _at: nothing(values, index)),
    }
    return {name: intrinsic(_typed(name, *parts)) for name, parts in written.items()}


def _typed(
    name: str, write: Callable[[_Code], ir.Value | None], sign: Callable[..., Signature]
) -> Callable[..., tuple[Signature, Generator]]:
    """Return the function that numba's `intrinsic` takes: from types of arguments to a signature and code."""

    def generate(
        context: BaseContext, builder: ir.IRBuilder, signature: Signature, args: Sequence[ir.Value]
    ) -> ir.Value:
        result = write(_Code(context, builder, signature, args))
        return context.get_dummy_value() if result is None else result

    def typed(_typing: object, *arguments: types.Type) -> tuple[Signature, Generator]:
        return sign(*arguments), generate

    # The compiler binds arguments by this signature, of which it leaves out the first.
    parameters = inspect.signature(sign).parameters.values()
    first = inspect.Parameter("typing", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    typed.__signature__ = inspect.Signature([first, *parameters])  # type: ignore[attr-defined]
    typed.__name__ = name
    return typed


def _load(code: _Code) -> ir.Value:
    return code.load(code.floats, 4)


def _store(code: _Code) -> None:
    code.store(code.args[2], 4)


def _load_steps(code: _Code) -> ir.Value:
    return code.builder.sitofp(code.builder.zext(code.load(code.halves, 2), code.integers), code.floats)


def _store_steps(code: _Code) -> None:
    code.store(code.builder.trunc(code.builder.fptosi(code.args[2], code.integers), code.halves), 2)


def _load_counts(code: _Code) -> ir.Value:
    return code.builder.sitofp(code.load(code.integers, 4), code.floats)


def _gather_counts(code: _Code) -> ir.Value:
    return code.builder.sitofp(code.gathered(), code.floats)


def _replace_counts(code: _Code) -> None:
    code.store(code.builder.add(code.load(code.integers, 4), code.added()), 4)


def _scatter_counts(code: _Code) -> None:
    added = code.added()
    for lane, address in enumerate(code.cells()):
        more = code.builder.extract_element(added, code.integer(lane))
        code.builder.store(code.builder.add(code.builder.load(address), more), address)


def _larger(code: _Code) -> ir.Value:
    return code.builder.select(code.builder.fcmp_ordered(">", *code.args), *code.args)


def _truncate(code: _Code) -> ir.Value:
    return code.builder.sitofp(code.builder.fptosi(code.args[0], code.integers), code.floats)


def _to_power(code: _Code) -> ir.Value:
    builder, one = code.builder, ir.Constant(code.floats, [float(ONE_BITS)] * LANES)
    logarithm = builder.fsub(builder.sitofp(builder.bitcast(code.args[0], code.integers), code.floats), one)
    bits = builder.fadd(builder.fmul(logarithm, code.evenly(code.args[1])), one)
    return builder.bitcast(builder.fptosi(bits, code.integers), code.floats)


def _sum_of(code: _Code) -> ir.Value:
    lanes, size = code.args[0], LANES
    while size > 1:
        size //= 2
        half = ir.VectorType(code.integer, size)
        low, high = (
            code.builder.shuffle_vector(lanes, lanes, ir.Constant(half, list(range(first, first + size))))
            for first in (0, size)
        )
        lanes = code.builder.fadd(low, high)
    return code.builder.extract_element(lanes, code.integer(0))


def _prefetch(code: _Code) -> None:
    pointer, builder = code.byte.as_pointer(), code.builder
    declared = ir.FunctionType(ir.VoidType(), [pointer, code.integer, code.integer, code.integer])
    function = get_or_insert_function(builder.module, declared, "llvm.prefetch.p0i8")
    address = builder.bitcast(code.address(0, code.args[1]), pointer)
    # To read (0), into all levels of the cache (3), of data (1).
    builder.call(function, [address, code.integer(0), code.integer(3), code.integer(1)])
