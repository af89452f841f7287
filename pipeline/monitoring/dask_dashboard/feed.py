"""Event feed of the dashboard and the metrics: a run's events, thinned out, with complete totals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from collapsium.pipeline.monitoring.events import Event
from collapsium.pipeline.svg import thinned

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
