"""Checks of arrays from disk: arrays that match their declarations are accepted, and each other one is named."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.errors import DamagedError
from collapsium.workers.arrays.annotations import (
    CHUNK_SIZE,
    SAVED,
    UNSAVED,
    ascending,
    indices,
    is_from_zero_to,
    never_falls,
    non_negative,
    numbers,
    offsets,
    size,
    sizes,
    value_range,
)
from collapsium.workers.arrays.state import CheckContext, State

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Lists(State):
    lists: Annotated[npt.NDArray[np.int64], offsets("document", into="listed")]
    topics: Annotated[npt.NDArray[np.uint16], indices("listed", below="topic")]
    weights: Annotated[Floats, non_negative("listed")]
    age: Annotated[int, numbers("", 0, 10)]
    levels: Annotated[npt.NDArray[np.float64] | None, numbers("document 2", 0, 1)] = None

    def faults(self, context):
        yield from super().faults(context)
        yield from ascending(self, "lists", "topics")


def valid_arrays():
    """Return valid lists of three documents over four topics."""
    return {
        "lists": np.array([0, 2, 2, 5]),
        "topics": np.array([1, 3, 0, 1, 2], dtype=np.uint16),
        "weights": np.ones(5, dtype=np.float32),
        "age": np.array(3),
    }


def fault_of(arrays, state=Lists, **sizes):
    with pytest.raises(DamagedError) as caught:
        state.checked(arrays, CheckContext({"topic": 4, "document": 3, **sizes}), "place")
    return str(caught.value)


def test_arrays_that_match_their_declarations__make_the_state():
    known = CheckContext({"topic": 4, "document": 3})
    state = Lists.checked(valid_arrays(), known, "place")
    assert (state.age, state.levels) == (3, None)
    assert known.sizes["listed"] == 5
    assert Lists.checked({**valid_arrays(), "levels": np.zeros((3, 2))}, known, "place").levels.shape == (3, 2)


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
def test_an_array_that_differs_from_its_declaration__is_named(name, values, text):
    assert text in fault_of({**valid_arrays(), name: values})


def test_a_missing_array__is_named():
    for name in valid_arrays():
        assert f"place/{name}: the array is missing" in fault_of({k: v for k, v in valid_arrays().items() if k != name})


def test_known_sizes__must_match():
    assert "expected offsets up to 6, found 5" in fault_of(valid_arrays(), listed=6)


@dataclass(frozen=True)
class Moves(State):
    PREFIX = "old_"

    source: Annotated[npt.NDArray[np.int64], indices("move", below="column")]
    weight: Annotated[npt.NDArray[np.float64] | None, numbers("move")] = None

    def faults(self, context):
        yield from super().faults(context)
        if self.source.size > 2:
            yield "expected at most 2 moves"


@dataclass(frozen=True)
class Fit(State):
    depth: Annotated[int, size("depth", 1, 5)]
    moves: Annotated[Moves | None, sizes(column="depth+1")] = None
    swept: Annotated[Floats | None, numbers("depth"), SAVED] = None
    cache: Annotated[Floats | None, UNSAVED] = None
    by_sweep: bool = False


def of_fit(**changed):
    return {"depth": np.array(2), "swept": np.zeros(2, dtype=np.float32), "by_sweep": np.array(True), **changed}


def test_a_nested_state__has_all_of_its_arrays_or_none():
    state = Fit(2, Moves(np.array([2])), np.zeros(2, dtype=np.float32), by_sweep=True)
    assert set(state.to_arrays()) == {"depth", "old_source", "swept", "by_sweep"}
    assert Fit.checked(state.to_arrays(), CheckContext({}), "place").moves.source.tolist() == [2]
    assert Fit.checked(of_fit(), CheckContext({}), "place").moves is None
    assert "place/old_source: the array is missing" in fault_of(of_fit(old_weight=np.zeros(1)), Fit)
    assert "place/old_source: expected numbers from 0 to 2, found 3" in fault_of(of_fit(old_source=np.array([3])), Fit)
    assert "place: expected at most 2 moves (of 'old_')" in fault_of(of_fit(old_source=np.arange(3)), Fit)


def test_arrays_that_only_disk_or_only_memory_has__are_checked_accordingly():
    none = {name: values for name, values in of_fit().items() if name != "swept"}
    assert "place/swept: the array is missing" in fault_of(none, Fit)
    assert "place/cache: expected no array of this name" in fault_of(of_fit(cache=np.zeros(2, dtype=np.float32)), Fit)
    assert "place/depth: expected numbers from 1 to 5, found 6" in fault_of(of_fit(depth=np.array(6)), Fit)
    assert "place/swept: expected the shape (2), found (3,)" in fault_of(of_fit(swept=np.zeros(3, np.float32)), Fit)


@dataclass(frozen=True)
class AmbiguousType(State):
    values: Annotated[npt.NDArray[np.floating], numbers("topic")]


def test_a_type_of_several_kinds_of_numbers__needs_explicit_types():
    with pytest.raises(TypeError, match="expected number types of AmbiguousType.values"):
        AmbiguousType.declared_arrays()


@dataclass(frozen=True)
class NotAnnotated(State):
    values: npt.NDArray[np.float64]


def test_an_array_without_annotation__is_an_error_of_its_author():
    with pytest.raises(TypeError, match="expected an annotation of NotAnnotated.values"):
        NotAnnotated.declared_arrays()


@given(st.lists(st.integers(-5, 5), max_size=20), st.integers(1, 4))
def test_checks_in_chunks__equal_checks_of_the_whole_array(values, piece):
    array = np.array(values, dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("collapsium.workers.arrays.annotations.CHUNK_SIZE", piece)
        assert never_falls(array) == bool((np.diff(array) >= 0).all())
        assert value_range(array) == ((min(values), max(values)) if values else (None, 0.0))


def test_nan__is_found_in_every_chunk():
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
def test_the_fast_range_check__accepts_exactly_finite_numbers_from_zero_to_the_limit(dtype, numbers, limit):
    with np.errstate(all="ignore"):
        values = np.array(numbers).astype(dtype)
    valid_arrays = bool(values.size) and bool(
        (np.isfinite(values) & ~np.signbit(values.astype("f8")) & (values <= limit)).all()
    )
    assert is_from_zero_to(values, limit) is valid_arrays
