"""What is known of a run from its events: what live views, `collapsium watch` and the dashboard's page show."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from collapsium.storage.runs.event_records import REQUIRED

POINTS = 600  # of a curve that are kept, at most
RECENT = 20  # iterations by which the time that is left is judged
NOTICES = 3
HELD = {"documents": ("documents", "tokens", "words"), "vectors": ("vectors", "values", "columns")}


@dataclass
class Curve:
    """Figures by iteration; where they become many, every other is let go of, but for the last."""

    points: list[tuple[int, Any]] = field(default_factory=list)
    _every: int = 1

    def add(self, iteration: int, value: Any) -> None:
        """Add a figure, in place of those of this iteration and later ones, as when a run goes back."""
        while self.points and self.points[-1][0] >= iteration:
            self.points.pop()
        if len(self.points) > 1 and self.points[-1][0] - self.points[-2][0] < self._every:
            self.points.pop()
        self.points.append((iteration, value))
        if len(self.points) > POINTS:
            self.points = [*self.points[:-1][::2], self.points[-1]]
            self._every *= 2

    @property
    def last(self) -> Any:
        """The last figure, None where there is none."""
        return self.points[-1][1] if self.points else None


@dataclass
class Course:
    """How a fit, or a member of an ensemble, has gone so far.

    Attributes
    ----------
    iteration : int
        How far it is.
    elapsed : float
        Seconds since it began.
    event : dict
        Its last iteration as it was told.
    curves : dict of str to Curve
        ``score``, ``objective``, ``sweeps`` (quartiles of the seconds a shard), ``seconds`` (where the time went) and
        ``active``.
    words : dict of str to list of str
        Top words of topics by id, as they were told last.
    words_at : int
        The iteration that they are of.
    ended : str
        Why it ended; empty while it goes on.
    """

    iteration: int = 0
    elapsed: float = 0.0
    event: dict[str, Any] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)
    words: dict[str, list[str]] = field(default_factory=dict)
    words_at: int = 0
    ended: str = ""
    totals: dict[str, float] = field(default_factory=dict)
    _marks: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=RECENT + 1))

    def add(self, event: dict[str, Any]) -> None:
        """Add an iteration."""
        self.iteration, self.elapsed, self.event, self.ended = event["iteration"], event["elapsed"], event, ""
        for name in ("score", "objective", "active"):
            if name in event:
                self.curve(name).add(self.iteration, event[name])
        self.curve("seconds").add(self.iteration, event.get("seconds", {}))
        if "sweeps" in event:
            self.curve("sweeps").add(self.iteration, event["sweeps"]["quartiles"])
        self.name(event)
        while self._marks and self._marks[-1][0] >= self.iteration:
            self._marks.pop()
        self._marks.append((self.iteration, self.elapsed))

    def name(self, event: dict[str, Any]) -> None:
        """Take the words of an event, where it has some, in place of those before."""
        if event.get("top_words"):
            self.words, self.words_at = event["top_words"], event["iteration"]

    def curve(self, name: str) -> Curve:
        """Return a curve; an empty one where there is none yet."""
        return self.curves.setdefault(name, Curve())

    def pace(self) -> float:
        """Return the seconds that an iteration took of late; 0 before two."""
        if len(self._marks) < 2:
            return 0.0
        (first, began), (last, now) = self._marks[0], self._marks[-1]
        return max(now - began, 0.0) / (last - first)

    def left(self, planned: int) -> float | None:
        """Return the seconds until the last of the planned iterations, by the pace of late; None before two."""
        if len(self._marks) < 2 or self.ended:
            return None
        return (planned - self.iteration) * self.pace()


class Picture:
    """What is known of a run.

    Attributes
    ----------
    family, holds : str
        What is fitted, to ``documents`` or ``vectors``.
    start, cluster : dict
        The events of these names.
    courses : dict of int or None to Course
        Of each member on its way or at its end, or None for a run that is no ensemble.
    processes : list of dict
        What the worker processes held and did when that was told last.
    notices : deque of str
        What befell it of late.
    ended : str
        Why it ended; empty while it goes on.
    """

    def __init__(self) -> None:
        self.start: dict[str, Any] = {}
        self.cluster: dict[str, Any] = {}
        self.courses: dict[int | None, Course] = {}
        self.processes: list[dict[str, Any]] = []
        self.notices: deque[str] = deque(maxlen=NOTICES)
        self.ended = ""
        self.members_ended: set[int] = set()

    @property
    def family(self) -> str:
        """What is fitted."""
        return str(self.start.get("family", ""))

    @property
    def planned(self) -> int:
        """The most iterations that there will be of each fit."""
        return int(self.start.get("iterations", 0))

    @property
    def restarts(self) -> int:
        """How many members there are; 0 where it is no ensemble."""
        return int(self.start.get("restarts", 0))

    @property
    def course(self) -> Course:
        """The fit, or the member that was told of last."""
        return self.courses.get(self._last, Course())

    def flight(self) -> str:
        """Say which members are done, and which are in flight."""
        flight = [number for number, one in self.courses.items() if number is not None and not one.ended]
        several = f"{self.restarts:,} member{'' if self.restarts == 1 else 's'}"
        text = f"{len(self.members_ended)} of {several} done"
        return text + (f", in flight {', '.join(str(one) for one in sorted(flight))}" if flight else "")

    _last: int | None = None

    def add(self, event: dict[str, Any]) -> None:
        """Add an event; of those that it does not know, nothing is kept."""
        handler = getattr(self, f"_{event['event']}", None) if event["event"] in REQUIRED else None
        if handler is not None:
            handler(event)

    def _cluster(self, event: dict[str, Any]) -> None:
        self.cluster = event

    def _start(self, event: dict[str, Any]) -> None:
        self.start, self.ended = event, ""

    def _begin(self, event: dict[str, Any]) -> None:
        self.courses[event.get("member")] = Course()
        if not self.start:  # of a member that is looked at by itself
            self.start = {name: value for name, value in event.items() if name != "member"}

    def _iteration(self, event: dict[str, Any]) -> None:
        self._last = event.get("member") if self.restarts else None
        self.courses.setdefault(self._last, Course()).add(event)
        self.processes = event.get("processes", self.processes)
        self.ended = ""

    def _member(self, event: dict[str, Any]) -> None:
        self.members_ended.add(event["member"])
        course = self.courses.setdefault(event["member"], Course())
        course.iteration, course.ended = event["iteration"], event["reason"]

    def _notice(self, event: dict[str, Any]) -> None:
        self.notices.append(f"{_named(event)}{event['text']}")

    def _back(self, event: dict[str, Any]) -> None:
        text = f"work was lost ({event['reason']}); going on from iteration {event['iteration']}"
        self.notices.append(f"{_named(event)}{text}")

    def _end(self, event: dict[str, Any]) -> None:
        member = event.get("member") if self.restarts else None
        if member is not None:
            course = self.courses.setdefault(member, Course())
            course.ended = event["reason"]
            course.name(event)
            return
        if not self.restarts:
            self.courses.setdefault(None, Course()).name(event)
        self.ended = event["reason"]
        for course in self.courses.values():
            course.ended = course.ended or event["reason"]


def _named(event: dict[str, Any]) -> str:
    return f"member {event['member']}: " if "member" in event else ""
