"""Options of batch jobs on the command line, which are not part of their files."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from collapsium.pipeline.options import Options, Value


class BatchOptions(Options):
    """Acceptance of the new model."""

    accept: bool = Field(False, description="publish the new model even if it scores worse")


class RollbackOptions(Options):
    """The version to make the current one."""

    to: Annotated[int | None, Value("N")] = Field(
        None, description="number of the version (default: the one before the current version)"
    )
