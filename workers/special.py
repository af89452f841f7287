"""Special functions of SciPy, which is imported when the first of them is called: the modules of families load fast."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt


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
