"""Options of `collapsium serve`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from collapsium.pipeline.options import Options, Value


class ServeOptions(Options):
    """Address, limits and reading of the service."""

    host: Annotated[str, Value("HOST")] = Field(
        "127.0.0.1", description="address to listen on; the default is reachable only from this machine"
    )
    port: Annotated[int, Value("N")] = Field(8642, ge=0, le=65535, description="port to listen on; 0 for any free one")
    threads: Annotated[int | None, Value("N")] = Field(
        None, ge=1, description="threads that score texts (default: one per core)"
    )
    max_texts: Annotated[int, Value("N")] = Field(4096, ge=1, description="largest number of texts in a request")
    max_bytes: Annotated[int, Value("N", unit="bytes")] = Field(8 << 20, ge=1, description="largest size of a request")
    max_seconds: Annotated[float, Value("S", unit="seconds")] = Field(
        10.0, gt=0, allow_inf_nan=False, description="time in which a request has to arrive"
    )
    max_waiting: Annotated[int, Value("N")] = Field(
        64, ge=1, description="largest number of requests that wait for a thread; others are refused with status 503"
    )
    max_connections: Annotated[int, Value("N")] = Field(512, ge=1, description="largest number of open connections")
    every: Annotated[float, Value("S", unit="seconds")] = Field(
        1.0, gt=0, allow_inf_nan=False, description="time between two checks for a newly published version of a job"
    )
    tokenizer: Annotated[str | None, Value("MODULE:FUNCTION")] = Field(
        None, description="the tokenizer that the run's record names, which runs only if it is named again"
    )
    headings: Annotated[str | None, Value("REGEX")] = Field(
        None, description="the regular expression that the run's record names, which is used only if it is named again"
    )
