"""Check a corpus, run, comparison, checkpoint or model against its digests.

Also what must be true of it: that a corpus's numbers add up, that expected counts
are conserved and that probabilities sum to one. Names each file that is broken,
and exits with 1 then.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict

from collapsium.pipeline.cli.options import add_json
from collapsium.pipeline.cli.output import print_json

HELP = "check a corpus, run, comparison or model, and name what is broken"


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("path", metavar="PATH", help="a folder")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print what is broken."""
    from collapsium.pipeline.analysis.verify import verify
    from collapsium.pipeline.formatting import counted
    from collapsium.pipeline.monitoring.console import counting

    with counting("verifying", "parts") as progress:
        found = verify(arguments.path, progress=progress)
    if arguments.json:
        print_json(asdict(found))
        return bool(found.broken)
    for text in found.notes:
        print(f"note: {text}")
    for text in found.broken:
        print(f"broken: {text}", file=sys.stderr)
    if found.broken:
        print(f"{arguments.path}: {counted(len(found.broken), 'fault')} in a {found.kind}", file=sys.stderr)
        return 1
    print(f"{arguments.path}: a {found.kind}, all well ({counted(found.parts, 'part')} checked)")
    return 0
