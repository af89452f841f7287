import numpy as np
import pytest
import scipy.special

from collapsium.workers.kernels.vb.mean_field import special_functions

pytestmark = pytest.mark.kernels


def test_special_functions__agree_with_scipy_over_twenty_orders_of_magnitude():
    x = np.concatenate([np.geomspace(1e-10, 1e12, 2001), np.linspace(0.5, 40, 501), [1.0, 2.0]])
    logs, exponential, log_gamma, first = (np.empty_like(x) for _ in range(4))
    special_functions(x, logs, exponential, log_gamma, first)
    np.testing.assert_allclose(logs, np.log(x), rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(exponential, np.exp(-np.minimum(x, 700.0)), rtol=1e-12)
    np.testing.assert_allclose(log_gamma, scipy.special.gammaln(x), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(first, scipy.special.digamma(x), rtol=1e-11, atol=1e-11)
