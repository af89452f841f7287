"""Feeding a dashboard's page and its metrics: a run's events, thinned, with sums that miss nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

SECONDS = 0.25  # between two iterations that are sent: the scheduler has other things to do
POINTS = 300  # iterations of a run that is taken up again that are sent at first
SPENT = ("kernel", "reduce", "update", "score", "wait")


def thinned(told: Sequence[dict[str, Any]], points: int = POINTS) -> list[dict[str, Any]]:
    """Leave out iterations, evenly, of those that were scored and of the others by themselves.

    Parameters
    ----------
    told : sequence of dict
        Iterations.
    points : int, optional
        How many of either may stay.

    Returns
    -------
    list of dict
        Those that stay, the first and the last among them.
    """
    scored = [number for number, one in enumerate(told) if one.get("score") is not None]
    stay: set[int] = set()
    for places in (scored, list(range(len(told)))):
        stay.update(places[:: max(-(-len(places) // points), 1)], places[-1:])
    return [told[number] for number in sorted(stay)]


class Feed:
    """A sink that sends a run's events on.

    Iterations that follow one another closely are left out, the last one before another event is not. Each message
    holds sums over all iterations so far: counters are made of them.

    Parameters
    ----------
    tell : callable
        Sends a message: a dict of ``run``, ``event`` and ``totals``.
    run : str
        The run's folder, by which its messages are known.
    before : callable
        Gives the events of a run that is taken up again.
    every : float, optional
        Seconds between two iterations that are sent.
    """

    def __init__(
        self,
        tell: Callable[[dict[str, Any]], None],
        run: str,
        before: Callable[[], list[dict[str, Any]]],
        every: float = SECONDS,
    ) -> None:
        self._tell, self._run, self._before, self._every = tell, run, before, every
        self._totals: dict[int | None, dict[str, float]] = {}
        self._last: dict[int | None, dict[str, Any]] = {}
        self._sent: dict[int | None, float] = {}
        self._lock, self._sending = threading.RLock(), False  # members tell side by side

    def __call__(self, event: dict[str, Any]) -> None:
        """Send an event, unless one like it has just been sent."""
        with self._lock:
            if self._sending:  # that a message does not arrive is told too, by whoever sends it
                return
            self._sending = True
            try:
                self._feed(event)
            finally:
                self._sending = False

    def _feed(self, event: dict[str, Any]) -> None:
        if event["event"] == "iteration":
            self._iteration(event)
            return
        for last in list(self._last.values()):
            self._send(last)
        self._send(event)
        if event["event"] == "start":
            for one in thinned([one for one in self._before() if one["event"] == "iteration"]):
                self._send(one)

    def _iteration(self, event: dict[str, Any]) -> None:
        member = event.get("member")
        totals = self._totals.setdefault(member, {})
        sweeps = event.get("sweeps", {})
        more = {**{name: event["seconds"].get(name, 0.0) for name in SPENT}, "tokens": event.get("tokens", 0.0)}
        more.update(sweeps=sweeps.get("shards", 0), sweep=sweeps.get("total", 0.0))
        for name, value in more.items():
            totals[name] = totals.get(name, 0.0) + value
        kept = self._last.get(member, {})
        rare: dict[str, Any] = {name: kept[name] for name in ("top_words", "processes") if name in kept}
        after = {**rare, **event}
        if "top_words" in after:  # each event has those of a few topics
            after["top_words"] = {**rare.get("top_words", {}), **event.get("top_words", {})}
        self._last[member] = after
        if time.monotonic() - self._sent.get(member, 0.0) >= self._every:
            self._send(self._last[member])

    def _send(self, event: dict[str, Any]) -> None:
        member = event.get("member")
        if event["event"] == "iteration":
            self._sent[member] = time.monotonic()
            self._last.pop(member, None)
        self._tell({"run": self._run, "event": event, "totals": self._totals.get(member, {})})
