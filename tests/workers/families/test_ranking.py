"""The largest values of each row are those that a stable sort puts first."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from collapsium.workers.families import description
from collapsium.workers.families.description import largest


@given(
    arrays(np.float64, array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=12), elements=st.sampled_from([-1.0, 0.0, 0.5, 2.0])),
    st.integers(0, 15),
    st.integers(1, 200),
    st.integers(1, 3),
)  # fmt: skip
def test_largest__are_the_first_of_a_stable_sort(values, count, cells, groups):
    expected = np.argsort(-values, axis=1, kind="stable")[:, :count]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(description, "CELLS", cells)
        patch.setattr(description, "GROUPS", groups)
        patch.setattr(description, "MIN_GROUP", 2)
        assert np.array_equal(largest(values, count), expected)
    assert largest(values.T[:, ::-1].T, count).dtype == np.int64


def test_largest__of_many_columns_are_the_first_of_a_stable_sort():
    values = np.random.default_rng(0).gamma(0.1, size=(7, 3000)).round(2)
    assert np.array_equal(largest(values, 9), np.argsort(-values, axis=1, kind="stable")[:, :9])
