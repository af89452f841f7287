"""Runs on a Dask scheduler: a page ``/collapsium``, charts for JupyterLab's list, and metrics for Prometheus.

A scheduler that Collapsium starts has them. Another scheduler gets them when a driver connects to it, or from its start
with ``dask scheduler --preload collapsium.pipeline.monitoring.dask_dashboard.plugin``.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import distributed
from distributed import Scheduler
from distributed.http.scheduler.info import IndividualPlots
from markupsafe import Markup
from tornado.web import RequestHandler

from collapsium.pipeline.formatting import duration_text, shortened
from collapsium.pipeline.monitoring.events import FitStatus, RunStatus
from collapsium.pipeline.svg import (
    BOTTOM,
    STYLE,
    TOP,
    Chart,
    curves,
    iteration_ticks,
    number_ticks,
    security_policy,
    thinned,
    ticks,
)
from collapsium.storage.units import size

TOPIC, NAME = "collapsium", "collapsium-runs"
RUNS = 8  # Number of runs that are remembered
# Time after which the state of a run reports missing events; the longer one counts.
SILENCE_SECONDS = 30.0  # Seconds without an event
SILENCE_ITERATIONS = 5.0  # Mean durations of an iteration without an event


class Runs(distributed.SchedulerPlugin):  # type: ignore[misc]
    """Keeps the status of runs from the messages of their drivers; the scheduler's log has only the last 1000."""

    name = NAME

    def __init__(self) -> None:
        # In order of their start.
        self._statuses: dict[str, RunStatus] = {}
        # Time of the last message of each run, in ascending order.
        self._updated: OrderedDict[str, float] = OrderedDict()

    def log_event(self, topic: str, msg: object) -> None:
        """Receive a message of a driver; see `collapsium.pipeline.monitoring.events`."""
        if topic != TOPIC or not isinstance(msg, dict) or not {"run", "event", "totals"} <= set(msg):
            return
        run, event = str(msg["run"]), msg["event"]
        # The event `cluster` begins or resumes a fit.
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

    def statuses(self) -> dict[str, RunStatus]:
        """Return the status of each run by its folder, in order of their start."""
        return dict(self._statuses)

    def state(self, run: str) -> str:
        """Return the state of a run, as text."""
        status = self._statuses[run]
        if status.ended:
            return f"ended ({status.ended})"
        quiet = time.monotonic() - self._updated[run]
        limit = max(SILENCE_SECONDS, SILENCE_ITERATIONS * status.fit.pace())
        return f"no event for {duration_text(quiet)}" if quiet > limit else "running"


TOPIC_BARS = 15  # Number of topics with a bar
LETTERS = 44  # Characters of a topic's words
ROW = 22.0  # Height of a horizontal bar with its gap
BAR_POINTS = 300  # Points of an area's edge
ACTIVITIES = {"kernel": "f0", "reduce": "f2", "score": "f3", "update": "f1", "wait": "rest"}  # With their colours

PAGE_STYLE = """
main, nav { max-width: 100rem; margin: 0 auto; padding: 0.75rem 1rem; }
nav { padding-bottom: 0; font-size: 0.9375rem; }
select { font: inherit; max-width: 100%; margin: 0.25rem 0.75rem 0.25rem 0; }
.figures { display: flex; flex-wrap: wrap; gap: 0.25rem 1.5rem; margin: 0.5rem 0 1rem; }
.figures dt { color: var(--soft); font-size: 0.8125rem; } .figures dd { margin: 0; font-weight: 600; }
.chart ul { list-style: none; margin: 0; padding: 0; font-size: 0.875rem; }
.chart li { overflow-wrap: anywhere; }
"""
SCRIPT = """
document.addEventListener("change", event => {
  const chosen = new URLSearchParams(new FormData(event.target.form));
  if (event.target.name === "run") chosen.delete("member");
  location.search = chosen;
});
async function refresh() {
  try {
    const answer = await fetch(location.href);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const parts = answer.ok ? [...fresh.querySelectorAll("[id]")] : [];
    if (parts.some(part => !document.getElementById(part.id))) {
      document.querySelector("main").replaceWith(fresh.querySelector("main"));
    } else for (const part of parts) {
      const shown = document.getElementById(part.id);
      if (shown.outerHTML !== part.outerHTML) shown.replaceWith(part);
    }
  } catch (error) { console.debug(error); }  // the scheduler may be back at the next time
  setTimeout(refresh, 1000);
}
setTimeout(refresh, 1000);
"""
PAGE = Markup(
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Collapsium</title>'
    '<meta name="viewport" content="width=device-width, initial-scale=1"><style>{}</style></head>'
    "<body>{}<script>{}</script></body></html>"
)
FIGURE = Markup(
    '<figure class="chart" id="{}"><figcaption><strong>{}</strong> <span class="unit">{}</span></figcaption>'
    '{}<p class="last">{}</p></figure>'
)


