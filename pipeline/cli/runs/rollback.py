"""Make an older version of a batch job the current one.

The next job with new documents compares its model with that version and starts
from it.
"""

from __future__ import annotations

from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import argument, named_options
from collapsium.pipeline.workflows.batch.job_file import RollbackOptions

EPILOG = """examples:
  collapsium rollback job.toml
  collapsium rollback job.toml --to 3"""


def execute(
    job: Annotated[str, argument("JOB.toml", "configuration of the job")],
    /,
    *,
    options: RollbackOptions,
) -> None:
    """Roll back, and print the number of the current version."""
    print(f"{job}: version {pipeline.rollback(job, **named_options(options))} is current")
