"""The commands `collapsium batch`, `collapsium versions` and `collapsium rollback`."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel

from collapsium import pipeline
from collapsium.pipeline.cli.command import (
    MAX_WIDTH,
    JsonOptions,
    LineJsonOptions,
    LogOptions,
    QuietOptions,
    argument,
    named_options,
    print_error,
    print_json,
)
from collapsium.pipeline.monitoring.console import RunView
from collapsium.pipeline.monitoring.events import Event
from collapsium.pipeline.workflows.batch.job_file import TOLERANCE, BatchOptions, Job, RollbackOptions, read_job
from collapsium.storage.errors import CollapsiumError, LockedError, TakenOverError
from collapsium.storage.printable import json_text

ALARM, LOCKED = 3, 4  # Exit codes
EXIT_CODES = """exit codes:
  0    a version was published, or there are no new documents and no alarm
  1    an error; repeat the command to continue with the step that failed
  2    wrong usage
  3    the new model scores worse than the published one, and is not published
  4    another process is working on the job
  5    another process took over the job while this one was suspended
  130  interrupted; repeat the command to continue

example of a job, reuters.toml (relative paths start at its folder; $NAME is replaced
by the environment variable):
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


def batch(
    job: Annotated[str, argument("JOB.toml", "configuration of the job")],
    /,
    *,
    options: BatchOptions,
    silence: QuietOptions,
    log: LogOptions,
    output: LineJsonOptions,
) -> int:
    """Update a published model from its sources: one job, run as often as you like.

    A job (1) ingests its sources, or appends the new ones; (2) holds out tokens of each
    document; (3) fits, starting from the current version; (4) scores the new model and
    the published one on the same held-out tokens; (5) writes the topic proportions of
    the documents; (6) publishes the model as a numbered version with a report. Without
    new documents it does nothing, except that it repeats an alarm. An interrupted job
    continues with the step that was interrupted. A model that scores clearly worse
    ([alarm]) is not published.

    With restarts or samples in [fit], a version is an ensemble: its mean prediction is
    scored, and the mean proportions are written; with combine = "consensus", both come
    from the consensus. Each member starts from its counterpart in the current version.
    Families of vectors (hca) read files of vectors: complete vectors are held out, the
    score is the mean error of reconstruction, and each fit starts anew.

    The job's folder has corpus/, cycles/ (work in progress), published/0001/ and so
    on, published/current.json (and a link, current) and the journal state.json. All
    commands accept a version as a run: collapsium topics FOLDER/published/current
    """
    read_job(job)
    form = log.log_format
    view = RunView(form=form)

    def log_step(event: Event) -> None:
        if event["event"] == "warning":
            view.log.write(event["text"], "warning", event="warning")
        elif silence.quiet:
            return
        elif event["event"] == "added":
            view.log.write(event["text"], **{name: value for name, value in event.items() if name != "text"})
        elif event["event"] == "step" and not event["done"]:
            numbered = event["version"] and event["step"] not in ("ingest", "append")
            text = f"{event['step']} (version {event['version']})" if numbered else event["step"]
            view.log.write(text, event="step", step=event["step"], version=event["version"])

    try:
        outcome = pipeline.batch(job, **named_options(options), sinks=[log_step] if silence.quiet else [view, log_step])
    except TakenOverError as error:
        _print_record(output, job, {"outcome": "taken-over", "error": str(error)})
        raise
    except LockedError as error:
        _print_record(output, job, {"outcome": "locked", "error": str(error)})
        print_error(str(error), form)
        return LOCKED
    except (CollapsiumError, KeyboardInterrupt) as error:
        kind = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
        _print_record(output, job, {"outcome": kind, "error": str(error)})
        raise
    finally:
        view.close()
    if output.as_json:
        _print_record(output, job, outcome.record())
    else:
        print(f"{job}: {outcome.line()}")
    return ALARM if outcome.outcome == "alarm" else 0


def _print_record(output: LineJsonOptions, job: str, record: Mapping[str, object]) -> None:
    """Print an outcome as a line of JSON, with --json."""
    if output.as_json:
        print(json_text({**record, "job": job}), flush=True)


def _tables() -> str:
    """Return the end of the help page: exit codes, an example, and all tables and keys of a job."""
    lines = [EXIT_CODES.rstrip("\n")]
    for table, table_field in Job.model_fields.items():
        model = table_field.annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            continue
        lines.append(f"  [{table}]")
        for name, field in model.model_fields.items():
            default = "" if field.is_required() or field.default is None else f" ({json.dumps(field.default)})"
            text = field.description or "as for `collapsium fit`"
            if (table, name) == ("fit", "tolerance"):
                default = f" ({TOLERANCE})"
                text = text.replace("default: 0, never", "0, never, with samples, vectors or the stochastic schedule")
            lines += _key_lines(name + default, text)
        if table == "ingest":
            lines += _key_lines("...", "all options of `collapsium ingest`")
        if table == "fit":
            lines += _key_lines("...", "options of `collapsium fit` and of the family")
    return "\n".join(lines)


def _key_lines(key: str, text: str) -> list[str]:
    """Return the lines of a key: the key, and its description wrapped in a column beside it."""
    column = " " * 33
    lines = textwrap.wrap(text, MAX_WIDTH, initial_indent=column, subsequent_indent=column)
    return [f"    {key:28} {lines[0].lstrip()}", *lines[1:]]


BATCH_EPILOG = _tables()


def versions(
    job: Annotated[str, argument("JOB.toml", "configuration of the job")],
    /,
    *,
    output: JsonOptions,
) -> None:
    """List the published versions of a batch job; an asterisk marks the current one."""
    published = pipeline.versions(job)
    if output.as_json:
        print_json([{**version.model_dump(mode="json"), "current": current} for version, current in published])
        return
    if not published:
        print(f"{job}: no version has been published yet")
    for version, current in published:
        score = f"  {version.score_text}" if version.score_text else ""
        before = (
            ""
            if version.previous is None
            else f" (version {version.previous['version']}: {version.previous['score']:.5g})"
        )
        unknown = "" if version.unknown_share is None else f"  {version.unknown_share:.1%} of the added tokens unknown"
        size = f"{version.documents:,} {version.holds}{unknown}  {version.iterations} iterations"
        print(f"{'*' if current else ' '} {version.number}  {version.created}  {version.family}  {size}{score}{before}")


ROLLBACK_EPILOG = """examples:
  collapsium rollback job.toml
  collapsium rollback job.toml --to 3"""


def rollback(
    job: Annotated[str, argument("JOB.toml", "configuration of the job")],
    /,
    *,
    options: RollbackOptions,
) -> None:
    """Make an older version of a batch job the current one.

    The next job with new documents compares its model with that version and starts
    from it.
    """
    print(f"{job}: version {pipeline.rollback(job, **named_options(options))} is current")
