"""List the published versions of a batch job, the current one with an asterisk."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from collapsium.pipeline.cli.options import add_json
from collapsium.pipeline.cli.output import print_json

HELP = "list the published versions of a batch job"


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("job", metavar="JOB.toml", help="the job")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """List them."""
    from collapsium.pipeline.workflows.batch.job import versions

    found = versions(arguments.job)
    if arguments.json:
        print_json([{**one.model_dump(mode="json"), "current": current} for one, current in found])
        return
    if not found:
        print(f"{arguments.job}: nothing is published yet")
    for one, current in found:
        score = f"  {one.score_text}" if one.score_text else ""
        before = "" if one.previous is None else f" (version {one.previous['version']}: {one.previous['score']:.5g})"
        unknown = "" if one.unknown_share is None else f"  {one.unknown_share:.1%} of the added tokens unknown"
        size = f"{one.documents:,} {one.holds}{unknown}  {one.iterations} iterations"
        print(f"{'*' if current else ' '} {one.number}  {one.created}  {one.family}  {size}{score}{before}")
