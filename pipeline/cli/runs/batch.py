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

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from collapsium.pipeline.cli.options import add_log_format
from collapsium.pipeline.cli.output import print_error
from collapsium.storage.errors import CollapsiumError, LockedError, TakenOverError
from collapsium.storage.printable import json_text

if TYPE_CHECKING:
    from collapsium.pipeline.monitoring.console import LogLines

HELP = "ingest or append, fit, evaluate, infer and publish, as one job"
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


def _keys() -> str:
    """Return what a job may say."""
    from pydantic import BaseModel

    from collapsium.pipeline.workflows.batch.config import TOLERANCE, Job

    lines = []
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


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the command's options."""
    if "batch" in argv[:1]:
        parser.epilog = EPILOG + _keys()
    parser.add_argument("job", metavar="JOB.toml", help="what is to be done")
    parser.add_argument("--accept", action="store_true", help="publish the new model however it scores")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_log_format(parser)
    parser.add_argument("--json", action="store_true", help="print one line of JSON, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Do the job, and say what came of it."""
    from collapsium.pipeline.monitoring.console import RunView
    from collapsium.pipeline.workflows.batch.job import batch
    from collapsium.pipeline.workflows.batch.job_file import read_job

    read_job(arguments.job)
    view = RunView(form=arguments.log_format)
    warn, steps = partial(_warn, view.log), partial(_steps, view.log)
    sinks: list[Callable[[dict[str, Any]], None]] = [warn] if arguments.quiet else [warn, view, steps]
    try:
        found = batch(arguments.job, accept=arguments.accept, sinks=sinks)
    except TakenOverError as error:
        _say(arguments, {"outcome": "taken-over", "error": str(error)})
        raise
    except LockedError as error:
        _say(arguments, {"outcome": "locked", "error": str(error)})
        print_error(str(error), arguments.log_format)
        return LOCKED
    except (CollapsiumError, KeyboardInterrupt) as error:
        outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
        _say(arguments, {"outcome": outcome, "error": str(error)})
        raise
    finally:
        view.close()
    if arguments.json:
        _say(arguments, found.record())
    else:
        print(f"{arguments.job}: {found.line()}")
    return ALARM if found.outcome == "alarm" else 0


def _say(arguments: argparse.Namespace, record: dict[str, Any]) -> None:
    if arguments.json:
        print(json_text({**record, "job": arguments.job}), flush=True)


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
