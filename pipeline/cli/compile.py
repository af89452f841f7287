"""The command `collapsium compile`."""

from __future__ import annotations

import time

from collapsium.pipeline.formatting import counted
from collapsium.storage.errors import MissingError


def compile() -> None:  # noqa: A001
    """Compile all numerical code now, so that no later command waits for it.

    Fits compile the kernels that they need when they first run on a machine. This command
    compiles all of them into the cache of the user, or into the folder that NUMBA_CACHE_DIR
    names: for the image of a container, or before a cluster starts. The code is compiled
    for x86-64 with AVX2 and FMA if the processor has them, so that all machines with such
    processors can use the same cache.
    """
    from collapsium.workers.kernels import child_processes, jit

    folder = jit.cache_folder()
    if folder is None:
        raise MissingError("no folder for compiled code can be written; name one with NUMBA_CACHE_DIR")
    kernels = jit.all_kernels()
    missing = len(child_processes.missing_kernels(kernels))
    began = time.monotonic()
    child_processes.fill_cache(kernels)
    left = len(child_processes.missing_kernels(kernels))
    if left:
        raise MissingError(f"{left} of {len(kernels)} kernels could not be compiled; there may be too little memory")
    seconds = time.monotonic() - began
    print(f"{folder}: {counted(missing, 'kernel')} compiled in {seconds:.0f} s, {len(kernels)} in all")
