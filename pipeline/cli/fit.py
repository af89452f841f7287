"""The commands `collapsium fit` and `collapsium estimate`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from collapsium import pipeline
from collapsium.pipeline.cli.command import (
    CallbackOptions,
    JsonOptions,
    LogOptions,
    QuietOptions,
    UsageError,
    argument,
    in_flags,
    named_options,
    print_json,
)
from collapsium.pipeline.cli.family_options import ConfigOptions, ConfiguredFamilyFlags, gather
from collapsium.pipeline.engine.setup.limits import FitOptions
from collapsium.pipeline.executors.schedulers import CertificateOptions, ExecutorOptions, LinkOptions
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.console import RunView
from collapsium.pipeline.monitoring.events import Event, Sink, guarded
from collapsium.pipeline.options import Location, Options, OverwriteOptions, Value
from collapsium.storage.runs.run import Run

FIT_EPILOG = """examples:
  collapsium fit train run --family hdp --topics 200 --heldout heldout
  collapsium fit train run --family lda --topics 120 --inverse-temperature 1 --learn alpha
  collapsium fit train run --config fit.toml --scheduler tcp://scheduler:8786
  collapsium fit train run --family lda --topics 50 --init clusters --init-strength 80
  collapsium fit --resume run
  collapsium fit --resume run --iterations 500 --scheduler local --workers 4

