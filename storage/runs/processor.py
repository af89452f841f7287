"""Records of processors, on which the last bits of a fit may depend."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(max_length=10_000)]


class Processor(BaseModel):
    """A processor and the libraries by which the last bits of results may differ between machines."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    machine: Text  # Architecture and operating system
    # LLVM's names of the processor that kernels are compiled for, and of its instruction sets
    kernels: Text
    features: Text
    library: Text  # The C library and its version
    # The processor for which NumPy's linear algebra chose its code; empty for families that do not use it
    blas: Text = ""
