"""Check a corpus, run, comparison, checkpoint or model against its digests.

Also what must be true of it: that a corpus's numbers add up, that expected counts
are conserved and that probabilities sum to one. Names each file that is broken,
and exits with 1 then.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

from collapsium.pipeline.cli.command import Command, Flags, argument
from collapsium.pipeline.cli.options import JsonOptions
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.console import counting


def execute(path: Annotated[str, argument("PATH", "a folder")], /, flags: Flags) -> int:
    """Print what is broken."""
    from collapsium.pipeline.analysis.verify import verify

    with counting("verifying", "parts") as progress:
        found = verify(path, progress=progress)
    if flags.json:
        print_json(asdict(found))
        return bool(found.broken)
    for text in found.notes:
        print(f"note: {text}")
    for text in found.broken:
        print(f"broken: {text}", file=sys.stderr)
    if found.broken:
        print(f"{path}: {counted(len(found.broken), 'fault')} in a {found.kind}", file=sys.stderr)
        return 1
    print(f"{path}: a {found.kind}, all well ({counted(found.parts, 'part')} checked)")
    return 0


COMMAND = Command(execute, (JsonOptions,))