def score_chart(status: RunStatus, fit: FitStatus) -> Markup:  # noqa: ARG001
    """Draw the held-out score by iteration or, without held-out tokens, the objective."""
    name = "score" if "score" in fit.curves else "objective"
    title, unit = ("Score", "nats per held-out token") if name == "score" else ("Objective", "nats")
    if name not in fit.curves:
        return FIGURE.format("score", title, unit, "", "")
    return FIGURE.format("score", title, unit, *curves(title, [("", fit.curves[name].points)]))


def sizes_chart(status: RunStatus, fit: FitStatus) -> Markup:  # noqa: ARG001
    """Draw the shares of the largest topics, with their words over the bars, so that narrow windows can show them."""
    sizes = [(str(int(topic)), share) for topic, share in fit.event.get("sizes", [])[:TOPIC_BARS]]
    rows = [(topic, share, shortened(" ".join(fit.words.get(topic, [])), LETTERS)) for topic, share in sizes]
    age = f"words of iteration {fit.words_at:,}" if fit.words else ""
    return FIGURE.format(
        "sizes", "Largest topics", "share of the tokens", _bars(rows, lambda share: f"{share:.2%}"), age
    )


def sweeps_chart(status: RunStatus, fit: FitStatus) -> Markup:  # noqa: ARG001
    """Draw the time of a shard's sweep by iteration: least and most, quartiles, and median."""
    points = thinned(fit.sweeps.points, BAR_POINTS)
    drawn: Markup | str = ""
    if points:
        chart = Chart((points[0][0], points[-1][0]), (0.0, 1.05 * max(values[-1] for _, values in points)))
        smallest, low, half, high, largest = (
            [(float(iteration), values[column]) for iteration, values in points] for column in range(5)
        )
        chart.area([*largest, *reversed(smallest)], "band")
        chart.area([*high, *reversed(low)], "band")
        chart.line(half, "c0")
        drawn = chart.drawn("Time of a shard's sweep", iteration_ticks(*chart.x), number_ticks(ticks(*chart.y)))
    return FIGURE.format("sweeps", "Time of a shard's sweep", "seconds: minimum, quartiles, maximum", drawn, "")


def shares_chart(status: RunStatus, fit: FitStatus) -> Markup:  # noqa: ARG001
    """Draw the shares of a worker's time by activity and iteration."""
    points = thinned(fit.seconds.points, BAR_POINTS)
    drawn: Markup | str = ""
    if points:
        chart = Chart((points[0][0], points[-1][0]), (0.0, 1.0))
        base = [(float(iteration), 0.0) for iteration, _ in points]
        for name, colour in ACTIVITIES.items():
            above = [
                (x, y + seconds.get(name, 0.0) / (sum(seconds.values()) or 1.0))
                for (x, y), (_, seconds) in zip(base, points, strict=True)
            ]
            chart.area([*above, *reversed(base)], colour, name)
            base = above
        y_ticks = [(share, f"{share:.0%}") for share in (0.0, 0.5, 1.0)]
        drawn = chart.drawn("Time of the workers by activity", iteration_ticks(*chart.x), y_ticks)
    swatch = Markup('<svg class="swatch" viewBox="0 0 10 10"><rect class="{}" width="10" height="10"/></svg>{} ')
    legend = Markup().join(swatch.format(colour, name) for name, colour in ACTIVITIES.items())
    return FIGURE.format("shares", "Time of the workers by activity", "mean share", drawn, legend)


def memory_chart(status: RunStatus, fit: FitStatus) -> Markup:  # noqa: ARG001
    """Draw the memory of each worker process."""
    rows = [("", process["memory"], process["name"]) for process in status.processes]
    return FIGURE.format("memory", "Memory of each worker", "", _bars(rows, size), "")


CHARTS: dict[str, Callable[[RunStatus, FitStatus], Markup]] = {
    "score": score_chart,
    "sizes": sizes_chart,
    "sweeps": sweeps_chart,
    "shares": shares_chart,
    "memory": memory_chart,
}


def _bars(rows: Sequence[tuple[str, float, str]], text_of: Callable[[float], str]) -> Markup | str:
    """Draw horizontal bars with a name at the left, a value, and a text over the bar."""
    if not rows:
        return ""
    chart = Chart((0.0, 1.05 * max(value for _, value, _ in rows)), (len(rows), 0.0), left=34.0)
    chart.height = TOP + BOTTOM + ROW * len(rows)
    for place, (name, value, text) in enumerate(rows):
        chart.bar((0.0, value), (place + 0.09, place + 0.91), "pale", f"{name} {text}: {text_of(value)}".strip())
        chart.text(0.0, place + 0.5, text, "over", shift=4.0)
    names = [(place + 0.5, name) for place, (name, _, _) in enumerate(rows)]
    return chart.drawn("Bars", [(mark, text_of(mark)) for mark in ticks(*chart.x, 3)], names, grid=False)


def _changing_topics(fit: FitStatus) -> Markup:
    """Return the topics whose share changed most, with their words."""
    lines = Markup().join(
        Markup("<li>{} &ensp;<b>{}</b> {}</li>").format(
            f"{'+' if change > 0 else '−'}{abs(change):.2%}", int(topic), " ".join(fit.words.get(str(int(topic)), []))
        )
        for topic, change in fit.event.get("moved", [])
    )
    age = f"words of iteration {fit.words_at:,}" if fit.words else ""
    title = "Fastest growing and shrinking topics"
    return FIGURE.format("topics", title, "", Markup("<ul>{}</ul>").format(lines), age)


