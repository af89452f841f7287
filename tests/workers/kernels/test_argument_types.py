"""Kernels whose signature follows from their annotations, with arrays that travel in named tuples."""

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
    """Numbers of one type."""

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
    """Take entries to fill, and others to read."""


def overwrite_prior(rows: Rows) -> None:
    """Write to an input."""
    rows.prior.parameters[0] = 1.0


def take_anything(value: object) -> None:
    """Take what the compiler knows no type of."""


@pytest.fixture
def compiled(monkeypatch):
    """A function that makes a kernel which leaves no trace in this process or on disk."""
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
def test_kernel__that_writes_to_a_field_which_is_an_input_does_not_compile(compiled):
    with pytest.raises(Exception, match="[Cc]annot modify readonly array"):
        compiled(overwrite_prior).compile()


def test_argument_types__match_the_annotations():
    rows, times, result = argument_types(add_prior)
    assert rows.fields[1].record is Prior
    assert times == ArgumentType("int64")
    assert result == ArgumentType("float64", 1, written=True)


def test_argument_types__of_a_tuple_to_fill_are_written_but_for_those_that_are_read():
    after, before = argument_types(take_entries)
    assert after.record is before.record is Entries
    assert [field.written for field in after.fields] == [False, True]
    assert [field.written for field in before.fields] == [False, False]


def test_argument_types__names_an_annotation_that_is_no_type():
    with pytest.raises(TypeError, match=r"take_anything\(value\)"):
        argument_types(take_anything)
