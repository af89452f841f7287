"""Kernels whose signatures follow from their annotations, with arrays in named tuples."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
import pytest

from collapsium.workers.kernels import jit
from collapsium.workers.kernels.jit import (
    ArgumentType,
    Filled,
    Float64Vector,
    Int64Vector,
    OutFloat64Vector,
    argument_types,
)


class Prior(NamedTuple):
    """A Dirichlet prior."""

    parameters: Float64Vector
    scale: float


class Factors(NamedTuple):
    """Factors of one type."""

    first: float
    second: float


class Rows(NamedTuple):
    """Rows with their prior."""

    numbers: Int64Vector
    prior: Prior


def add_prior(rows: Rows, times: int, result: OutFloat64Vector) -> None:
    """Fill the result with the scaled parameters of the rows."""
    parameters, scale = rows.prior.parameters, rows.prior.scale
    for row in range(rows.numbers.size):
        result[row] = parameters[rows.numbers[row]] * scale * times


def multiply_factors(factors: Factors, result: OutFloat64Vector) -> None:
    """Fill the result with the product of the factors."""
    result[0] = factors.first * factors.second


class Entries(NamedTuple):
    """Entries of documents."""

    offsets: Int64Vector
    values: Float64Vector


def take_entries(after: Annotated[Entries, Filled(read=("offsets",))], before: Entries) -> None:
    """Fill some entries, and read others."""


def overwrite_prior(rows: Rows) -> None:
    """Write to an input, which is an error."""
    rows.prior.parameters[0] = 1.0


def take_anything(value: object) -> None:
    """Accept a type that the compiler does not know."""


@pytest.fixture
def compiled(monkeypatch):
    """Return a function that makes a kernel without a trace in this process or on disk."""
    monkeypatch.setattr(jit, "_registered", [])
    monkeypatch.setattr(jit, "cache_folder", lambda: None)
    return jit.kernel


@pytest.mark.parametrize("writeable", [True, False])
def test_kernel__takes_named_tuples_of_arrays(compiled, writeable):
    parameters = np.arange(4.0)
    parameters.flags.writeable = writeable
    result = np.zeros(2)
    compiled(add_prior)(Rows(np.array([1, 3]), Prior(parameters, 2)), 5, result)
    assert result.tolist() == [10.0, 30.0]
    assert parameters.flags.writeable is writeable


def test_kernel__takes_named_tuples_whose_fields_have_one_type(compiled):
    result = np.zeros(1)
    compiled(multiply_factors)(Factors(3.0, 5.0), result)
    assert result.tolist() == [15.0]


@pytest.mark.skipif(jit.INTERPRETED, reason="needs the compiler")
def test_a_kernel_that_writes_to_an_input_field__does_not_compile(compiled):
    with pytest.raises(Exception, match="[Cc]annot modify readonly array"):
        compiled(overwrite_prior).compile()


def test_argument_types__match_the_annotations():
    rows, times, result = argument_types(add_prior)
    assert rows.fields[1].record is Prior
    assert times == ArgumentType("int64")
    assert result == ArgumentType("float64", 1, written=True)


def test_argument_types_of_an_output_tuple__are_writable_except_for_fields_that_are_read():
    after, before = argument_types(take_entries)
    assert after.record is before.record is Entries
    assert [field.written for field in after.fields] == [False, True]
    assert [field.written for field in before.fields] == [False, False]


def test_argument_types__names_an_annotation_that_is_not_a_type():
    with pytest.raises(TypeError, match=r"take_anything\(value\)"):
        argument_types(take_anything)
