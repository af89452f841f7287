"""Checks of arrays from disk: what is as declared passes, and whatever is not is named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.errors import DamagedError
from collapsium.workers.arrays.array_fields import (
    CHUNK_SIZE,
    ArrayGroup,
    CheckContext,
    ascending,
    at_most,
    check_arrays,
    counts,
    indices,
    is_from_zero_to,
    never_falls,
    numbers,
    offsets,
    optional,
    scalars,
    value_range,
)

LISTED = ArrayGroup(
    {
        "lists": offsets("document", "listed"),
        "topics": indices("u2", "listed", "topic"),
        "weights": counts("f4", "listed"),
        **scalars("i8", "age", 0, 10),
        **optional({"levels": numbers("f8", "document 2", 0, 1)}),
    },
    (ascending("lists", "topics"), at_most("lists", "topic")),
)


def sound():
    """Lists of three documents over four topics."""
    return {
        "lists": np.array([0, 2, 2, 5]),
        "topics": np.array([1, 3, 0, 1, 2], dtype=np.uint16),
        "weights": np.ones(5, dtype=np.float32),
        "age": np.array(3),
    }


def fault_of(arrays, **sizes):
    with pytest.raises(DamagedError) as caught:
        check_arrays(arrays, LISTED, CheckContext({"topic": 4, "document": 3, **sizes}), "place")
    return str(caught.value)


def test_arrays_as_declared__pass():
    known = CheckContext({"topic": 4, "document": 3})
    check_arrays(sound(), LISTED, known, "place")
    check_arrays({**sound(), "levels": np.zeros((3, 2))}, LISTED, known, "place")
    assert known.sizes["listed"] == 5


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("lists", np.array([0, 2, 5]), "place/lists: expected the shape (4), found (3,)"),
        ("lists", np.array([1, 2, 2, 5]), "place/lists: expected offsets from 0, found 1"),
        ("lists", np.array([0, 3, 2, 5]), "place/lists: expected offsets that never fall"),
        ("lists", np.array([0, 2, 2, 9]), "place/topics: expected the shape (9), found (5,)"),
        ("lists", np.array([0, 2, 2, 5], dtype=np.int32), "place/lists: expected numbers of type int64, found int32"),
        ("lists", np.array([0, 5, 5, 5]), "place: expected 'topics' that ascend within each list of 'lists'"),
        ("topics", np.array([1, 4, 0, 1, 2], dtype=np.uint16), "place/topics: expected numbers from 0 to 3, found 4"),
        ("topics", np.array([3, 1, 0, 1, 2], dtype=np.uint16), "place: expected 'topics' that ascend"),
        ("weights", np.array([1, 1, np.nan, 1, 1], dtype=np.float32), "place/weights: expected finite numbers"),
        ("weights", np.full(5, np.inf, dtype=np.float32), "place/weights: expected finite numbers"),
        ("weights", np.full(5, -1, dtype=np.float32), "place/weights: expected numbers from -1e-06 to 1e+15, found -1"),
        ("weights", np.full(5, 1e30, dtype=np.float32), "place/weights: expected numbers from -1e-06 to 1e+15"),
        ("age", np.array([3]), "place/age: expected the shape (), found (1,)"),
        ("age", np.array(11), "place/age: expected numbers from 0 to 10, found 11"),
        ("levels", np.full((3, 2), 2.0), "place/levels: expected numbers from 0 to 1, found 2"),
        ("more", np.zeros(3), "place/more: expected no array of this name"),
    ],
)
def test_an_array_that_is_not__is_named(name, values, text):
    assert text in fault_of({**sound(), name: values})


def test_an_array_that_is_missing__is_named():
    for name in sound():
        assert f"place/{name}: the array is missing" in fault_of({k: v for k, v in sound().items() if k != name})


def test_sizes_that_are_known__hold():
    assert "expected offsets up to 6, found 5" in fault_of(sound(), listed=6)
    long = ArrayGroup(LISTED.fields, (at_most("lists", "document"),))
    with pytest.raises(DamagedError, match="expected lists of at most 3 in 'lists', found one of 5"):
        check_arrays(
            {**sound(), "lists": np.array([0, 5, 5, 5])}, long, CheckContext({"topic": 4, "document": 3}), "place"
        )


@given(st.lists(st.integers(-5, 5), max_size=20), st.integers(1, 4))
def test_what_is_looked_at_in_pieces__is_as_if_at_once(values, piece):
    array = np.array(values, dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("collapsium.workers.arrays.array_fields.CHUNK_SIZE", piece)
        assert never_falls(array) == bool((np.diff(array) >= 0).all())
        assert value_range(array) == ((min(values), max(values)) if values else (None, 0.0))


def test_nan__is_found_in_any_piece():
    for place in (0, CHUNK_SIZE - 1, CHUNK_SIZE, 2 * CHUNK_SIZE + 3):
        values = np.zeros(2 * CHUNK_SIZE + 5, dtype=np.float32)
        values[place] = np.nan
        assert np.isnan(value_range(values)[0])


SPECIAL = [0.0, -0.0, 1e-45, 0.5, 1.0, 3.0, 4.0, -1e-9, -3.0, 1e15, 3e38, np.inf, -np.inf, np.nan]


@given(
    st.sampled_from(["f4", "f8", "i4", "i8", "u1", "u2", "b1"]),
    st.lists(st.sampled_from(SPECIAL), max_size=4),
    st.sampled_from([0, 1, 3.0, 1e15, np.inf]),
)
def test_one_pass_over_bits__takes_just_finite_numbers_from_zero_to_the_limit(dtype, numbers, limit):
    with np.errstate(all="ignore"):
        values = np.array(numbers).astype(dtype)
    sound = bool(values.size) and bool(
        (np.isfinite(values) & ~np.signbit(values.astype("f8")) & (values <= limit)).all()
    )
    assert is_from_zero_to(values, limit) is sound
