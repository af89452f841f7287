"""Whole numbers that travel."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.exchange import add_encoded, encode
from collapsium.workers.kernels import planes
from tests.naive import planes as naive

pytestmark = pytest.mark.kernels


@st.composite
def integers(draw):
    """Numbers of 32 or 64 bits, of any magnitude."""
    bits = draw(st.sampled_from([32, 64]))
    limit = 2 ** (draw(st.integers(1, bits)) - 1)
    values = draw(st.lists(st.integers(-limit, limit - 1), max_size=20))
    return np.array(values, dtype=f"i{bits // 8}")


@given(integers(), st.integers(-100, 100))
def test_encoded_numbers__are_added_to_those_that_are_there(values, before):
    table = np.full_like(values, before)
    add_encoded(encode(values), table)
    np.testing.assert_array_equal(table, values + table.dtype.type(before))


@given(integers())
def test_planes__equal_their_twin(values):
    wide = values.dtype == np.int64
    bits = (planes.bits_64 if wide else planes.bits_32)(values) % 2**64
    expected = 0
    for folded in naive.fold(values):
        expected |= folded
    assert bits == expected
    split = np.zeros(values.itemsize * values.size, np.uint8)
    (planes.split_64 if wide else planes.split_32)(values, split)
    np.testing.assert_array_equal(split, naive.split(values, values.itemsize))


def test_bytes__do_not_depend_on_the_bits_of_the_numbers():
    values = np.array([[0, -1], [70_000, 3]], np.int32)
    assert encode(values) == encode(values.astype(np.int64))
    assert len(encode(np.zeros(10_000, np.int32))) < 10


@pytest.mark.parametrize(
    "claim",
    [struct.pack("<QB", 2**50, 1), struct.pack("<QB", 4, 5)],
    ids=["more numbers", "more planes"],
)
def test_messages_that_claim_other_sizes__are_refused_before_memory_is_taken(claim):
    table = np.zeros(4, np.int32)
    with pytest.raises(ValueError, match="expected 4 numbers of 4 bytes"):
        add_encoded(claim + encode(np.ones(4, np.int32))[9:], table)
    assert not table.any()
