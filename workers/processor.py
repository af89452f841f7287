"""Describe the processor of a process, as far as results depend on it."""

from __future__ import annotations

import functools
import platform

import numpy as np

from collapsium.storage.runs.model import Processor


@functools.cache
def processor(blas: bool) -> Processor:
    """Return the description of this process's processor."""
    from collapsium.workers.kernels import target as compilation

    compilation_target = compilation.target()
    return Processor(
        machine=compilation_target.triple,
        kernels=compilation_target.processor,
        features=compilation_target.features,
        library=" ".join(platform.libc_ver()).strip() or platform.system(),
        blas=_blas() if blas else "",
    )


def _blas() -> str:
    """Return the name and the core type of the library that NumPy has loaded."""
    import threadpoolctl

    folder = np.__path__[0].rstrip("/")
    libraries = [library for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
    # SciPy may have loaded another library.
    own = [library for library in libraries if str(library["filepath"]).startswith((folder, f"{folder}.libs"))]
    names = {f"{library['internal_api']} {library.get('architecture', '')}".strip() for library in own or libraries}
    return ", ".join(sorted(names))
