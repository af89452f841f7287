"""Fit a model to a corpus, and write a run.

A run is a folder: run.json (what was asked for), events.jsonl (a line an
iteration) and, at the end, model/. Ctrl-C ends a fit early and keeps the model
of the last whole iteration. A held-out corpus is scored after each iteration
and steers nothing, unless --stop-on score is given.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from collapsar.pipeline.commands.options import add_family, add_json, add_memory, add_scheduler, gather, print_json
from collapsar.pipeline.config import ITERATIONS, RUN_NAMES, Limits

HELP = "fit a model family to a corpus"
EPILOG = """examples:
  collapsar fit train run --family hdp --topics 200 --heldout heldout
  collapsar fit train run --family lda --topics 120 --iterations 100 --alpha 0.05 --learn '["alpha"]'
  collapsar fit train run --config fit.toml --scheduler tcp://scheduler:8786

A configuration file holds the same names at its top level:
  family = "hdp"
  topics = 200
  iterations = 300"""


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the command's options."""
    default = Limits()
    parser.add_argument("corpus", metavar="CORPUS", help="folder of the corpus")
    parser.add_argument("out", metavar="RUN", help="folder to make")
    add_family(parser, argv)
    parser.add_argument("--config", metavar="FILE.toml", help="options by name; flags and --set go over it")
    parser.add_argument(
        "--iterations",
        type=int,
        metavar="N",
        help=f"sweeps over the corpus (default: {ITERATIONS}); in the stochastic schedule, minibatches (default: all)",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        metavar="T",
        help="end before, when the relative change of --stop-on falls under it (default: 0, never)",
    )
    parser.add_argument(
        "--stop-on",
        choices=("counts", "objective", "score"),
        help="what the tolerance looks at: the expected counts, the family's objective, or the held-out score "
        f"(default: {default.stop_on})",
    )
    parser.add_argument("--seed", type=int, metavar="S", help="seed of all random numbers (default: 0)")
    parser.add_argument("--heldout", metavar="CORPUS", help="held-out tokens of the same documents, to be scored")
    parser.add_argument(
        "--score-every", type=int, metavar="N", help="iterations between two scores (default: 1, or a pass)"
    )
    _add_schedule(parser, default)
    add_scheduler(parser, "threads")
    add_memory(parser)
    parser.set_defaults(scheduler=None)  # so that a configuration file can name it
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_json(parser)


def _add_schedule(parser: argparse.ArgumentParser, default: Limits) -> None:
    group = parser.add_argument_group("schedule")
    group.add_argument(
        "--schedule",
        choices=("batch", "stochastic"),
        help="batch: each iteration sweeps all shards; stochastic: a minibatch of shards, each moving the topics by a "
        "smaller step, for corpora so large that one pass is enough (default: batch)",
    )
    group.add_argument(
        "--local-sweeps",
        type=int,
        metavar="N",
        help="batch: sweeps of each shard in an iteration, before the others hear of it: less traffic for each sweep, "
        f"somewhat slower progress (default: {default.local_sweeps})",
    )
    group.add_argument(
        "--passes", type=int, metavar="N", help=f"stochastic: passes over the corpus (default: {default.passes})"
    )
    group.add_argument(
        "--batch-shards",
        type=int,
        metavar="N",
        help=f"stochastic: shards a minibatch, swept side by side (default: {default.batch_shards})",
    )


def run(arguments: argparse.Namespace) -> None:
    """Fit, and say what came of it."""
    family, options = gather(arguments, [name for name in RUN_NAMES if name != "family"])
    from collapsar.pipeline.fitting import fit  # loads the compiler: not before the options are known to be right
    from collapsar.pipeline.progress import RunView, counted

    view = RunView()
    events: list[dict[str, Any]] = []
    try:
        fit(
            arguments.corpus,
            arguments.out,
            family=family,
            sinks=[events.append, *([] if arguments.quiet else [view])],
            **options,
        )
    except KeyboardInterrupt:
        if events and events[-1]["event"] == "end":
            print(f"{arguments.out}: the model of iteration {events[-1]['iteration']} was kept", file=sys.stderr)
        raise
    finally:
        view.close()
    last: dict[str, Any] = next((event for event in reversed(events) if event["event"] == "iteration"), {})
    if arguments.json:
        print_json({**last, "run": arguments.out})
        return
    score = f", score {last['score']:.4f} nats a held-out token" if "score" in last else ""
    done = f"{counted(last['iteration'], 'iteration')} in {last['elapsed']:.1f} s{score}"
    print(f"{arguments.out}: {done}; see `collapsar topics {arguments.out}`")
