"""The status of a run, from its events: for live views, `collapsium watch` and the dashboard's page."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypedDict, TypeVar

from collapsium.pipeline.formatting import counted, quantity, sample_text
from collapsium.pipeline.monitoring.events import Event
from collapsium.storage.runs.event_records import REQUIRED

MAX_CURVE_POINTS = 600  # Largest number of points of a curve
PACE_ITERATIONS = 20  # Number of last iterations from which the remaining time is estimated
MAX_NOTICES = 3  # Number of last notices
# The units of documents, tokens and words, by the contents of a corpus
UNITS = {"documents": ("documents", "tokens", "words"), "vectors": ("vectors", "values", "columns")}
Value = TypeVar("Value")


class Process(TypedDict):
    """A worker process: its name, its memory in bytes and its current tasks."""

    name: str
    memory: int
    doing: list[str]


@dataclass
class Curve(Generic[Value]):
    """Values by iteration; when there are too many, every other one is dropped, except for the last."""

    points: list[tuple[int, Value]] = field(default_factory=list)
    _every: int = 1

    def add(self, iteration: int, value: Value) -> None:
        """Add a value in place of the values of this iteration and later ones, which a run that goes back repeats."""
        while self.points and self.points[-1][0] >= iteration:
            self.points.pop()
        if len(self.points) > 1 and self.points[-1][0] - self.points[-2][0] < self._every:
            self.points.pop()
        self.points.append((iteration, value))
        if len(self.points) > MAX_CURVE_POINTS:
            self.points = [*self.points[:-1][::2], self.points[-1]]
            self._every *= 2

    @property
    def last(self) -> Value | None:
        """The last value; None if there is none."""
        return self.points[-1][1] if self.points else None


@dataclass
class FitStatus:
    """The status of a fit, or of a member of an ensemble."""

    iteration: int = 0  # Number of completed iterations
    elapsed: float = 0.0  # Seconds since it began
    event: Event = field(default_factory=dict)  # The event of its last iteration
    # ``score``, ``objective`` and ``active`` topics by iteration
    curves: dict[str, Curve[float]] = field(default_factory=dict)
    # Least, quartiles and most of the seconds that a shard takes
    sweeps: Curve[list[float]] = field(default_factory=Curve)
    seconds: Curve[dict[str, float]] = field(default_factory=Curve)  # Mean seconds of a worker by activity
    # Top words of topics by id, from the last event that has some
    words: dict[str, list[str]] = field(default_factory=dict)
    words_at: int = 0  # The iteration of that event
    ended: str = ""  # Reason for its end; empty while it runs
    totals: dict[str, float] = field(default_factory=dict)  # Sums over all iterations, as counters need them
    _marks: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=PACE_ITERATIONS + 1))

    def add(self, event: Event) -> None:
        """Add an iteration."""
        self.iteration, self.elapsed, self.event, self.ended = event["iteration"], event["elapsed"], event, ""
        for name in ("score", "objective", "active"):
            if name in event:
                self.curves.setdefault(name, Curve()).add(self.iteration, event[name])
        self.seconds.add(self.iteration, event.get("seconds", {}))
        if "sweeps" in event:
            self.sweeps.add(self.iteration, event["sweeps"]["quartiles"])
        self.add_words(event)
        while self._marks and self._marks[-1][0] >= self.iteration:
            self._marks.pop()
        self._marks.append((self.iteration, self.elapsed))

    def add_words(self, event: Event) -> None:
        """Replace the top words by an event's, if it has some."""
        if event.get("top_words"):
            self.words, self.words_at = event["top_words"], event["iteration"]

    def pace(self) -> float:
        """Return the mean seconds of the last iterations; 0 before two iterations."""
        if len(self._marks) < 2:
            return 0.0
        (first, began), (last, now) = self._marks[0], self._marks[-1]
        return max(now - began, 0.0) / (last - first)

    def left(self, planned: int) -> float | None:
        """Return the estimated seconds to the last iteration; None before two iterations or after the end."""
        if len(self._marks) < 2 or self.ended or "documents_share" in self.event:
            return None
        return (planned - self.iteration) * self.pace()


