"""Make an older version of a batch job the current one, at once.

The next batch that finds something new compares with it, and begins from it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

HELP = "make an older version of a batch job the current one"
EPILOG = """examples:
  collapsium rollback job.toml
  collapsium rollback job.toml --to 3"""


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("job", metavar="JOB.toml", help="the job")
    parser.add_argument("--to", type=int, metavar="N", help="which version (default: the one before the current one)")


def run(arguments: argparse.Namespace) -> None:
    """Do it, and say which it is."""
    from collapsium.pipeline.workflows.batch.job import rollback

    print(f"{arguments.job}: version {rollback(arguments.job, to=arguments.to)} is current")
