"""The choice of what a page shows: a run, and of an ensemble a member."""

from __future__ import annotations

from typing import Any

from collapsium.pipeline.formatting import lasting
from collapsium.pipeline.monitoring.dask_dashboard.runs import runs_of
from collapsium.pipeline.monitoring.run_status import Course, Picture

QUIET, SLOW = 30.0, 5.0  # seconds, and times what an iteration takes, without a word after which that is said


class View:
    """The run that a page shows, which was chosen or began last, and a member of it.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        That has been told of runs.

    Attributes
    ----------
    chosen : str
        The run's folder; empty for the one that began last.
    member : int or None
        The member, of an ensemble; None for the one that was told of last.
    """

    def __init__(self, scheduler: Any) -> None:
        self._runs = runs_of(scheduler)
        self.chosen = ""
        self.member: int | None = None

    @property
    def run(self) -> str:
        """The folder of the run that is shown; empty where there is none."""
        pictures = self._runs.pictures()
        return self.chosen if self.chosen in pictures else next(reversed(pictures), "")

    def choose(self, run: str = "", member: str = "") -> None:
        """Choose a run, and a member of it."""
        self.chosen, self.member = run, int(member) if member else None

    def course(self, picture: Picture) -> Course:
        """Return the course of the member that is looked at."""
        return picture.courses.get(self.member, picture.course) if picture.restarts else picture.course

    def state(self, picture: Picture) -> str:
        """Say whether the run goes on, as far as one who hears of it can know."""
        if picture.ended:
            return f"ended ({picture.ended})"
        quiet = self._runs.quiet(self.run)
        return f"no word for {lasting(quiet)}" if quiet > max(QUIET, SLOW * picture.course.pace()) else "running"

    def picture(self) -> Picture | None:
        """Return what is known of the run."""
        return self._runs.pictures().get(self.run)

    def names(self) -> list[str]:
        """Return the folders of all runs, the one that began last first."""
        return list(reversed(self._runs.pictures()))