class RunStatus:
    """The status of a run."""

    def __init__(self) -> None:
        self.start: Event = {}
        self.cluster: Event = {}
        self.fits: dict[int | None, FitStatus] = {}
        self.processes: list[Process] = []
        self.notices: deque[str] = deque(maxlen=MAX_NOTICES)
        self.ended = ""
        self.members_ended: set[int] = set()
        self._last: int | None = None

    @property
    def family(self) -> str:
        """The model family."""
        return str(self.start.get("family", ""))

    @property
    def planned(self) -> int:
        """The largest number of iterations of each fit."""
        return int(self.start.get("iterations", 0))

    @property
    def restarts(self) -> int:
        """The number of members; 0 if the run is not an ensemble."""
        return int(self.start.get("restarts", 0))

    @property
    def fit(self) -> FitStatus:
        """The fit, or the member of the last iteration."""
        return self.fits.get(self._last, FitStatus())

    @property
    def units(self) -> tuple[str, str, str]:
        """The units of documents, tokens and words."""
        return UNITS.get(str(self.start.get("holds")), UNITS["documents"])

    def sizes(self) -> str:
        """Return the size of the corpus, as text."""
        sizes = zip(UNITS["documents"], self.units, strict=True)
        return ", ".join(f"{int(self.start.get(name, 0)):,} {unit}" for name, unit in sizes)

    def figures(self, fit: FitStatus) -> dict[str, str]:
        """Return names and texts of the figures of a fit, as the terminal and the scheduler's page show them."""
        event, texts = fit.event, {"members": self.members_text()} if self.restarts else {}
        name, digits = ("score", 4) if "score" in fit.curves else ("objective", 1)
        if name in fit.curves:
            texts[name] = f"{fit.curves[name].last:.{digits}f}"
        if "documents_share" in event:
            texts["swept"] = sample_text(event["documents_share"])
        if "change" in event:
            texts["change"] = f"{event['change']:.2e}"
        if "tokens_a_second" in event:
            spent = event["seconds"]
            total = sum(spent.values()) or 1.0
            shares = [f"{name} {spent[name] / total:.0%}" for name in ("kernel", "reduce", "wait") if name in spent]
            texts["speed"] = f"{quantity(event['tokens_a_second'])} {self.units[1]}/s  ({', '.join(shares)})"
        if "active" in event:
            texts["topics"] = f"{event['active']:,} active"
        return texts

    def members_text(self) -> str:
        """Return the number of members that have ended, and the running ones, as text."""
        running = sorted(number for number, fit in self.fits.items() if number is not None and not fit.ended)
        text = f"{len(self.members_ended)} of {counted(self.restarts, 'member')} done"
        return f"{text}, running {', '.join(map(str, running))}" if running else text

    def add(self, event: Event) -> None:
        """Add an event; unknown kinds are ignored."""
        handler = getattr(self, f"_{event['event']}", None) if event["event"] in REQUIRED else None
        if handler is not None:
            handler(event)

    def _cluster(self, event: Event) -> None:
        self.cluster = event

    def _start(self, event: Event) -> None:
        self.start, self.ended = event, ""

    def _begin(self, event: Event) -> None:
        self.fits[event.get("member")] = FitStatus()
        # A member that is watched alone has no start event.
        if not self.start:
            self.start = {name: value for name, value in event.items() if name != "member"}

    def _iteration(self, event: Event) -> None:
        self._last = event.get("member") if self.restarts else None
        self.fits.setdefault(self._last, FitStatus()).add(event)
        self.processes = event.get("processes", self.processes)
        self.ended = ""

    def _member(self, event: Event) -> None:
        self.members_ended.add(event["member"])
        fit = self.fits.setdefault(event["member"], FitStatus())
        fit.iteration, fit.ended = event["iteration"], event["reason"]

    def _notice(self, event: Event) -> None:
        self.notices.append(f"{member_prefix(event)}{event['text']}")

    def _back(self, event: Event) -> None:
        self.notices.append(f"{member_prefix(event)}{loss_text(event)}")

    def _end(self, event: Event) -> None:
        member = event.get("member") if self.restarts else None
        if member is not None:
            fit = self.fits.setdefault(member, FitStatus())
            fit.ended = event["reason"]
            fit.add_words(event)
            return
        if not self.restarts:
            self.fits.setdefault(None, FitStatus()).add_words(event)
        self.ended = event["reason"]
        for fit in self.fits.values():
            fit.ended = fit.ended or event["reason"]


def saving_text(event: Event) -> str:
    """Return the line about a state that is saved before a run stops; only an interrupt can be repeated."""
    again = "; interrupt again to stop at once" if event.get("reason") == "interrupt" else ""
    return f"saving iteration {event['iteration']}{again}"


def loss_text(event: Event) -> str:
    """Return the line about work that was lost."""
    return f"work was lost ({event['reason']}); continuing from iteration {event['iteration']}"


def member_prefix(event: Event) -> str:
    """Return the beginning of a line about a member of an ensemble; empty for other fits."""
    return f"member {event['member']}: " if "member" in event else ""
