"""Logarithms, exponentials and special functions that have the same bits on all processors with one target.

NumPy's logarithms and exponentials differ on processors with AVX-512, so these are compiled; SciPy's functions call
the C library's. Compiler and SciPy are imported when the first function is called, so that modules of families load
fast.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.special import elementary

Value: TypeAlias = Any  # A float for a float, an array for an array
LOG, EXP, LOG1P, EXPM1 = range(4)  # Numbers of the functions in `kernels.special.elementary`


def log(x: npt.ArrayLike) -> Value:
    """Return the natural logarithm."""
    return _elementary(LOG, x)


def exp(x: npt.ArrayLike) -> Value:
    """Return the exponential."""
    return _elementary(EXP, x)


def log1p(x: npt.ArrayLike) -> Value:
    """Return log(1 + x)."""
    return _elementary(LOG1P, x)


def expm1(x: npt.ArrayLike) -> Value:
    """Return exp(x) - 1."""
    return _elementary(EXPM1, x)


def _elementary(which: int, x: npt.ArrayLike) -> Value:
    values = np.array(x, dtype=np.float64, order="C")
    elementary(which, values.reshape(-1))
    return values[()]


def betaln(a: npt.ArrayLike, b: npt.ArrayLike) -> Value:
    """Return log B(a, b)."""
    from scipy import special

    return special.betaln(a, b)


def digamma(x: npt.ArrayLike) -> Value:
    """Return the derivative of log Gamma(x)."""
    from scipy import special

    return special.digamma(x)


def gammaln(x: npt.ArrayLike) -> Value:
    """Return log |Gamma(x)|."""
    from scipy import special

    return special.gammaln(x)


def polygamma(n: int, x: npt.ArrayLike) -> Value:
    """Return the derivative n of digamma(x)."""
    from scipy import special

    return special.polygamma(n, x)


def xlogy(x: npt.ArrayLike, y: npt.ArrayLike) -> Value:
    """Return x log(y), 0 where x = 0."""
    from scipy import special

    return special.xlogy(x, y)
