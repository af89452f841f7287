"""Make an older version of a batch job the current one, at once.

The next batch that finds something new compares with it, and begins from it.
"""

from __future__ import annotations

from typing import Annotated

from collapsium.pipeline.cli.command import Command, Flags, argument
from collapsium.pipeline.workflows.batch.options import RollbackOptions

EPILOG = """examples:
  collapsium rollback job.toml
  collapsium rollback job.toml --to 3"""


def execute(job: Annotated[str, argument("JOB.toml", "the job")], /, flags: Flags) -> None:
    """Do it, and say which it is."""
    from collapsium.pipeline.workflows.batch.job import rollback

    print(f"{job}: version {rollback(job, **flags.given(RollbackOptions))} is current")


COMMAND = Command(execute, (RollbackOptions,), epilog=EPILOG)
