"""The processor that kernels are compiled for.

Additions and multiplications are fused, and sums are split into as many parts as a vector register holds, as the
compiler sees fit for a processor; results differ in their last places from one target to another. So kernels are
compiled for one target, x86-64-v3 (AVX2 and FMA: Intel since Haswell, AMD since Excavator), on all processors that run
it. The variants of the C library's functions depend on the processor too, but not among those with AVX2 and FMA.

Machine code for processors with AVX-512 takes as long, as memory is what sweeps wait for (seconds a sweep, KOS, 120
topics, for AVX-512 and for x86-64-v3: `lda` 0.067 and 0.066, `hdp` 0.134 and 0.138, `ncrp` 0.58 and 0.52, `hdsp` 0.042
and 0.044, `vb-lda` 0.089 and 0.110; that for x86-64-v2 takes 0.077, 0.151, 0.54, 0.077 and 0.165).
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from llvmlite import binding
from numba.core import config
from numba.core.caching import FunctionCache
from numba.core.registry import cpu_target
from numba.core.typing import Signature
from numba.np import linalg

V3 = (
    "avx", "avx2", "bmi", "bmi2", "cmov", "cx16", "cx8", "f16c", "fma", "fxsr", "lzcnt", "mmx", "movbe", "popcnt",
    "sahf", "sse", "sse2", "sse3", "sse4.1", "sse4.2", "ssse3", "xsave",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A processor as the compiler has it."""

    triple: str  # LLVM's name of the architecture and system
    processor: str  # LLVM's name of the processor
    features: str  # Its instruction sets, each with a plus

    def __str__(self) -> str:
        """Return all three in a line."""
        return f"{self.triple} {self.processor} {self.features}"


@functools.cache
def target() -> Target:
    """Return what kernels are compiled for on this machine."""
    triple, features = binding.get_process_triple(), binding.get_host_cpu_features()
    named = os.environ.get("NUMBA_CPU_NAME")
    if named:
        return Target(triple, named, os.environ.get("NUMBA_CPU_FEATURES", ""))
    if triple.startswith("x86_64") and all(features.get(name) for name in V3):
        return Target(triple, "x86-64-v3", ",".join(f"+{name}" for name in V3))
    return Target(triple, binding.get_host_cpu_name(), features.flatten())


@functools.cache
def compile_for_target() -> bool:
    """Set this process's compiler to the target; return whether it is, which other code may have kept from it."""
    _import_array_functions()
    chosen = target()
    if "_toplevel_target_context" in vars(cpu_target):  # other code has compiled something in this process before
        _, _, features = cpu_target.target_context.codegen().magic_tuple()
        return (config.CPU_NAME, features) == (chosen.processor, chosen.features)
    previous = config.CPU_NAME, config.CPU_FEATURES
    config.CPU_NAME, config.CPU_FEATURES = chosen.processor, chosen.features
    try:
        cpu_target.target_context.codegen()  # there is one a process, with what is set when it is made
    finally:
        config.CPU_NAME, config.CPU_FEATURES = previous
    return True


def _import_array_functions() -> None:
    """Import the compiler's array functions without SciPy's linear algebra, which no kernel calls.

    The compiler imports it only to check that it is installed, which takes 0.3 s of CPU time at the start of every fit.
    Other code of this process that does call it finds it as always: only the question is answered here.
    """
    if "numba.np.arraymath" in sys.modules or find_spec("scipy") is None:
        return
    ensure_blas = linalg.ensure_blas
    linalg.ensure_blas = lambda: None
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = ensure_blas


def machine_code_cache(function: Callable[..., object]) -> FunctionCache:
    """Return numba's cache of a function's machine code, under the name of the target in every process."""

    class Named:
        @staticmethod
        def magic_tuple() -> tuple[str, str, str]:
            chosen = target()
            return chosen.triple, chosen.processor, chosen.features

    class Cache(FunctionCache):  # type: ignore[misc]
        def _index_key(self, signature: Signature, codegen: object) -> tuple[object, ...]:  # noqa: ARG002
            key: tuple[object, ...] = super()._index_key(signature, Named)
            return key

    return Cache(function)
