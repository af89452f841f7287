"""Fixtures of kernels' tests."""

import numpy as np
import pytest


@pytest.fixture
def wrapping():
    """With the compiler off NumPy would warn of whole numbers that wrap around, as they shall."""
    with np.errstate(over="ignore"):
        yield
