"""Random numbers inside kernels: number i of a stream is a hash of its key and i, so that each can be made alone.

The hash is the finaliser of SplitMix64 (Steele, Lea and Flood 2014), twice, with half of the key before each.
"""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.jit import Array, Number, helper

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
_UNUSED, _UNIT = np.uint64(11), 2.0**-53


@helper
def mixed(bits: Number) -> Number:
    """Mix the bits of a whole number so that any change of it changes half of them (the finaliser of splitmix64)."""
    bits = (bits ^ (bits >> _SHIFTS[0])) * _FIRST
    bits = (bits ^ (bits >> _SHIFTS[1])) * _SECOND
    return bits ^ (bits >> _SHIFTS[2])


@helper
def uniform(key: Array, number: int) -> Number:
    """Return a stream's number `number`, uniform on [0, 1) in steps of 2^-53."""
    bits = mixed(key[1] ^ mixed(key[0] + np.uint64(number) * _STEP))
    return np.float64(bits >> _UNUSED) * _UNIT
