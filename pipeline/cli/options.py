"""Options of the command line alone: the log's format, callbacks, and JSON output."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from collapsium.pipeline.cli.command import in_flags
from collapsium.pipeline.options import Options, Texts, Value

if TYPE_CHECKING:
    from collapsium.pipeline.corpora.new_texts import UnknownWords


TEXTS = (
    "a corpus with the model's vocabulary; or texts (files, folders or globs of any format of `collapsium ingest`), "
    "which are read like the model's documents"
)


def print_notice(line: str) -> None:
    """Print a line to standard error."""
    print(f"collapsium: {in_flags(line)}", file=sys.stderr)


def print_unknown(unknown: UnknownWords | None) -> None:
    """Print how many tokens of texts the vocabulary lacks; nothing for a corpus."""
    if unknown is not None:
        print(f"  {unknown.text()}")


def with_unknown(record: Mapping[str, object], unknown: UnknownWords | None) -> dict[str, object]:
    """Return a record for JSON with the number of tokens of texts that the vocabulary lacks."""
    rest = {name: value for name, value in record.items() if name != "unknown"}
    return rest if unknown is None else {**rest, **unknown.record()}


class CallbackOptions(Options):
    """Functions that receive events."""

    callback: Annotated[Texts, Value("MODULE:NAME")] = Field(
        (),
        description="call this function, or an instance of this class, with each event (a dict); may be "
        "repeated. An error in it is reported and does not stop the run. "
        "collapsium.pipeline.monitoring.mlflow_callback:MLflow logs to MLflow (needs the extra "
        "'mlflow')",
    )


class QuietOptions(Options):
    """Silence progress."""

    quiet: bool = Field(False, description="do not show progress")


class LogOptions(Options):
    """Format of progress and errors."""

    log_format: Literal["text", "json"] | None = Field(
        None,
        description="print lines to standard error: text, each line with its time (ISO 8601); or json, one object per "
        "line with time, level, message and metrics (default: a live view in a terminal, "
        "else text)",
    )


class JsonOptions(Options):
    """Format of a result."""

    as_json: Annotated[bool, Value(flag="--json")] = Field(False, description="print JSON")


class LineJsonOptions(Options):
    """Format of a result of one line."""

    as_json: Annotated[bool, Value(flag="--json")] = Field(False, description="print one line of JSON")


class SharesJsonOptions(Options):
    """Format of shares by period."""

    heading = "time"
    as_json: Annotated[bool, Value(flag="--json")] = Field(False, description="print the shares of all topics as JSON")
