"""Say what a folder is (a corpus, a run, a comparison or a model) and what it holds."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

from collapsium.pipeline.cli.options import add_json
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.formatting import counted, plain

_SAY: dict[str, Callable[[dict[str, Any]], str]] = {
    "labels": lambda one: (
        f"{counted(one['values'], 'value')}, {counted(one['labels'], 'label')} in "
        f"{counted(one['documents'], 'document')}"
    ),
    "covariates": lambda one: (
        f"in {counted(one['documents'], 'document')}"
        + (f", from {one['least']:g} to {one['most']:g}, mean {one['mean']:g}" if one["documents"] else "")
    ),
}
HELP = "say what a corpus, run, comparison or model is"


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("path", metavar="PATH", help="a folder")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Print what the folder is."""
    from collapsium.pipeline.analysis.info import info

    found = info(arguments.path)
    if arguments.json:
        print_json(found)
        return
    for name, value in found.items():
        if found["kind"] == "corpus" and name in _SAY:
            for field, one in value.items():
                print(f"{name:11} {plain(field)}: {_SAY[name](one)}")
            continue
        if found["kind"] == "corpus" and name == "segments":
            print(
                f"{name:11} {value['count']:,}, {value['mean']:.1f} a document, {value['most']:,} at most; "
                f"{value['empty']:,} without a word"
            )
            continue
        number = type(value) is int and name != "seed"
        shown = f"{value:,}" if number else value if isinstance(value, str) else json.dumps(value)
        print(f"{name:11} {shown}")
