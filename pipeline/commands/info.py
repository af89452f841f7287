"""Say what a folder is (a corpus, a run, a comparison or a model) and what it holds."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from collapsar.pipeline.commands.options import add_json, print_json

HELP = "say what a corpus, run, comparison or model is"


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("path", metavar="PATH", help="a folder")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Print what the folder is."""
    from collapsar.pipeline.inspection import info

    found = info(arguments.path)
    if arguments.json:
        print_json(found)
        return
    for name, value in found.items():
        number = type(value) is int and name != "seed"
        shown = f"{value:,}" if number else value if isinstance(value, str) else json.dumps(value)
        print(f"{name:11} {shown}")
