"""Watch a run by the events in its folder, from any machine.

The folder is local, or a URL that fsspec can read. The run may start later, may be
interrupted and resumed, or may have ended. The command exits with 0 when the run
ends for any reason, and with 1 if for --idle-timeout seconds no run exists or no
process works on it.

In a terminal the view is updated in place; otherwise a line is printed every two
seconds.
"""

from __future__ import annotations

import sys
from typing import Annotated

from pydantic import Field

from collapsium.pipeline.cli.command import JsonOptions, LogOptions, argument, in_flags, print_json
from collapsium.pipeline.monitoring.console import LogLines, RunView, print_status
from collapsium.pipeline.monitoring.follow import EVERY, follow, so_far
from collapsium.pipeline.monitoring.run_status import RunStatus
from collapsium.pipeline.options import Options, Value

EPILOG = """examples:
  collapsium watch run
  collapsium watch s3://bucket/run --once"""


class WatchOptions(Options):
    """Options of following a run."""

    once: bool = Field(False, description="print the current state and exit")
    every: Annotated[float, Value("S", unit="seconds", expected="seconds above 0")] = Field(
        EVERY, gt=0, allow_inf_nan=False, description="seconds between two checks"
    )
    idle_timeout: Annotated[float, Value("S", unit="seconds", expected="seconds above 0")] = Field(
        300.0,
        gt=0,
        allow_inf_nan=False,
        description="stop after this many seconds without a run, or without a process that works on it",
    )


def execute(
    run: Annotated[str, argument("RUN", "folder of a run, which need not exist yet")],
    /,
    *,
    options: WatchOptions,
    log: LogOptions,
    output: JsonOptions,
) -> None:
    """Follow the run, or print its status."""
    form = log.log_format
    if options.once or output.as_json:
        events, state = so_far(run)
        if output.as_json:
            status = RunStatus()
            for event in events:
                status.add(event)
            fit, planned = status.fit, status.planned
            record = {"run": run, "state": state, "family": status.family, "iterations": planned, **fit.event}
            record = {name: value for name, value in record.items() if name not in ("event", "top_words")}
            left = None if status.ended else fit.left(planned)
            print_json({**record, "left": left, "words": fit.words, "words_iteration": fit.words_at})
        else:
            print_status(events, state, sys.stdout)
        return
    views: list[RunView] = []

    def view() -> RunView:
        for former in views:
            former.close()
        views[:] = [RunView(behind=True, form=form, spell=in_flags)]
        return views[0]

    try:
        notice = LogLines(form=form).write
        follow(run, view, idle_timeout=options.idle_timeout, every=options.every, notice=notice)
    finally:
        for shown in views:
            shown.close()
