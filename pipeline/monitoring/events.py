"""Events of a run: dicts of plain values that sinks receive, and that `events.jsonl` records.

`RunStatus` sums them up for live views, `collapsium watch` and the dashboard's page, and `Feed` sends them, thinned
out, to the scheduler.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypedDict, TypeVar, cast

from collapsium.pipeline.formatting import counted, quantity, sample_text
from collapsium.pipeline.svg import thinned
from collapsium.storage.errors import OptionError
from collapsium.workers.options import import_named

Event = dict[str, Any]  # An event; its key ``event`` has the kind, and the other keys depend on the kind
Sink = Callable[[Event], None]  # Receives events


def initial_event(name: str, **fields: Any) -> Event:
    """Return an event before the first iteration."""
    return {"event": name, "iteration": 0, "elapsed": 0.0, **fields}


def emit(sinks: Sequence[Sink], event: Event) -> None:
    """Send an event to all sinks, a dict of its own to each."""
    for sink in sinks:
        sink({**event})


def sinks_of(value: object) -> list[Sink]:
    """Return a list of functions; refuse other values."""
    if not isinstance(value, Iterable) or isinstance(value, (str, Mapping)):
        raise OptionError(f"expected a list of functions, found {type(value).__name__}", "sinks")
    sinks = [*value]
    wrong = next((sink for sink in sinks if not callable(sink)), None)
    if wrong is not None:
        raise OptionError(f"expected a list of functions, found {type(wrong).__name__} in it", "sinks")
    return sinks


def load_function(name: str, option: str) -> Callable[..., object]:
    """Import a function of the user, which the command line or a caller has named."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise OptionError(f"expected module:function or module:Class, found {name!r}", option)
    try:
        target = import_named(name)
        function: Any = target() if inspect.isclass(target) else target
    except OptionError:
        raise
    # Importing a module of the user may raise anything.
    except Exception as error:
        raise OptionError(f"`{option}` {name}: {type(error).__name__}: {error}") from None
    if not callable(function):
        raise OptionError(f"`{option}` {name}: expected a callable, found {type(function).__name__}")
    return cast("Callable[..., object]", function)


class Guarded:
    """A callback whose errors do not end the run: the first one is reported, and it is not called again."""

    def __init__(self, callback: Callable[[Event], object], name: str, notice: Callable[[str], None]) -> None:
        self._callback: Callable[[Event], object] | None = callback
        self._name, self._notice = name, notice

    def __call__(self, event: Event) -> None:
        """Pass on an event, unless there was an error before."""
        if self._callback is None:
            return
        try:
            self._callback(dict(event))
        # An error of a callback must not end the run.
        except Exception as error:
            self._callback = None
            reason = str(error).splitlines()[0] if str(error) else "no reason given"
            self._notice(f"callback {self._name}: {type(error).__name__}: {reason}; it is not called again")


def guarded(names: Sequence[str], notice: Callable[[str], None]) -> list[Sink]:
    """Import callbacks, and guard the run against their errors."""
    return [Guarded(load_function(name, "callback"), name, notice) for name in names]


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

    def metrics(self, fit: FitStatus) -> dict[str, str]:
        """Return names and texts of the metrics of a fit, as the terminal and the scheduler's page show them."""
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
        member = event.get("member") if self.restarts else None
        match event["event"]:
            case "start":
                self.start, self.ended = event, ""
            case "begin":
                self.fits[event.get("member")] = FitStatus()
                # A member that is watched alone has no start event.
                if not self.start:
                    self.start = {name: value for name, value in event.items() if name != "member"}
            case "iteration":
                self._last = member
                self.fits.setdefault(member, FitStatus()).add(event)
                self.processes = event.get("processes", self.processes)
                self.ended = ""
            case "member":
                self.members_ended.add(event["member"])
                fit = self.fits.setdefault(event["member"], FitStatus())
                fit.iteration, fit.ended = event["iteration"], event["reason"]
            case "notice":
                self.notices.append(f"{member_prefix(event)}{event['text']}")
            case "back":
                self.notices.append(f"{member_prefix(event)}{loss_text(event)}")
            case "end":
                if member is not None or not self.restarts:
                    self.fits.setdefault(member, FitStatus()).add_words(event)
                if member is not None:
                    self.fits[member].ended = event["reason"]
                    return
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


SECONDS = 0.25  # Seconds between two iterations that are sent, as the scheduler has other work to do
POINTS = 300  # Iterations that are sent when a run is resumed
ACTIVITIES = ("kernel", "reduce", "update", "score", "wait")  # Keys of the seconds of an iteration


# A message to the scheduler: ``run``, the folder; ``event``; ``totals``, sums over all iterations so far
Message = dict[str, object]


class Feed:
    """A sink that forwards a run's events to the scheduler.

    Iterations in quick succession are left out, except the last one before another event. Each message has sums over
    all iterations so far, from which counters are made.
    """

    def __init__(
        self,
        send: Callable[[Message], None],
        run: str,
        before: Callable[[], list[Event]],
        every: float = SECONDS,
    ) -> None:
        self._send_message, self._run, self._before, self._every = send, run, before, every
        self._totals: dict[int | None, dict[str, float]] = {}
        self._last: dict[int | None, Event] = {}
        self._sent: dict[int | None, float] = {}
        # Members are fitted in parallel.
        self._lock, self._sending = threading.RLock(), False

    def __call__(self, event: Event) -> None:
        """Forward an event, or keep it until the next iteration may be sent."""
        with self._lock:
            # A failure to send is itself an event, which must not be sent.
            if self._sending:
                return
            self._sending = True
            try:
                if event["event"] == "iteration":
                    self._iteration(event)
                    return
                for last in [*self._last.values(), event]:
                    self._send(last)
                if event["event"] == "start":
                    iterations = [event for event in self._before() if event["event"] == "iteration"]
                    scored = [number for number, event in enumerate(iterations) if event.get("score") is not None]
                    for number in sorted({*thinned(range(len(iterations)), POINTS), *thinned(scored, POINTS)}):
                        self._send(iterations[number])
            finally:
                self._sending = False

    def _iteration(self, event: Event) -> None:
        member = event.get("member")
        totals = self._totals.setdefault(member, {})
        sweeps = event.get("sweeps", {})
        increments = {name: event["seconds"].get(name, 0.0) for name in ACTIVITIES}
        increments["tokens"] = event.get("tokens", 0.0)
        increments.update(sweeps=sweeps.get("shards", 0), sweep=sweeps.get("total", 0.0))
        for name, value in increments.items():
            totals[name] = totals.get(name, 0.0) + value
        unsent = self._last.get(member, {})
        rare: Event = {name: unsent[name] for name in ("top_words", "processes") if name in unsent}
        merged = {**rare, **event}
        # An event has the words of a few topics only.
        if "top_words" in merged:
            merged["top_words"] = {**rare.get("top_words", {}), **event.get("top_words", {})}
        self._last[member] = merged
        if time.monotonic() - self._sent.get(member, 0.0) >= self._every:
            self._send(self._last[member])

    def _send(self, event: Event) -> None:
        member = event.get("member")
        if event["event"] == "iteration":
            self._sent[member] = time.monotonic()
            self._last.pop(member, None)
        self._send_message({"run": self._run, "event": event, "totals": self._totals.get(member, {})})
