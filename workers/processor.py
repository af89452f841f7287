"""The processor that a process computes on, as far as results depend on it."""

from __future__ import annotations

import functools
import platform

from collapsium.storage.runs.processor import Processor
from collapsium.workers.kernels.target import target


@functools.cache
def processor(blas: bool) -> Processor:
    """Describe the processor of this process.

    Parameters
    ----------
    blas : bool
        Whether results depend on NumPy's linear algebra too.

    Returns
    -------
    Processor
        The description.
    """
    chosen = target()
    return Processor(
        machine=chosen.triple,
        kernels=chosen.processor,
        features=chosen.features,
        library=" ".join(platform.libc_ver()).strip() or platform.system(),
        blas=_blas() if blas else "",
    )


def _blas() -> str:
    """Return the name and the core type of the library that NumPy has loaded."""
    import numpy as np
    from threadpoolctl import threadpool_info

    place = np.__path__[0].rstrip("/")  # SciPy brings another one
    found = [one for one in threadpool_info() if one["user_api"] == "blas"]
    ours = [one for one in found if str(one["filepath"]).startswith((place, f"{place}.libs"))] or found
    return ", ".join(sorted({f"{one['internal_api']} {one.get('architecture', '')}".strip() for one in ours}))
