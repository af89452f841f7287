"""Status of the runs that use a Dask scheduler, for its page and its metrics."""

from __future__ import annotations

import time
from collections import OrderedDict

import distributed
from distributed import Scheduler

from collapsium.pipeline.formatting import duration_text
from collapsium.pipeline.monitoring.run_status import FitStatus, RunStatus

TOPIC, NAME = "collapsium", "collapsium-runs"
RUNS = 8  # Number of runs that are remembered


class Runs(distributed.SchedulerPlugin):  # type: ignore[misc]
    """Keeps the status of runs from the messages of their drivers; the scheduler's own log has only the last 1000."""

    name = NAME

    def __init__(self) -> None:
        # In order of their start.
        self._statuses: dict[str, RunStatus] = {}
        # Time of the last message of each run, in ascending order.
        self._updated: OrderedDict[str, float] = OrderedDict()

    def log_event(self, topic: str, msg: object) -> None:
        """Receive a message of a driver; see `collapsium.pipeline.monitoring.dask_dashboard.runs`."""
        if topic != TOPIC or not isinstance(msg, dict) or not {"run", "event", "totals"} <= set(msg):
            return
        run, event = str(msg["run"]), msg["event"]
        # The event cluster begins or resumes a fit.
        if run not in self._statuses or event["event"] == "cluster":
            self._statuses.pop(run, None)
            self._statuses[run] = RunStatus()
        self._updated[run] = time.monotonic()
        self._updated.move_to_end(run)
        while len(self._updated) > RUNS:
            self._statuses.pop(self._updated.popitem(last=False)[0])
        status = self._statuses[run]
        status.add(event)
        member = event.get("member") if status.restarts else None
        if member in status.fits:
            status.fits[member].totals = dict(msg["totals"])

    def quiet(self, run: str) -> float:
        """Return the seconds since the last message of a run."""
        return time.monotonic() - self._updated.get(run, time.monotonic())

    def statuses(self) -> dict[str, RunStatus]:
        """Return the status of each run by its folder, in order of their start."""
        return dict(self._statuses)


def runs_of(scheduler: distributed.Scheduler) -> Runs:
    """Return the plugin of a scheduler that keeps the status of runs; it is added if needed."""
    runs = scheduler.plugins.get(NAME)
    if not isinstance(runs, Runs):
        runs = Runs()
        scheduler.add_plugin(runs)
    return runs


# Time after which the state of a run reports missing events; the longer one counts.
SILENCE_SECONDS = 30.0  # Seconds without an event
SILENCE_ITERATIONS = 5.0  # Mean durations of an iteration without an event


class View:
    """The run that a page shows, by default the newest, and one of its members."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._runs = runs_of(scheduler)
        self.chosen = ""
        self.member: int | None = None

    @property
    def run(self) -> str:
        """The folder of the run that is shown; empty if there is none."""
        statuses = self._runs.statuses()
        return self.chosen if self.chosen in statuses else next(reversed(statuses), "")

    def choose(self, run: str = "", member: str = "") -> None:
        """Select a run, and one of its members."""
        self.chosen, self.member = run, int(member) if member else None

    def fit(self, status: RunStatus) -> FitStatus:
        """Return the status of the fit, or of the member that is shown."""
        return status.fits.get(self.member, status.fit) if status.restarts else status.fit

    def state(self, status: RunStatus) -> str:
        """Return the state of the run, as text."""
        if status.ended:
            return f"ended ({status.ended})"
        quiet = self._runs.quiet(self.run)
        limit = max(SILENCE_SECONDS, SILENCE_ITERATIONS * status.fit.pace())
        return f"no event for {duration_text(quiet)}" if quiet > limit else "running"

    def status(self) -> RunStatus | None:
        """Return the status of the run; None if there is no run."""
        return self._runs.statuses().get(self.run)

    def names(self) -> list[str]:
        """Return the folders of all runs, the newest first."""
        return list(reversed(self._runs.statuses()))
