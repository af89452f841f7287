import gc
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from collapsium.workers.arrays.spill import SpillFiles, SpillWriter, read_rows, spill

DTYPES = st.sampled_from([np.uint16, np.int32, np.int64, np.float32, np.float64]).map(np.dtype)


@st.composite
def named_arrays(draw, max_dims=2):
    """Return named arrays: scalars, empty arrays and tables."""
    names = draw(st.sets(st.sampled_from(["age", "lists", "shares", "counts"]), min_size=1))
    shapes = arrays.array_shapes(min_dims=0, max_dims=max_dims, min_side=0, max_side=5)
    return {name: draw(arrays.arrays(draw(DTYPES), draw(shapes))) for name in sorted(names)}


def check_equal(restored, expected):
    assert set(restored) == set(expected)
    assert len(restored) == len(expected)
    for name, values in expected.items():
        assert restored[name].dtype == values.dtype
        assert restored[name].shape == values.shape
        np.testing.assert_array_equal(restored[name], values)


def folders(path):
    gc.collect()
    return sorted(path.iterdir())


@given(named_arrays())
def test_spill_files__contain_the_spilled_arrays(tmp_path, given_arrays):
    spilled = spill(given_arrays, str(tmp_path / "scratch"))
    check_equal(spilled, given_arrays)
    check_equal(dict(spilled), given_arrays)
    assert spilled.nbytes == sum(values.nbytes for values in given_arrays.values())
    assert spill(spilled, str(tmp_path / "elsewhere")) is spilled
    assert not (tmp_path / "elsewhere").exists()


@given(named_arrays(), st.integers(0, 5), st.integers(0, 5))
def test_part__equals_slicing(tmp_path, given_arrays, first, last):
    spilled = spill(given_arrays, str(tmp_path))
    for name, values in given_arrays.items():
        if values.ndim:
            low, high = sorted((min(first, values.shape[0]), min(last, values.shape[0])))
            for restored in (read_rows(spilled, name, low, high), read_rows(given_arrays, name, low, high)):
                np.testing.assert_array_equal(restored, values[low:high])
                assert (restored.dtype, restored.shape) == (values.dtype, values[low:high].shape)
            np.testing.assert_array_equal(spilled.read_rows(name, low, None), values[low:])


@given(named_arrays(), st.integers(0, 5), st.integers(0, 5))
def test_writer__writes_successive_chunks(tmp_path, given_arrays, some_rows, other_rows):
    writer = SpillWriter(str(tmp_path))
    low, high = sorted((some_rows, other_rows))
    rows = {name: values for name, values in given_arrays.items() if values.ndim}
    for first, last in ((0, low), (low, high), (high, 5)):
        writer.add({name: values[first:last] for name, values in rows.items()})
    writer.add({name: values for name, values in given_arrays.items() if not values.ndim})
    check_equal(writer.finish(), given_arrays)


def test_writer__accepts_arrays_that_are_not_contiguous(tmp_path):
    table = np.arange(12).reshape(3, 4)
    given_arrays = {"rows": table.T, "steps": np.arange(10)[::3], "column": table[:, 1]}
    check_equal(spill(given_arrays, str(tmp_path)), given_arrays)


def test_spill_files__are_removed_with_the_last_reference(tmp_path):
    spilled = spill({"a": np.arange(3)}, str(tmp_path))
    second = spill({"a": np.arange(4)}, str(tmp_path))
    assert len(folders(tmp_path)) == 2
    values_read = spilled["a"]
    del spilled
    assert len(folders(tmp_path)) == 1
    np.testing.assert_array_equal(values_read, np.arange(3))
    check_equal(second, {"a": np.arange(4)})
    del second
    assert folders(tmp_path) == []


def test_spill_files__provide_a_writer_for_new_files(tmp_path):
    spilled = spill({"a": np.arange(3)}, str(tmp_path))
    writer = spilled.writer()
    writer.add({"b": np.zeros((2, 0))})
    second = writer.finish()
    assert len(folders(tmp_path)) == 2
    del spilled, writer
    assert len(folders(tmp_path)) == 1
    check_equal(second, {"b": np.zeros((2, 0))})


@given(named_arrays())
def test_spill_files__are_pickled_as_a_plain_dictionary(tmp_path, given_arrays):
    spilled = spill(given_arrays, str(tmp_path))
    for protocol in (4, pickle.HIGHEST_PROTOCOL):
        restored = pickle.loads(pickle.dumps(spilled, protocol))
        assert type(restored) is dict
        check_equal(restored, given_arrays)
    assert isinstance(spilled, SpillFiles)


def test_spill_files__lack_arrays_that_were_not_spilled(tmp_path):
    spilled = spill({"a": np.arange(3)}, str(tmp_path))
    assert "b" not in spilled
    with pytest.raises(KeyError):
        spilled["b"]
