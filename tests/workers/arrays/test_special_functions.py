import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.kernels.special import digamma, tetragamma, trigamma

pytestmark = pytest.mark.kernels


def ours(x):
    return [np.array([function(value) for value in x]) for function in (digamma, trigamma, tetragamma)]


def check_polygammas(x):
    for order, found in enumerate(ours(x)):
        exact = scipy.special.polygamma(order, x)
        np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-10)


def test_polygammas__agree_with_scipy_over_twenty_orders_of_magnitude():
    check_polygammas(np.concatenate([np.geomspace(1e-8, 1e12, 2001), np.linspace(0.5, 40, 2001)]))


@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=20))
def test_polygammas__agree_with_scipy(values):
    check_polygammas(np.array(values))


def test_polygammas__satisfy_the_recurrence():
    x = np.geomspace(1e-3, 1e3, 200)
    first, second, third = ours(x)
    up = ours(x + 1)
    np.testing.assert_allclose(up[0] - first, 1 / x, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(second - up[1], 1 / x**2, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(up[2] - third, 2 / x**3, rtol=1e-9, atol=1e-12)
