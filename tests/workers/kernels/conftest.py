"""Fixtures for the tests of kernels."""

import numpy as np
import pytest


@pytest.fixture
def wrapping():
    """Silence NumPy's warnings about integers that wrap around by design, for interpreted kernels."""
    with np.errstate(over="ignore"):
        yield
