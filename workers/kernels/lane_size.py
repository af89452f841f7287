"""Constants of vectors, for kernels and for the compiler's code of `lanes`."""

from __future__ import annotations

LANES = 8  # Numbers of a vector: a register of AVX2
ONE_BITS = 0x3F800000  # The bits of 1.0 in float32, read as an integer