def _select(name: str, title: str, options: Sequence[tuple[str, str]], chosen: str) -> Markup:
    parts = Markup().join(
        Markup('<option value="{}"{}>{}</option>').format(value, Markup(" selected") * (value == chosen), text)
        for value, text in options
    )
    return Markup('<label>{} <select name="{}">{}</select></label>').format(title, name, parts)


def content(runs: Runs, chosen: str = "", member: str = "") -> Markup:
    """Return the page's content: a run, by default the newest, and of an ensemble one member."""
    statuses = runs.statuses()
    run = chosen if chosen in statuses else next(reversed(statuses), "")
    if not run:
        text = "No run yet. Fits that use this scheduler appear here."
        return Markup('<main><p id="none">{}</p></main>').format(text)
    status, names = statuses[run], list(reversed(statuses))
    named = int(member) if status.restarts and member.isdecimal() else None
    fit = status.fits.get(named, status.fit)
    offered = [_select("run", "Run", [("", f"the newest: {names[0]}"), *((name, name) for name in names)], chosen)]
    if status.restarts:
        restarts = map(str, range(status.restarts))
        members = [("", "the one of the last event"), *((restart, restart) for restart in restarts)]
        offered.append(_select("member", "Member", members, member))
    left = None if status.ended else fit.left(status.planned)
    metrics = {
        "iteration": f"{fit.iteration:,} of {status.planned:,}",
        **status.metrics(fit),
        "elapsed": duration_text(fit.elapsed),
        "remaining": "" if left is None else f"about {duration_text(left)}",
        "state": runs.state(run),
    }
    cells = Markup().join(
        Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(name, text) for name, text in metrics.items() if text
    )
    notices = Markup().join(Markup("<p>{}</p>").format(text) for text in status.notices)
    charts = Markup().join(draw(status, fit) for draw in CHARTS.values())
    return Markup(
        '<main><form id="choice">{}</form><div id="figures">{}: {}<dl class="figures">{}</dl>{}</div>'
        '<div class="charts">{}{}</div></main>'
    ).format(Markup().join(offered), status.family, status.sizes(), cells, notices, charts, _changing_topics(fit))


class Page(RequestHandler):  # type: ignore[misc]
    """Answers with the page, or with one of its charts."""

    def initialize(self, runs: Runs, chart: str = "") -> None:
        """Receive the runs, and the name of the only chart to draw."""
        self.runs, self.chart = runs, chart

    def get(self) -> None:
        """Answer a request, in whose query a run and a member may be named."""
        if self.chart:
            status = next(reversed(self.runs.statuses().values()), RunStatus())
            body = Markup("<main>{}</main>").format(CHARTS[self.chart](status, status.fit))
        else:
            body = Markup('<nav id="nav"><a href="status">Dask\'s dashboard</a></nav>')
            body += content(self.runs, self.get_query_argument("run", ""), self.get_query_argument("member", ""))
        style = STYLE + PAGE_STYLE
        self.set_header("Content-Security-Policy", f"{security_policy(style, SCRIPT)}; connect-src 'self'")
        # Both texts are constants.
        self.write(PAGE.format(Markup(style), body, Markup(SCRIPT)))  # noqa: S704


class Plots(IndividualPlots):  # type: ignore[misc]
    """The list of charts that Dask's JupyterLab extension offers, including the charts of the page."""

    def write(self, chunk: Any) -> None:
        """Answer with Dask's charts and the page's."""
        super().write({**chunk, **{f"Individual Collapsium {name.title()}": f"/{_path(name)}" for name in CHARTS}})


def _path(chart: str) -> str:
    return f"individual-collapsium-{chart}"


def install(dask_scheduler: Scheduler) -> None:
    """Add the page, the charts and the metrics to a running scheduler, unless it has them."""
    if isinstance(dask_scheduler.plugins.get(NAME), Runs):
        return
    runs = Runs()
    dask_scheduler.add_plugin(runs)
    # The page and its charts answer whatever the prefix of their paths.
    charts = [(rf".*/{_path(name)}", Page, {"runs": runs, "chart": name}) for name in CHARTS]
    pages = [
        (r".*/collapsium", Page, {"runs": runs}),
        (r".*/individual-plots.json", Plots, {"dask_server": dask_scheduler}),
    ]
    dask_scheduler.http_application.add_handlers(r".*", [*pages, *charts])
    # Without Bokeh, Dask has no pages in whose navigation the page could be.
    if find_spec("bokeh") is not None:
        from distributed.dashboard.scheduler import template_variables

        template_variables(dask_scheduler)["pages"].insert(0, "collapsium")
    # A scheduler without prometheus-client has no metrics.
    if find_spec("prometheus_client") is not None:
        from collapsium.pipeline.monitoring import prometheus

        prometheus.publish(runs)


dask_setup = install  # The name that a scheduler calls in a preload
