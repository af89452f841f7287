"""List the published versions of a batch job; an asterisk marks the current one."""

from __future__ import annotations

from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import JsonOptions, argument, print_json


def execute(
    job: Annotated[str, argument("JOB.toml", "configuration of the job")],
    /,
    *,
    output: JsonOptions,
) -> None:
    """Print the versions."""
    published = pipeline.versions(job)
    if output.as_json:
        print_json([{**version.model_dump(mode="json"), "current": current} for version, current in published])
        return
    if not published:
        print(f"{job}: no version has been published yet")
    for version, current in published:
        score = f"  {version.score_text}" if version.score_text else ""
        before = (
            ""
            if version.previous is None
            else f" (version {version.previous['version']}: {version.previous['score']:.5g})"
        )
        unknown = "" if version.unknown_share is None else f"  {version.unknown_share:.1%} of the added tokens unknown"
        size = f"{version.documents:,} {version.holds}{unknown}  {version.iterations} iterations"
        print(f"{'*' if current else ' '} {version.number}  {version.created}  {version.family}  {size}{score}{before}")
