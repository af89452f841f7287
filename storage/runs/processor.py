"""Processors as records name them: what the bits of a fit depend on beside versions."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(max_length=10_000)]


class Processor(BaseModel):
    """What results may differ by in their last places from one machine to another.

    ``kernels`` and ``features`` are LLVM's names of the processor that kernels are compiled for and of its instruction
    sets, ``machine`` that of the architecture and system, ``library`` the C library and its version, ``blas`` the
    processor that NumPy's linear algebra chose its code for, empty for families that do not use it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    machine: Text
    kernels: Text
    features: Text
    library: Text
    blas: Text = ""
