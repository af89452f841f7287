"""Fit a model to a corpus, and write a run.

A run is a folder: run.json (what was asked for), events.jsonl (a line an
iteration), checkpoints/ and, at the end, model/. Ctrl-C ends a fit early and
keeps the last whole iteration; --resume goes on from there, also after a crash,
with the result that it would have had. A held-out corpus is scored after each
iteration and steers nothing, unless --stop-on score is given.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from collapsium.pipeline.cli.family_options import add_family, gather, gather_again
from collapsium.pipeline.cli.options import (
    add_callbacks,
    add_json,
    add_log_format,
    add_memory,
    add_scheduler,
    callbacks_of,
    tls_of,
)
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.engine.setup.limits import ITERATIONS, RUN_NAMES, Limits

HELP = "fit a model family to a corpus"
EPILOG = """examples:
  collapsium fit train run --family hdp --topics 200 --heldout heldout
  collapsium fit train run --family lda --topics 120 --iterations 100 --alpha 0.05 --learn '["alpha"]'
  collapsium fit train run --config fit.toml --scheduler tcp://scheduler:8786
  collapsium fit --resume run
  collapsium fit --resume run --iterations 500 --scheduler local --workers 4

A configuration file holds the same names at its top level:
  family = "hdp"
  topics = 200
  iterations = 300"""


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the command's options."""
    default = Limits()
    parser.add_argument("corpus", nargs="?", metavar="CORPUS", help="folder of the corpus")
    parser.add_argument("out", nargs="?", metavar="RUN", help="folder to make")
    parser.add_argument(
        "--resume",
        metavar="RUN",
        help="go on with a run, as its run.json has it, from its last whole checkpoint; CORPUS and --heldout only "
        "where they were moved, other options only to say anew when it ends or where it runs",
    )
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
        type=_tolerance,
        metavar="T",
        help="end before, when the relative change of --stop-on falls under it; auto: when the means of its last two "
        "quarters hardly differ (default: 0, never)",
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
    parser.add_argument(
        "--warm",
        metavar="RUN",
        help="begin from another run's proportions and topics, of whatever family; it has the same vocabulary, or the "
        "first words of it; of more topics the largest are taken; shards that are the same go on from what a run of "
        "the same family has kept of them (with --resume: where that run lies by now)",
    )
    _add_members(parser)
    _add_schedule(parser, default)
    add_scheduler(parser, "threads", patience=True)
    add_memory(parser)
    parser.add_argument(
        "--checkpoint-every",
        type=int,
        metavar="N",
        help="iterations between two checkpoints (default: one a minute, or fewer so that they take 5%% of the time)",
    )
    parser.add_argument(
        "--strict-bits",
        action="store_true",
        default=None,
        help="end with an error where the workers' processors differ, or where processors or versions are others than "
        "the run began with: other bits may come out (default: give notice)",
    )
    parser.set_defaults(usage=parser.error)
    parser.set_defaults(scheduler=None)  # so that a configuration file can name it
    add_callbacks(parser)
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_log_format(parser)
    add_json(parser)