A configuration file sets the same options at its top level:
  family = "hdp"
  topics = 200
  iterations = 300"""


class ResumeOptions(Options):
    """The run to continue."""

    resume: Annotated[Location | None, Value("RUN")] = Field(
        None,
        description="continue a run from its last complete checkpoint, with the options of its run.json. Name CORPUS, "
        "`heldout`, `warm` or a file of `init` only if it was moved. Other options may change only if they control "
        "when the fit stops, how often it is scored and saved, or where and with how much memory it runs",
    )


class OutputOptions(JsonOptions, LogOptions, QuietOptions, CallbackOptions):
    """Progress and outcome."""


def fit(
    corpus: Annotated[
        str | None, argument("CORPUS", "folder of the corpus: a path, or a URL such as s3://BUCKET/corpus")
    ] = None,
    out: Annotated[str | None, argument("RUN", "folder of the new run")] = None,
    /,
    *,
    chosen: ConfiguredFamilyFlags,
    config: ConfigOptions,
    resuming: ResumeOptions,
    options: FitOptions,
    replacing: OverwriteOptions,
    execution: ExecutorOptions,
    certificates: CertificateOptions,
    output: OutputOptions,
    **flags: str,
) -> None:
    """Fit a model family to a corpus, and write a run.

    A run is a folder: run.json (the options), events.jsonl (one line for each
    iteration), checkpoints/ and, at the end, model/. Ctrl-C stops the fit and keeps
    the last complete iteration. --resume continues a run, also after a crash; with the
    same options, the result is the same as without the interruption. A held-out corpus is
    scored during the fit; it does not influence the fit, unless --stop-on score or --keep
    best is set.

    Each family has further options, such as --alpha and --prevalence of lda: see
    collapsium fit --family lda --help.
    """
    resumed = resuming.resume
    if resumed is not None and replacing.overwrite:
        raise UsageError("--overwrite does not apply to --resume, which continues the run")
    if resumed is not None and out is not None:
        raise UsageError(f"--resume {resumed}: continues this run, so a second folder cannot be named; found {out}")
    folder = out if resumed is None else resumed
    missing = [name for name, path in (("CORPUS", corpus), ("RUN", folder)) if path is None]
    if folder is None or (missing and resumed is None):
        raise UsageError(f"the following arguments are required: {', '.join(missing)}")
    recorded = None if resumed is None else Run(resumed).record().get("family")
    request = gather(chosen, config.config, flags, (options, execution), recorded)
    named = {**request.options, "tls": certificates.tls}
    # All options are valid here: the first use of `pipeline` loads the compiler, which takes seconds.
    view = RunView(form=output.log_format, spell=in_flags)
    events: list[Event] = []
    sinks: list[Sink] = [events.append]
    sinks += [] if output.quiet else [view]
    callbacks = guarded(output.callback, view.notice)
    for callback in callbacks:
        callback({"event": "run", "iteration": 0, "elapsed": 0.0, "run": folder})
    sinks += callbacks
    try:
        with request.named():
            if resumed is None:
                pipeline.fit(corpus, folder, family=request.family, sinks=sinks, **named_options(replacing), **named)
            else:
                named.update({} if request.family == recorded else {"family": request.family})
                pipeline.resume(folder, corpus=corpus, sinks=sinks, **named)
    except BaseException:
        view.close()
        if any(event["event"] == "end" for event in events) and Run(folder).exists():
            last = events[-1]
            if "members" in last:
                state = f"{last['ended']} of {last['members']} members have ended, the others are saved as checkpoints"
            elif last["iteration"]:
                state = f"iteration {last['iteration']} is saved"
            else:
                state = "it stopped before the first checkpoint"
            view.notice(f"{folder}: {state}; continue with `collapsium fit --resume {shlex.quote(folder)}`")
        raise
    finally:
        view.close()
    _print_outcome(folder, events, as_json=output.as_json)


def _print_outcome(folder: str, events: Sequence[Event], *, as_json: bool) -> None:
    # A fit without events had ended before.
    had_ended = not events
    events = Run(folder).events() if had_ended else events
    members = sorted((event for event in events if event["event"] == "member"), key=lambda event: int(event["member"]))
    # In an ensemble, the iterations of no member are the consensus's.
    iterations = (event for event in reversed(events) if event["event"] == "iteration")
    last: Event = next((event for event in iterations if not members or "member" not in event), {})
    end: Event = next((event for event in reversed(events) if event["event"] == "end"), {})
    best = {"best_member": end["best_member"]} if "best_member" in end else {}
    scores = [member["score"] for member in members if "score" in member]
    spread = f"{min(scores):.4f} to {max(scores):.4f} nats per held-out token" if scores else ""
    if as_json and members:
        records = [{name: value for name, value in member.items() if name != "event"} for member in members]
        consensus = {"consensus": last} if last else {}
        print_json({"run": folder, "elapsed": end.get("elapsed"), "members": records, **best, **consensus})
    elif as_json:
        print_json({**last, "run": folder})
    elif had_ended:
        print(f"{folder}: the run has ended; continue it with more --iterations, or see `collapsium topics {folder}`")
    elif not members:
        score = f", score {last['score']:.4f} nats per held-out token" if "score" in last else ""
        text = f"{counted(last['iteration'], 'iteration')} in {last['elapsed']:.1f} s{score}"
        print(f"{folder}: {text}; see `collapsium topics {folder}`")
    elif last:
        score = f", score {last['score']:.4f}" if "score" in last else ""
        text = f"{score}; the members' scores are {spread}" if scores else score
        print(f"{folder}: consensus of {counted(len(members), 'member')}{text}; see `collapsium topics {folder}`")
    else:
        text = f"{counted(len(members), 'member')} in {end.get('elapsed', 0.0):.1f} s"
        text += f", scores {spread}" if scores else ""
        print(f"{folder}: {text}; see `collapsium topics {folder}` and `collapsium evaluate {folder}`")
        if best:
            chosen_by = end.get("chosen_by", "score")
            remark = ", so that score is optimistic" if chosen_by == "score" else ""
            print(f"{folder}: kept member {best['best_member']}; it was chosen by its {chosen_by}{remark}")


ESTIMATE_EPILOG = """examples:
  collapsium estimate train --family hdp --topics 500
  collapsium estimate train --family lda --topics 1000 --scheduler local --workers 8 --memory 16GB
  collapsium estimate train --family lda --topics 1000 --scheduler tcp://host:8786 --workers 8 \\
      --link 1Gbit --measured trial"""


def estimate(
    corpus: Annotated[str, argument("CORPUS", "folder of the corpus")],
    /,
    *,
    chosen: ConfiguredFamilyFlags,
    config: ConfigOptions,
    options: FitOptions,
    execution: ExecutorOptions,
    exchange: LinkOptions,
    output: JsonOptions,
    **flags: str,
) -> None:
    """Estimate the memory, disk space, network traffic and time of a fit before it runs.

    The command prints the peak memory of each worker process, the disk space, and the
    bytes exchanged in each iteration. With --link and --measured it also prints how long
    an iteration takes, and whether more --local-sweeps would pay off. Local states that
    exceed the memory are spilled to disk. `collapsium fit` refuses a fit that cannot run,
    and prints this table.

    It accepts the options of `collapsium fit` that describe the fit and where it runs,
    though some of them affect no resource.
    """
    request = gather(chosen, config.config, flags, (options, execution, exchange))
    with request.named():
        plan = pipeline.estimate(corpus, family=request.family, **request.options)
    problem = in_flags(plan.problem())
    if output.as_json:
        print_json({**plan.record(), "problem": problem})
        return
    print(in_flags(plan.table()))
    print(f"\n{f'does not fit: {problem}' if problem else 'fits'}")
