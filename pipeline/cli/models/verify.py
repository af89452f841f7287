"""Check a corpus, run, comparison, checkpoint or model for damage.

The command compares all files with their digests, and checks that a corpus's counts
add up, that expected counts are conserved and that probabilities sum to one. It
prints each damaged file, and then exits with 1.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import JsonOptions, argument, print_json
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.console import counting


def execute(
    path: Annotated[str, argument("PATH", "a folder")],
    /,
    *,
    output: JsonOptions,
) -> int:
    """Print the faults, and return 1 if there are any."""
    with counting("verifying", "parts") as progress:
        findings = pipeline.verify(path, progress=progress)
    if output.as_json:
        print_json(asdict(findings))
        return bool(findings.broken)
    for text in findings.notes:
        print(f"note: {text}")
    for text in findings.broken:
        print(f"broken: {text}", file=sys.stderr)
    if findings.broken:
        print(f"{path}: {counted(len(findings.broken), 'fault')} in a {findings.kind}", file=sys.stderr)
        return 1
    print(f"{path}: a {findings.kind}, no faults ({counted(findings.parts, 'part')} checked)")
    return 0
