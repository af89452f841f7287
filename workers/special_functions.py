"""Logarithms, exponentials and special functions that have the same bits on all processors with one target.

NumPy's own logarithms and exponentials are others on processors with AVX-512, so these are compiled; SciPy's functions
call the C library's. Compiler and SciPy are imported when the first function is called: the modules of families load
fast.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

LOG, EXP, LOG1P, EXPM1 = range(4)  # as `kernels.special.elementary` numbers them


def log(x: npt.ArrayLike) -> Any:
    """Return the natural logarithm."""
    return _elementary(LOG, x)


def exp(x: npt.ArrayLike) -> Any:
    """Return the exponential."""
    return _elementary(EXP, x)


def log1p(x: npt.ArrayLike) -> Any:
    """Return log(1 + x)."""
    return _elementary(LOG1P, x)


def expm1(x: npt.ArrayLike) -> Any:
    """Return exp(x) - 1."""
    return _elementary(EXPM1, x)


def _elementary(which: int, x: npt.ArrayLike) -> Any:
    from collapsium.workers.kernels.special import elementary

    values = np.array(x, dtype=np.float64, order="C")
    elementary(which, values.reshape(-1))
    return values[()]


def betaln(a: npt.ArrayLike, b: npt.ArrayLike) -> Any:
    """Return log B(a, b)."""
    from scipy import special

    return special.betaln(a, b)


def digamma(x: npt.ArrayLike) -> Any:
    """Return the derivative of log Gamma(x)."""
    from scipy import special

    return special.digamma(x)


def gammaln(x: npt.ArrayLike) -> Any:
    """Return log |Gamma(x)|."""
    from scipy import special

    return special.gammaln(x)


def polygamma(n: int, x: npt.ArrayLike) -> Any:
    """Return the derivative n of digamma(x)."""
    from scipy import special

    return special.polygamma(n, x)


def xlogy(x: npt.ArrayLike, y: npt.ArrayLike) -> Any:
    """Return x log(y), 0 where x = 0."""
    from scipy import special

    return special.xlogy(x, y)
