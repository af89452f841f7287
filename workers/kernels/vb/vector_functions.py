"""Logarithms, exponentials and digamma over arrays.

They are written out, with the bits of a double as integers, so that the compiler vectorises them over the topics.
"""

from __future__ import annotations

import math

import numpy as np

from collapsium.workers.kernels.argument_types import Array, Float64Vector, OutFloat64Vector
from collapsium.workers.kernels.jit import helper, kernel

SQRT_HALF_BITS = 0x3FE6A09E667F3BCD  # The bits of sqrt(1/2), read as an integer

LN2, PER_LN2, HALF_LOG_2PI = math.log(2.0), 1.0 / math.log(2.0), 0.5 * math.log(2.0 * math.pi)


@helper
def logarithms(x: Array, work: Array, bits: Array, out: Array) -> None:
    """Fill log x, to 1e-15, of normal numbers above 0; `bits` is a view of `work` as integers."""
    # With x = 2^e m, sqrt(1/2) <= m < sqrt(2), and f = (m - 1)/(m + 1): log m = 2 (f + f^3/3 + f^5/5 + ...).
    for k in range(x.size):
        work[k] = x[k]
    for k in range(x.size):
        exponent = (bits[k] - SQRT_HALF_BITS) >> 52
        bits[k] -= exponent << 52
        out[k] = exponent
    for k in range(x.size):
        f = (work[k] - 1.0) / (work[k] + 1.0)
        r = f * f
        high = 1 / 11 + r * (1 / 13 + r * (1 / 15 + r * (1 / 17 + r * (1 / 19))))
        series = 1 + r * (1 / 3 + r * (1 / 5 + r * (1 / 7 + r * (1 / 9 + r * high))))
        out[k] = out[k] * LN2 + 2.0 * f * series


@helper
def exponentials(x: Array, work: Array, bits: Array, out: Array) -> None:
    """Fill exp x, to 1e-13, for -700 <= x <= 0: 2^n times a polynomial of the remainder; `bits` as for `logarithms`."""
    for k in range(x.size):
        # Truncated towards zero, which is to the nearest here.
        n = np.int32(x[k] * PER_LN2 - 0.5)
        bits[k] = (np.int64(n) + 1023) << 52
        r = x[k] - n * LN2
        high = 1 / 720 + r * (1 / 5040 + r * (1 / 40320 + r * (1 / 362880 + r * (1 / 3628800 + r * (1 / 39916800)))))
        out[k] = 1 + r * (1 + r * (1 / 2 + r * (1 / 6 + r * (1 / 24 + r * (1 / 120 + r * high)))))
    for k in range(x.size):
        out[k] *= work[k]


@helper
def digammas(x: Array, work: Array, bits: Array, out: Array) -> None:
    """Fill psi(x), to 1e-12, for 1e-12 <= x <= 1e30: the series at z = x + 8, less 1/x + 1/(x+1) + ... + 1/(x+7)."""
    # With y = x (x + 7), the last sum is (2x + 7) ( 1/y + 1/(y+6) + 1/(y+10) + 1/(y+12) ).
    for k in range(x.size):
        work[k] = x[k] + 8.0
    logarithms(work, work, bits, out)
    for k in range(x.size):
        z, y = x[k] + 8.0, x[k] * (x[k] + 7.0)
        r = 1.0 / z
        r2 = r * r
        series = r2 * (1 / 12 - r2 * (1 / 120 - r2 * (1 / 252 - r2 * (1 / 240 - r2 * (1 / 132)))))
        outer, inner = y * (y + 6.0), (y + 10.0) * (y + 12.0)
        below = (2.0 * x[k] + 7.0) * ((2.0 * y + 6.0) * inner + (2.0 * y + 22.0) * outer) / (outer * inner)
        out[k] += -0.5 * r - series - below


@helper
def log_gammas(x: Array, work: Array, bits: Array, logs: Array, out: Array) -> None:
    """Fill log G(x), to 1e-12 of itself or one, for 1e-12 <= x <= 1e30: at x + 8, less log x (x+1) ... (x+7)."""
    for k in range(x.size):
        y = x[k] * (x[k] + 7.0)
        out[k] = y * (y + 6.0) * (y + 10.0) * (y + 12.0)
    logarithms(out, work, bits, logs)
    for k in range(x.size):
        out[k] = -logs[k]
    for k in range(x.size):
        work[k] = x[k] + 8.0
    logarithms(work, work, bits, logs)
    for k in range(x.size):
        z = x[k] + 8.0
        r = 1.0 / z
        r2 = r * r
        series = r * (1 / 12 - r2 * (1 / 360 - r2 * (1 / 1260 - r2 * (1 / 1680 - r2 * (1 / 1188)))))
        out[k] += (z - 0.5) * logs[k] - z + HALF_LOG_2PI + series


@kernel
def special_functions(
    x: Float64Vector,
    logs: OutFloat64Vector,
    exponential: OutFloat64Vector,
    log_gamma: OutFloat64Vector,
    first: OutFloat64Vector,
) -> None:
    """Fill log x, exp(-x), log G(x) and psi(x), as the kernels above compute them.

    Shapes: `x`, `logs`, `exponential`, `log_gamma`, `first` (n,).
    """
    work, negative = np.zeros(x.size), -x
    bits = work.view(np.int64)
    logarithms(x, work, bits, logs)
    for k in range(x.size):
        negative[k] = max(negative[k], -700.0)
    exponentials(negative, work, bits, exponential)
    log_gammas(x, work, bits, first, log_gamma)
    digammas(x, work, bits, first)