def _add_members(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("ensembles")
    group.add_argument(
        "--restarts",
        type=int,
        metavar="R",
        help="fit R seeds side by side; RUN/members/000 and so on are runs by themselves, whose predictions "
        "`collapsium evaluate RUN` averages",
    )
    group.add_argument(
        "--keep",
        choices=("all", "best"),
        help="best: keep the one restart with the best held-out score, which is no test of it then, or where "
        "nothing is held out the best objective (default: all)",
    )
    group.add_argument(
        "--samples",
        type=int,
        metavar="S",
        help="keep S states as models too, the last of the run; their predictions are averaged (default: 0)",
    )
    group.add_argument("--sample-every", type=int, metavar="T", help="iterations between two of them")


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


def _tolerance(text: str) -> float | str:
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number of 0 or more, or auto, found '{text}'") from None


def run(arguments: argparse.Namespace) -> None:
    """Fit, and say what came of it."""
    names = [name for name in RUN_NAMES if name != "family"]
    family: str | None
    if arguments.resume is None:
        missing = [name for name, given in (("CORPUS", arguments.corpus), ("RUN", arguments.out)) if given is None]
        if missing:
            arguments.usage(f"the following arguments are required: {', '.join(missing)}")
        family, options = gather(arguments, names)
        place = arguments.out
    else:
        if arguments.out is not None:
            arguments.usage(f"--resume {arguments.resume}: expected no folder to make, found {arguments.out}")
        family, options = gather_again(arguments, names)
        place = arguments.resume
    options["tls"] = tls_of(arguments)
    from collapsium.pipeline.engine.fit import fit, resume  # load the compiler: not before the options are right
    from collapsium.pipeline.monitoring.console import RunView

    view = RunView(form=arguments.log_format)
    events: list[dict[str, Any]] = []
    sinks: list[Callable[[dict[str, Any]], None]] = [events.append, *([] if arguments.quiet else [view])]
    sinks += callbacks_of(arguments, place, view.notice)
    try:
        if arguments.resume is None:
            fit(arguments.corpus, place, family=str(family), sinks=sinks, **options)
        else:
            options.update({} if family is None else {"family": family})
            resume(place, corpus=arguments.corpus, sinks=sinks, **options)
    except BaseException:
        view.close()
        _say_how_to_resume(place, events, view.notice)
        raise
    finally:
        view.close()
    _say_what_came(arguments, place, events)


def _say_how_to_resume(place: str, events: list[dict[str, Any]], say: Callable[[str], None]) -> None:
    """Say it where there is a run to go on with."""
    from collapsium.storage.runs.run import Run

    if not any(event["event"] == "end" for event in events) or not Run(place).exists():
        return
    last = events[-1]
    kept = last["iteration"]
    if "members" in last:
        text = (
            f"{last['ended']} of {last['members']} members have come to their end, of the others checkpoints are kept"
        )
        say(f"{place}: {text}; go on with `collapsium fit --resume {shlex.quote(place)}`")
        return
    text = f"iteration {kept} is kept" if kept else "no checkpoint was kept; it would start again"
    say(f"{place}: {text}; go on with `collapsium fit --resume {shlex.quote(place)}`")


def _say_what_came(arguments: argparse.Namespace, place: str, events: list[dict[str, Any]]) -> None:
    from collapsium.pipeline.formatting import counted
    from collapsium.storage.runs.run import Run

    done = not events  # nothing was left to do
    told = Run(place).events() if done else events
    last: dict[str, Any] = next((event for event in reversed(told) if event["event"] == "iteration"), {})
    members = [event for event in told if event["event"] == "member"]
    if members:
        _say_what_came_of_members(arguments, place, members, told[-1], done=done)
        return
    if arguments.json:
        print_json({**last, "run": place})
        return
    if done:
        print(f"{place}: the run is at its end; name more --iterations to go on, or see `collapsium topics {place}`")
        return
    score = f", score {last['score']:.4f} nats a held-out token" if "score" in last else ""
    text = f"{counted(last['iteration'], 'iteration')} in {last['elapsed']:.1f} s{score}"
    print(f"{place}: {text}; see `collapsium topics {place}`")


def _say_what_came_of_members(
    arguments: argparse.Namespace, place: str, members: list[dict[str, Any]], end: dict[str, Any], *, done: bool
) -> None:
    from collapsium.pipeline.formatting import counted

    members = sorted(members, key=lambda event: int(event["member"]))
    kept = {"kept": end["kept"]} if "kept" in end else {}
    if arguments.json:
        shown = [{name: value for name, value in one.items() if name != "event"} for one in members]
        print_json({"run": place, "elapsed": end["elapsed"], "members": shown, **kept})
        return
    if done:
        print(f"{place}: the run is at its end; name more --iterations to go on, or see `collapsium topics {place}`")
        return
    scores = [one["score"] for one in members if "score" in one]
    text = f"{counted(len(members), 'member')} in {end['elapsed']:.1f} s"
    text += f", scores {min(scores):.4f} to {max(scores):.4f} nats a held-out token" if scores else ""
    print(f"{place}: {text}; see `collapsium topics {place}` and `collapsium evaluate {place}`")
    if kept:
        print(f"{place}: member {kept['kept']} is kept; its held-out score chose it, so that is no test of it any more")
