"""Fixtures of kernels' tests."""

import numpy as np
import pytest


@pytest.fixture
def wrapping():
    """Silence NumPy's warnings about integers that wrap around by design, when the compiler is off."""
    with np.errstate(over="ignore"):
        yield
