"""Options that are the command line's alone: the log's format, callbacks, and how a result is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field

from collapsium.pipeline.cli.command import Flags
from collapsium.pipeline.monitoring.callbacks import guarded
from collapsium.pipeline.monitoring.events import Sink
from collapsium.pipeline.options import Options, Texts, Value


class CallbackOptions(Options):
    """Functions that receive events."""

    callback: Annotated[Texts, Value("MODULE:NAME")] = Field(
        (),
        description="call this function, or what this class makes, with each event, a dict; may be given again; "
        "an error "
        "in it is told and does not end the run. collapsium.pipeline.monitoring.mlflow_callback:MLflow logs to MLflow "
        "(extra: mlflow)",
    )


class QuietOptions(Options):
    """Whether progress is shown."""

    quiet: bool = Field(False, description="show no progress")


class LogOptions(Options):
    """How progress and errors are written."""

    log_format: Literal["text", "json"] | None = Field(
        None,
        description="lines on standard error: text, each with its time (ISO 8601), or json, an object a line "
        "with time, "
        "level, message and figures (default: a live view in a terminal, else text)",
    )


class JsonOptions(Options):
    """How a result is printed."""

    as_json: Annotated[bool, Value(flag="--json")] = Field(False, description="print JSON, for programs")


class LineJsonOptions(Options):
    """How a result is printed in a line."""

    as_json: Annotated[bool, Value(flag="--json")] = Field(False, description="print one line of JSON, for programs")


class SharesJsonOptions(Options):
    """How shares by period are printed."""

    heading = "time"
    as_json: Annotated[bool, Value(flag="--json")] = Field(False, description="print the shares of all topics")


def callbacks_of(flags: Flags, run: str, notice: Callable[[str], None]) -> list[Sink]:
    """Import the callbacks that were named, and tell them what run they will hear of.

    Parameters
    ----------
    flags : Flags
        Of a command with `CallbackOptions`.
    run : str
        The run's folder.
    notice : callable
        Receives in a line what one of them raised.

    Returns
    -------
    list of callable
        Sinks for `fit`.

    Raises
    ------
    OptionError
        One cannot be imported.
    """
    found = guarded(flags.of(CallbackOptions).callback, notice)
    for sink in found:
        sink({"event": "run", "iteration": 0, "elapsed": 0.0, "run": run})
    return found
