import gc
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from collapsium.workers.arrays.spill import Shelf, ShelfWriter, part, shelve

DTYPES = st.sampled_from([np.uint16, np.int32, np.int64, np.float32, np.float64]).map(np.dtype)


@st.composite
def named(draw, max_dims=2):
    """Named arrays: single numbers, empty ones, tables."""
    names = draw(st.sets(st.sampled_from(["age", "lists", "shares", "counts"]), min_size=1))
    shapes = arrays.array_shapes(min_dims=0, max_dims=max_dims, min_side=0, max_side=5)
    return {name: draw(arrays.arrays(draw(DTYPES), draw(shapes))) for name in sorted(names)}


def check_equal(found, expected):
    assert set(found) == set(expected)
    assert len(found) == len(expected)
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        assert found[name].shape == values.shape
        np.testing.assert_array_equal(found[name], values)


def folders(path):
    gc.collect()
    return sorted(path.iterdir())


@given(named())
def test_shelf__gives_back_what_was_put_on_it(tmp_path, given_arrays):
    shelf = shelve(given_arrays, str(tmp_path / "scratch"))
    check_equal(shelf, given_arrays)
    check_equal(dict(shelf), given_arrays)
    assert shelf.nbytes == sum(values.nbytes for values in given_arrays.values())
    assert shelve(shelf, str(tmp_path / "elsewhere")) is shelf
    assert not (tmp_path / "elsewhere").exists()


@given(named(), st.integers(0, 5), st.integers(0, 5))
def test_part__equals_slicing(tmp_path, given_arrays, first, last):
    shelf = shelve(given_arrays, str(tmp_path))
    for name, values in given_arrays.items():
        if values.ndim:
            low, high = sorted((min(first, values.shape[0]), min(last, values.shape[0])))
            for found in (part(shelf, name, low, high), part(given_arrays, name, low, high)):
                np.testing.assert_array_equal(found, values[low:high])
                assert (found.dtype, found.shape) == (values.dtype, values[low:high].shape)
            np.testing.assert_array_equal(shelf.part(name, low, None), values[low:])


@given(named(), st.integers(0, 5), st.integers(0, 5))
def test_writer__puts_portions_behind_one_another(tmp_path, given_arrays, one, two):
    writer = ShelfWriter(str(tmp_path))
    low, high = sorted((one, two))
    rows = {name: values for name, values in given_arrays.items() if values.ndim}
    for first, last in ((0, low), (low, high), (high, 5)):
        writer.add({name: values[first:last] for name, values in rows.items()})
    writer.add({name: values for name, values in given_arrays.items() if not values.ndim})
    check_equal(writer.finish(), given_arrays)


def test_writer__takes_arrays_that_are_not_contiguous(tmp_path):
    table = np.arange(12).reshape(3, 4)
    given_arrays = {"rows": table.T, "steps": np.arange(10)[::3], "column": table[:, 1]}
    check_equal(shelve(given_arrays, str(tmp_path)), given_arrays)


def test_shelf__takes_its_files_with_it(tmp_path):
    shelf = shelve({"a": np.arange(3)}, str(tmp_path))
    other = shelve({"a": np.arange(4)}, str(tmp_path))
    assert len(folders(tmp_path)) == 2
    held = shelf["a"]
    del shelf
    assert len(folders(tmp_path)) == 1
    np.testing.assert_array_equal(held, np.arange(3))
    check_equal(other, {"a": np.arange(4)})
    del other
    assert folders(tmp_path) == []


def test_shelf__begins_another_beside_it(tmp_path):
    shelf = shelve({"a": np.arange(3)}, str(tmp_path))
    writer = shelf.writer()
    writer.add({"b": np.zeros((2, 0))})
    other = writer.finish()
    assert len(folders(tmp_path)) == 2
    del shelf, writer
    assert len(folders(tmp_path)) == 1
    check_equal(other, {"b": np.zeros((2, 0))})


@given(named())
def test_shelf__is_pickled_as_a_plain_dict(tmp_path, given_arrays):
    shelf = shelve(given_arrays, str(tmp_path))
    for protocol in (4, pickle.HIGHEST_PROTOCOL):
        found = pickle.loads(pickle.dumps(shelf, protocol))
        assert type(found) is dict
        check_equal(found, given_arrays)
    assert isinstance(shelf, Shelf)


def test_shelf__knows_only_what_it_holds(tmp_path):
    shelf = shelve({"a": np.arange(3)}, str(tmp_path))
    assert "b" not in shelf
    with pytest.raises(KeyError):
        shelf["b"]
