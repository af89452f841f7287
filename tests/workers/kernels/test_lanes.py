"""Operations on vectors of eight numbers give the results of NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.kernels.jit import (
    LANES,
    Float32Vector,
    Int32Vector,
    OutFloat32Matrix,
    OutInt32Matrix,
    OutUInt16Vector,
    UInt16Vector,
    kernel,
)
from collapsium.workers.kernels.lane_code import operations
from collapsium.workers.kernels.lanes import (
    LaneOperation,
    first_of,
    gather_counts,
    larger,
    load,
    load_counts,
    load_steps,
    prefetch,
    replace_counts,
    scatter_counts,
    spread_evenly,
    store,
    store_steps,
    sum_of,
    to_power,
    truncate,
)

pytestmark = pytest.mark.kernels
EXPONENT = np.float32(0.875)


@kernel
def calculate(
    values: Float32Vector,
    steps: UInt16Vector,
    places: Int32Vector,
    results: OutFloat32Matrix,
    cells: OutInt32Matrix,
    written: OutUInt16Vector,
) -> None:
    """Run each operation on vectors that begin at index 1, so that none is aligned."""
    x, y, flat = load(values, 1), load(values, 1 + LANES), results.reshape(-1)
    prefetch(values, 1 << 20)
    store(flat, 0, x + y)
    store(flat, LANES, x - y)
    store(flat, 2 * LANES, x * y)
    store(flat, 3 * LANES, larger(x, y))
    store(flat, 4 * LANES, truncate(x))
    store(flat, 5 * LANES, to_power(x, EXPONENT))
    store(flat, 6 * LANES, load_steps(steps, 1))
    store(flat, 7 * LANES, spread_evenly(sum_of(x)))
    store(flat, 8 * LANES, spread_evenly(first_of(y)))
    store(flat, 9 * LANES, load_counts(places, 1))
    store(flat, 10 * LANES, gather_counts(cells[0], 1, places, 1))
    replace_counts(cells[0], 1, x, y)
    scatter_counts(cells[1], 1, places, 1, x, y)
    store_steps(written, 1, load_steps(steps, 1))


def in_halves(x):
    """Add the two halves repeatedly until one number is left."""
    while x.size > 1:
        x = x[: x.size // 2] + x[x.size // 2 :]
    return x[0]


@given(st.integers(0, 2**31))
def test_operations__equal_numpy(seed):
    noise = np.random.default_rng(seed)
    values = noise.uniform(0.001, 2000.0, 1 + 2 * LANES).astype(np.float32)
    steps = noise.integers(0, 2**16, 1 + LANES).astype(np.uint16)
    places = noise.integers(0, 2 * LANES, 1 + LANES).astype(np.int32)
    results = np.zeros((11, LANES), np.float32)
    cells = noise.integers(-(2**31), 2**31, (2, 1 + 2 * LANES)).astype(np.int32) // 2
    before = cells.copy()
    written = np.zeros(2 + LANES, np.uint16)
    calculate(values, steps, places, results, cells, written)
    x, y, added = values[1 : 1 + LANES], values[1 + LANES :], np.zeros_like(cells)
    change = y.astype(np.int32) - x.astype(np.int32)
    added[0, 1 : 1 + LANES] = change
    np.add.at(added[1], 1 + places[1:], change)  # even if an index occurs twice
    exact = [x + y, x - y, x * y, np.maximum(x, y), np.floor(x), steps[1:]]
    for found, expected in zip([*results[:5], results[6]], exact, strict=True):
        np.testing.assert_array_equal(found, expected)
    bits = (x.view(np.int32).astype(np.float64) - 0x3F800000) * 0.875 + 0x3F800000
    np.testing.assert_allclose(results[5], bits.astype(np.int32).view(np.float32), rtol=1e-4)
    np.testing.assert_array_equal(results[9:], np.float32([places[1:], before[0, 1 + places[1:]]]))
    np.testing.assert_allclose(results[7:9], [[in_halves(x)] * LANES, [y[0]] * LANES], rtol=1e-6)
    np.testing.assert_array_equal(cells, before + added)
    np.testing.assert_array_equal(written, [0, *steps[1:], 0])


def test_operations__are_registered_with_the_compiler():
    named = {name for name, value in globals().items() if isinstance(value, LaneOperation)}
    assert not named or named == set(operations())
