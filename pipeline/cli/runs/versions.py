"""List the published versions of a batch job; an asterisk marks the current one."""

from __future__ import annotations

from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import argument
from collapsium.pipeline.cli.options import JsonOptions
from collapsium.pipeline.cli.output import print_json


def execute(
    job: Annotated[str, argument("JOB.toml", "configuration of the job")],
    /,
    *,
    output: JsonOptions,
) -> None:
    """Print the versions."""
    published = pipeline.versions(job)
    if output.as_json:
        print_json([{**one.model_dump(mode="json"), "current": current} for one, current in published])
        return
    if not published:
        print(f"{job}: no version has been published yet")
    for one, current in published:
        score = f"  {one.score_text}" if one.score_text else ""
        before = "" if one.previous is None else f" (version {one.previous['version']}: {one.previous['score']:.5g})"
        unknown = "" if one.unknown_share is None else f"  {one.unknown_share:.1%} of the added tokens unknown"
        size = f"{one.documents:,} {one.holds}{unknown}  {one.iterations} iterations"
        print(f"{'*' if current else ' '} {one.number}  {one.created}  {one.family}  {size}{score}{before}")
