"""Watch a run, on this machine or any other, by the events in its folder.

The folder is local or a URL that fsspec knows. The run may not have begun yet, may be
interrupted and resumed meanwhile, or may have ended. The exit code is 0 once the run ends,
however it does, and 1 if there is none, or nobody works on it, for --patience seconds.

In a terminal, what is shown changes in place; else there is a line every two seconds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from collapsium.pipeline.cli.options import add_json, add_log_format
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.executors.base import PATIENCE

HELP = "watch a run, here or elsewhere"
EPILOG = """examples:
  collapsium watch run
  collapsium watch s3://bucket/run --once"""


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    from collapsium.pipeline.monitoring.follow import EVERY

    parser.add_argument("run", metavar="RUN", help="folder of a run, there or to come")
    parser.add_argument("--once", action="store_true", help="print how it stands, and end")
    parser.add_argument(
        "--every", type=_positive, default=EVERY, metavar="S", help=f"seconds between two looks (default: {EVERY:g})"
    )
    parser.add_argument(
        "--patience",
        type=_positive,
        default=PATIENCE,
        metavar="S",
        help=f"seconds without a run, or anyone who works on it, after which it is given up (default: {PATIENCE:.0f})",
    )
    add_log_format(parser)
    add_json(parser)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds above 0, found {text}")
    return value


def run(arguments: argparse.Namespace) -> None:
    """Follow the run."""
    from collapsium.pipeline.monitoring.console import LogLines, RunView, shown
    from collapsium.pipeline.monitoring.follow import follow, so_far

    if arguments.once or arguments.json:
        events, state = so_far(arguments.run)
        if arguments.json:
            print_json(_record(arguments.run, events, state))
            return
        shown(events, state, sys.stdout)
        return
    views: list[RunView] = []

    def view() -> RunView:
        for one in views:
            one.close()
        views[:] = [RunView(behind=True, form=arguments.log_format)]
        return views[0]

    def say(text: str) -> None:
        LogLines(form=arguments.log_format).write(text)

    try:
        follow(arguments.run, view, patience=arguments.patience, every=arguments.every, say=say)
    finally:
        for one in views:
            one.close()


def _record(run: str, events: Sequence[dict[str, Any]], state: str) -> dict[str, Any]:
    """Say in one object how a run stands: its last iteration, and what is known besides."""
    from collapsium.pipeline.monitoring.run_status import Picture

    picture = Picture()
    for event in events:
        picture.add(event)
    course = picture.course
    found = {"run": run, "state": state, "family": picture.family, "iterations": picture.planned, **course.event}
    for name in ("event", "top_words"):
        found.pop(name, None)
    left = None if picture.ended else course.left(picture.planned)
    return {**found, "left": left, "words": course.words, "words_iteration": course.words_at}
