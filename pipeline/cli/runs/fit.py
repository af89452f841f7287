"""Fit a model to a corpus, and write a run.

A run is a folder: run.json (what was asked for), events.jsonl (a line an
iteration), checkpoints/ and, at the end, model/. Ctrl-C ends a fit early and
keeps the last whole iteration; --resume goes on from there, also after a crash,
with the result that it would have had. A held-out corpus is scored after each
iteration and steers nothing, unless --stop-on score is given.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from collapsium.pipeline.cli.command import Command, Flags, UsageError, argument
from collapsium.pipeline.cli.family_options import ConfigOptions, FamilyFlags, NamedFamily, gather
from collapsium.pipeline.cli.options import CallbackOptions, JsonOptions, LogOptions, QuietOptions, callbacks_of
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.engine.setup.limits import CheckpointOptions, Limits, RequestOptions, RestartOptions
from collapsium.pipeline.executors.options import (
    CertificateOptions,
    MemoryOptions,
    SchedulerOptions,
    TimeoutOptions,
)
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.console import RunView
from collapsium.pipeline.options import Location, Options, Value
from collapsium.storage.runs.run import Run

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


class ResumeOptions(Options):
    """Which run is gone on with."""

    resume: Annotated[Location | None, Value("RUN")] = Field(
        None,
        description="go on with a run, as its run.json has it, from its last whole checkpoint; CORPUS and "
        "`heldout` only "
        "where they were moved, other options only to say anew when it ends or where it runs",
    )


OPTIONS = (
    Limits,
    RequestOptions,
    RestartOptions,
    SchedulerOptions,
    TimeoutOptions,
    MemoryOptions,
    CheckpointOptions,
)


def execute(
    corpus: Annotated[str | None, argument("CORPUS", "folder of the corpus")] = None,
    out: Annotated[str | None, argument("RUN", "folder to make")] = None,
    /,
    *,
    flags: Flags,
) -> None:
    """Fit, and say what came of it."""
    resumed = flags.of(ResumeOptions).resume
    place = _place(corpus, out, resumed)
    recorded = None if resumed is None else Run(resumed).record().get("family")
    asked = gather(flags, OPTIONS, recorded)
    options = {**asked.options, "tls": flags.of(CertificateOptions).tls}
    from collapsium.pipeline.engine.fit import fit, resume  # load the compiler: not before the options are right

    view = RunView(form=flags.of(LogOptions).log_format)
    events: list[dict[str, Any]] = []
    sinks: list[Callable[[dict[str, Any]], None]] = [events.append]
    sinks += [] if flags.of(QuietOptions).quiet else [view]
    sinks += callbacks_of(flags, place, view.notice)
    try:
        with asked.named():
            if resumed is None:
                fit(corpus, place, family=asked.family, sinks=sinks, **options)
            else:
                options.update({} if asked.family == recorded else {"family": asked.family})
                resume(place, corpus=corpus, sinks=sinks, **options)
    except BaseException:
        view.close()
        _say_how_to_resume(place, events, view.notice)
        raise
    finally:
        view.close()
    _say_what_came(flags, place, events)


def _place(corpus: str | None, out: str | None, resumed: str | None) -> str:
    """Return the folder of the run; refuse a corpus or a folder that is missing, or too much."""
    if resumed is None:
        missing = [name for name, given in (("CORPUS", corpus), ("RUN", out)) if given is None]
        if missing or out is None:
            raise UsageError(f"the following arguments are required: {', '.join(missing)}")
        return out
    if out is not None:
        raise UsageError(f"--resume {resumed}: expected no folder to make, found {out}")
    return resumed


def _say_how_to_resume(place: str, events: list[dict[str, Any]], say: Callable[[str], None]) -> None:
    """Say it where there is a run to go on with."""
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


def _say_what_came(flags: Flags, place: str, events: list[dict[str, Any]]) -> None:
    done = not events  # nothing was left to do
    told = Run(place).events() if done else events
    last: dict[str, Any] = next((event for event in reversed(told) if event["event"] == "iteration"), {})
    members = [event for event in told if event["event"] == "member"]
    if members:
        _say_what_came_of_members(flags, place, members, told[-1], done=done)
        return
    if flags.json:
        print_json({**last, "run": place})
        return
    if done:
        print(f"{place}: the run is at its end; name more --iterations to go on, or see `collapsium topics {place}`")
        return
    score = f", score {last['score']:.4f} nats a held-out token" if "score" in last else ""
    text = f"{counted(last['iteration'], 'iteration')} in {last['elapsed']:.1f} s{score}"
    print(f"{place}: {text}; see `collapsium topics {place}`")


def _say_what_came_of_members(
    flags: Flags, place: str, members: list[dict[str, Any]], end: dict[str, Any], *, done: bool
) -> None:
    members = sorted(members, key=lambda event: int(event["member"]))
    best = {"best_member": end["best_member"]} if "best_member" in end else {}
    if flags.json:
        shown = [{name: value for name, value in one.items() if name != "event"} for one in members]
        print_json({"run": place, "elapsed": end["elapsed"], "members": shown, **best})
        return
    if done:
        print(f"{place}: the run is at its end; name more --iterations to go on, or see `collapsium topics {place}`")
        return
    scores = [one["score"] for one in members if "score" in one]
    text = f"{counted(len(members), 'member')} in {end['elapsed']:.1f} s"
    text += f", scores {min(scores):.4f} to {max(scores):.4f} nats a held-out token" if scores else ""
    print(f"{place}: {text}; see `collapsium topics {place}` and `collapsium evaluate {place}`")
    if best:
        number = best["best_member"]
        print(f"{place}: member {number} is retained; its held-out score chose it, so that is no test of it any more")


COMMAND = Command(
    execute,
    (
        ResumeOptions,
        FamilyFlags,
        ConfigOptions,
        *OPTIONS,
        CertificateOptions,
        CallbackOptions,
        QuietOptions,
        LogOptions,
        JsonOptions,
    ),
    epilog=EPILOG,
    family=NamedFamily(),
)
