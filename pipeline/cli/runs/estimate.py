"""Predict what a fit takes, before anything runs.

Memory of each worker process at its peak, disk, and the bytes that move between
processes in an iteration. Where local states do not fit into memory, they lie
on disk; `collapsium fit` refuses, with this table, what cannot fit at all.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import get_args

from collapsium.pipeline.cli.family_options import add_family, gather
from collapsium.pipeline.cli.options import add_json, add_memory, add_scheduler
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.engine.setup.limits import Schedule

HELP = "predict the memory, disk and traffic of a fit"
EPILOG = """examples:
  collapsium estimate train --family hdp --topics 500
  collapsium estimate train --family lda --topics 1000 --scheduler local --workers 8 --memory 4GB"""
NAMES = ("schedule", "restarts", "samples", "scheduler", "workers", "memory", "scratch")


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the command's options."""
    parser.add_argument("corpus", metavar="CORPUS", help="folder of the corpus")
    add_family(parser, argv)
    parser.add_argument("--config", metavar="FILE.toml", help="options by name, as for fit; flags and --set go over it")
    parser.add_argument(
        "--schedule", choices=get_args(Schedule), help="as for fit: stochastic keeps no local states (default: batch)"
    )
    parser.add_argument("--restarts", type=int, metavar="R", help="as for fit: members of an ensemble (default: none)")
    parser.add_argument(
        "--samples", type=int, metavar="S", help="as for fit: states that are kept as models (default: 0)"
    )
    add_scheduler(parser, "threads")
    add_memory(parser)
    parser.set_defaults(scheduler=None)  # so that a configuration file can name it
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Print the plan."""
    family, options = gather(arguments, NAMES)
    from collapsium.pipeline.engine.resources.estimate import estimate
    from collapsium.pipeline.engine.setup.limits import LIMIT_NAMES

    # A fit's file may name them; they do not change what it takes.
    others = {*LIMIT_NAMES, "seed", "heldout", "warm", "keep", "checkpoint_every", "patience", "strict_bits"}
    for name in others - {*NAMES}:
        options.pop(name, None)
    plan = estimate(arguments.corpus, family=family, **options)
    if arguments.json:
        print_json(plan.record())
        return
    print(plan.table())
    problem = plan.problem()
    print(f"\n{'does not fit: ' + problem if problem else 'fits'}")
