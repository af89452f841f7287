"""Integer changes as they are encoded for transfer between hosts."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.exchange import _add_rows, add_encoded, encode
from collapsium.workers.kernels import planes
from tests.naive import planes as naive

pytestmark = pytest.mark.kernels

HEADER = struct.calcsize("<QQB")
"""Bytes before what is compressed."""


@st.composite
def integers(draw):
    """Draw numbers of 32 or 64 bits, of any magnitude."""
    bits = draw(st.sampled_from([32, 64]))
    limit = 2 ** (draw(st.integers(1, bits)) - 1)
    values = draw(st.lists(st.integers(-limit, limit - 1), max_size=20))
    return np.array(values, dtype=f"i{bits // 8}")


@given(integers(), st.integers(-100, 100))
def test_encoded_numbers__are_added_to_existing_ones(values, before):
    table = np.full_like(values, before)
    add_encoded(encode(values), table)
    np.testing.assert_array_equal(table, values + table.dtype.type(before))


@given(integers())
def test_planes__equal_the_naive_version(values):
    wide = values.dtype == np.int64
    fold, split = (planes.fold_64, planes.split_64) if wide else (planes.fold_32, planes.split_32)
    mask, folded, sums = (
        np.zeros(-(-values.size // 8), np.uint8),
        np.zeros(values.size + 1, values.dtype),
        np.zeros(2, "i8"),
    )
    fold(values, mask, folded, sums)
    expected, bits = naive.fold(values), 0
    for number in expected:
        bits |= number
    assert (sums[0], int(sums[1]) % 2**64) == (len(expected), bits)
    np.testing.assert_array_equal(mask, naive.mask(values))
    found = np.zeros(values.itemsize * len(expected), np.uint8)
    split(folded[: len(expected)], found)
    np.testing.assert_array_equal(found, naive.split(expected, values.itemsize))


@given(st.sampled_from(["i4", "i8"]), st.lists(st.integers(0, 8), unique=True).map(sorted), st.integers(-9, 9))
def test_rows__are_added_as_by_the_naive_version(dtype, rows, first):
    table = np.arange(18, dtype=dtype).reshape(9, 2)
    values = first + np.arange(2 * len(rows), dtype=dtype).reshape(-1, 2)
    expected = naive.add_rows(table, rows, values)
    _add_rows(table, np.array(rows, np.int32), values)
    np.testing.assert_array_equal(table, expected)


def test_rows_beyond_the_table__are_refused():
    with pytest.raises(ValueError, match="expected rows of 3 words, found 1 to 3"):
        _add_rows(np.zeros(3, np.int64), np.array([1, 3]), np.ones(2, np.int64))


def test_encoded_bytes__do_not_depend_on_the_type_of_the_numbers():
    values = np.array([[0, -1], [70_000, 3]], np.int32)
    assert encode(values) == encode(values.astype(np.int64))
    assert len(encode(np.zeros(10_000, np.int32))) == HEADER


@pytest.mark.parametrize(
    "claim",
    [struct.pack("<QQB", 2**50, 4, 1), struct.pack("<QQB", 4, 4, 5), struct.pack("<QQB", 4, 5, 1)],
    ids=["more numbers", "more planes", "more than there are"],
)
def test_messages_that_declare_other_sizes__are_refused_before_memory_is_allocated(claim):
    table = np.zeros(4, np.int32)
    with pytest.raises(ValueError, match="expected 4 numbers of 4 bytes"):
        add_encoded(claim + encode(np.ones(4, np.int32))[HEADER:], table)
    assert not table.any()


def test_messages_whose_mask_has_other_bits__are_refused():
    table, encoded = np.zeros(4, np.int32), encode(np.array([1, 0, 2, 0], np.int32))[HEADER:]
    with pytest.raises(ValueError, match="expected 1 numbers other than zero, found 2"):
        add_encoded(struct.pack("<QQB", 4, 1, 2) + encoded, table)
    assert not table.any()
