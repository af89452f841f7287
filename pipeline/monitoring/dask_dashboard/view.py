"""The run, and the member of an ensemble, that a page shows."""

from __future__ import annotations

from dataclasses import dataclass

from distributed import Scheduler

from collapsium.pipeline.formatting import duration_text
from collapsium.pipeline.monitoring.dask_dashboard.runs import runs_of
from collapsium.pipeline.monitoring.run_status import FitStatus, RunStatus


@dataclass(frozen=True)
class Silence:
    """Time after which the state of a run reports missing events; the longer one counts."""

    seconds: float = 30.0  # Seconds without an event
    iterations: float = 5.0  # Mean durations of an iteration without an event


SILENCE = Silence()


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
        limit = max(SILENCE.seconds, SILENCE.iterations * status.fit.pace())
        return f"no event for {duration_text(quiet)}" if quiet > limit else "running"

    def status(self) -> RunStatus | None:
        """Return the status of the run; None if there is no run."""
        return self._runs.statuses().get(self.run)

    def names(self) -> list[str]:
        """Return the folders of all runs, the newest first."""
        return list(reversed(self._runs.statuses()))
