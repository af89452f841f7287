"""Bring a published model up to date with its sources: one job, as often as you like.

A job ingests its sources (later: appends the new ones), holds out tokens of each
document, fits (later: begins from the version before), scores the new model and the
published one on the same held-out tokens, writes the documents' proportions,
publishes the model as a numbered version, and writes its report. With nothing new it
does nothing. A job that was stopped at any point goes on from there. Where the new
model scores worse than the published one, it is not published.

With restarts or samples in [fit] a version is an ensemble, whose mean prediction is
scored; each member begins from the member of the same number of the version before,
and the first member's proportions are written. Families of vectors (hca) take files of
vectors: whole vectors are held out, the score is the mean error of their
reconstruction, and each fit begins anew.

The job's folder has corpus/, cycles/ (what is being made), published/0001/ and so on,
published/current.json (and a link, current), and the journal state.json. A version is
a folder that commands take as a run: collapsium topics FOLDER/published/current
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel

from collapsium.pipeline.cli.command import Command, Flags, argument
from collapsium.pipeline.cli.options import LineJsonOptions, LogOptions, QuietOptions
from collapsium.pipeline.cli.output import print_error
from collapsium.pipeline.monitoring.console import LogLines, RunView
from collapsium.pipeline.workflows.batch.options import BatchOptions
from collapsium.storage.errors import CollapsiumError, LockedError, TakenOverError
from collapsium.storage.printable import json_text

ALARM, LOCKED = 3, 4
EPILOG = """exit codes:
  0    a version was published, or there was nothing new
  1    an error; the same command goes on with the step that failed
  2    wrong usage
  3    the new model scores worse than the published one; it is not published
  4    another process works on the job
  5    another process has taken the job over, as this one slept; it has written nothing since
  130  interrupted; the same command goes on

example of a job, reuters.toml (paths count from its folder, $NAME is a variable):
  [batch]
  folder = "reuters"
  [ingest]
  sources = ["reuters-*.jsonl"]
  min_documents = 10
  [fit]
  family = "hdp"
  topics = 200

tables and keys, with their defaults:
"""


def execute(job: Annotated[str, argument("JOB.toml", "what is to be done")], /, flags: Flags) -> int:
    """Do the job, and say what came of it."""
    from collapsium.pipeline.workflows.batch.job import batch
    from collapsium.pipeline.workflows.batch.job_file import read_job

    read_job(job)
    form = flags.of(LogOptions).log_format
    view = RunView(form=form)
    warn, steps = partial(_warn, view.log), partial(_steps, view.log)
    sinks: list[Callable[[dict[str, Any]], None]] = [warn] if flags.values.get("quiet") else [warn, view, steps]
    try:
        found = batch(job, **flags.given(BatchOptions), sinks=sinks)
    except TakenOverError as error:
        _say(flags, job, {"outcome": "taken-over", "error": str(error)})
        raise
    except LockedError as error:
        _say(flags, job, {"outcome": "locked", "error": str(error)})
        print_error(str(error), form)
        return LOCKED
    except (CollapsiumError, KeyboardInterrupt) as error:
        outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
        _say(flags, job, {"outcome": outcome, "error": str(error)})
        raise
    finally:
        view.close()
    if flags.json:
        _say(flags, job, found.record())
    else:
        print(f"{job}: {found.line()}")
    return ALARM if found.outcome == "alarm" else 0


def _say(flags: Flags, job: str, record: dict[str, Any]) -> None:
    if flags.json:
        print(json_text({**record, "job": job}), flush=True)


def _warn(log: LogLines, event: dict[str, Any]) -> None:
    if event["event"] == "warning":
        log.write(event["text"], "warning", event="warning")


def _steps(log: LogLines, event: dict[str, Any]) -> None:
    """Say which step begins, and what was added."""
    if event["event"] == "added":
        log.write(event["text"], **{name: value for name, value in event.items() if name != "text"})
    if event["event"] == "step" and not event["done"]:
        version = (
            f" (version {event['version']})" if event["version"] and event["step"] not in ("ingest", "append") else ""
        )
        log.write(f"{event['step']}{version}", event="step", step=event["step"], version=event["version"])


def _epilog() -> str:
    """Return what help ends with: exit codes, an example, and what the file of a job may say."""
    from collapsium.pipeline.workflows.batch.config import TOLERANCE, Job

    lines = [EPILOG.rstrip("\n")]
    for table, found in Job.model_fields.items():
        model = found.annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            continue
        lines.append(f"  [{table}]")
        for name, field in model.model_fields.items():
            value = "" if field.is_required() else f" ({json.dumps(field.default)})"
            lines.append(f"    {name + value:28} {field.description or ''}".rstrip())
        if table == "ingest":
            lines.append("    ...                          as the options of `collapsium ingest`")
        if table == "fit":
            text = f"as the options of `collapsium fit`, and of the family; tolerance is {TOLERANCE} by itself"
            lines.append(f"    ...                          {text}")
    return "\n".join(lines)


COMMAND = Command(execute, (BatchOptions, QuietOptions, LogOptions, LineJsonOptions), epilog=_epilog)
