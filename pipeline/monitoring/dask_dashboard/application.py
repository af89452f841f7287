"""Serve the page and the plots of runs on the web server of a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import Any

from bokeh.document import Document
from bokeh.models import (
    ColumnDataSource,
    CustomJSTickFormatter,
    Div,
    FactorRange,
    NumeralTickFormatter,
    Range1d,
    Select,
)
from bokeh.plotting import figure
from bokeh.server.tornado import BokehTornado
from distributed import Scheduler
from distributed.dashboard.components.scheduler import BOKEH_THEME, env
from distributed.dashboard.core import BokehApplication
from distributed.dashboard.scheduler import template_variables
from tornado.ioloop import IOLoop

from collapsium.pipeline.formatting import duration_text, quantity, sample_text
from collapsium.pipeline.monitoring.dask_dashboard.runs import View
from collapsium.pipeline.monitoring.run_status import UNITS, FitStatus, RunStatus

PLOT_HEIGHT = 280  # Height of a plot, in pixels
TOPIC_BARS = 15  # Number of topics with a bar
MAX_LABEL_LETTERS = 44  # Characters of a topic's words
MAX_WORKERS_IN_PLOT = 6  # Up to so many workers, the plot's height depends on their number
WORKER_BAR_HEIGHT = 30  # Height of a worker's bar, in pixels
COLOURS = {"kernel": "#1f77b4", "reduce": "#2ca02c", "score": "#9467bd", "update": "#ff7f0e", "wait": "#bbbbbb"}


class Panel:
    """A plot of a run; `update` brings it up to date."""

    title = ""

    def __init__(self, view: View, **options: Any) -> None:
        self.view = view
        # Ranges are set explicitly, as Bokeh logs warnings about ranges without data.
        ranges = {"x_range": Range1d(0.0, 1.0), "y_range": Range1d(0.0, 1.0), **options}
        self.root = figure(
            title=self.title,
            height=PLOT_HEIGHT,
            sizing_mode="stretch_width",
            toolbar_location=None,
            tools="",
            **ranges,
        )
        self.root.min_border_right = 16

    def update(self) -> None:
        """Show the current status of the run."""
        status = self.view.status()
        if status is not None:
            self.show(status, self.view.fit(status))

    def show(self, status: RunStatus, fit: FitStatus) -> None:
        """Show a run."""


def _span(over: Range1d, values: Sequence[float], *, zero: bool = False, margin: float = 0.05) -> None:
    """Set a range so that it holds all values with a margin, and zero if `zero` is set."""
    if not values:
        return
    low, high = 0.0 if zero else min(values), max(values)
    space = (high - low or abs(high) or 1.0) * margin
    start, end = (0.0 if zero else low - space), high + space
    if (over.start, over.end) != (start, end):
        over.update(start=start, end=end)


class ScorePanel(Panel):
    """The held-out score by iteration; without held-out tokens, the objective."""

    title = "Score over iterations"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.source = ColumnDataSource({"iteration": [], "value": []}, name="score-data")
        self.root.line("iteration", "value", source=self.source, line_width=2)
        self.root.scatter("iteration", "value", source=self.source, size=4)
        self.root.xaxis.axis_label = "iteration"

    def show(self, status: RunStatus, fit: FitStatus) -> None:  # noqa: ARG002
        """Show a run."""
        name = "score" if fit.curves.get("score") else "objective"
        points = fit.curves[name].points if name in fit.curves else []
        unit = "nats a held-out token" if name == "score" else "objective, nats"
        self.root.title.text = f"{name.title()} over iterations ({unit})"
        data: dict[str, list[float]] = {"iteration": [at for at, _ in points], "value": [value for _, value in points]}
        _span(self.root.x_range, data["iteration"])
        _span(self.root.y_range, data["value"])
        self.source.data = data


class SizesPanel(Panel):
    """Shares of the largest topics; their words are drawn over the bars, so that narrow windows can show them."""

    title = "Largest topics (share of the tokens)"

    def __init__(self, view: View) -> None:
        super().__init__(view, y_range=FactorRange(factors=[""]))
        self.source = ColumnDataSource({"topic": [], "share": [], "words": []}, name="sizes-data")
        self.root.hbar(y="topic", right="share", height=0.9, source=self.source, color="#a6cbe8")
        self.root.text(
            x=0, y="topic", text="words", source=self.source, x_offset=4, text_baseline="middle", text_font_size="11px"
        )
        self.root.xaxis.formatter = NumeralTickFormatter(format="0.[00]%")
        self.root.xaxis.ticker.desired_num_ticks = 4

    def show(self, status: RunStatus, fit: FitStatus) -> None:  # noqa: ARG002
        """Show a run."""
        sizes = fit.event.get("sizes", [])[:TOPIC_BARS]
        names = [str(int(one)) for one, _ in sizes]
        if list(self.root.y_range.factors) != names[::-1]:
            self.root.y_range.factors = names[::-1]
        _span(self.root.x_range, [share for _, share in sizes], zero=True)
        age = f"; words of iteration {fit.words_at:,}" if fit.words else ""
        self.root.title.text = self.title.removesuffix(")") + f"{age})"
        words = [_clipped(" ".join(fit.words.get(name, []))) for name in names]
        self.source.data = {"topic": names, "share": [share for _, share in sizes], "words": words}


class SweepsPanel(Panel):
    """Time of a sweep of a shard by iteration: minimum, quartiles and maximum."""

    title = "Time of a shard's sweep (seconds: minimum, quartiles, maximum)"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        names = ("iteration", "least", "low", "half", "high", "most")
        self.source = ColumnDataSource({name: [] for name in names}, name="sweeps-data")
        self.root.varea("iteration", "least", "most", source=self.source, fill_alpha=0.2)
        self.root.varea("iteration", "low", "high", source=self.source, fill_alpha=0.3)
        self.root.line("iteration", "half", source=self.source, line_width=2)
        self.root.xaxis.axis_label = "iteration"

    def show(self, status: RunStatus, fit: FitStatus) -> None:  # noqa: ARG002
        """Show a run."""
        points = fit.sweeps.points
        data: dict[str, list[float]] = {"iteration": [at for at, _ in points]}
        for column, name in enumerate(("least", "low", "half", "high", "most")):
            data[name] = [values[column] for _, values in points]
        _span(self.root.x_range, data["iteration"])
        _span(self.root.y_range, data["most"], zero=True)
        self.source.data = data


class SharesPanel(Panel):
    """Shares of a worker's time by activity and iteration."""

    title = "Time of the workers by activity (mean share)"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.source = ColumnDataSource({"iteration": [], **{name: [] for name in COLOURS}}, name="shares-data")
        self.root.varea_stack(
            list(COLOURS), x="iteration", color=list(COLOURS.values()), legend_label=list(COLOURS), source=self.source
        )
        self.root.yaxis.formatter = NumeralTickFormatter(format="0%")
        self.root.xaxis.axis_label = "iteration"
        self.root.add_layout(self.root.legend[0], "below")
        self.root.legend.orientation = "horizontal"
        self.root.legend.label_text_font_size = "9pt"
        self.root.legend.spacing, self.root.legend.padding, self.root.legend.border_line_color = 4, 2, None

    def show(self, status: RunStatus, fit: FitStatus) -> None:  # noqa: ARG002
        """Show a run."""
        points = fit.seconds.points
        data: dict[str, list[float]] = {"iteration": [at for at, _ in points], **{name: [] for name in COLOURS}}
        for _, seconds in points:
            total = sum(seconds.values()) or 1.0
            for name in COLOURS:
                data[name].append(seconds.get(name, 0.0) / total)
        _span(self.root.x_range, data["iteration"])
        self.source.data = data


class MemoryPanel(Panel):
    """Memory of each worker process."""

    title = "Memory of each worker"

    def __init__(self, view: View) -> None:
        super().__init__(view, y_range=FactorRange(factors=[""]))
        self.source = ColumnDataSource({"worker": [], "bytes": []}, name="memory-data")
        self.root.hbar(y="worker", right="bytes", height=0.7, source=self.source)
        self.root.xaxis.formatter = CustomJSTickFormatter(code="return (tick / 1e6).toFixed(0) + ' MB'")
        self.root.xaxis.ticker.desired_num_ticks = 4

    def show(self, status: RunStatus, fit: FitStatus) -> None:  # noqa: ARG002
        """Show a run."""
        names = [str(one["name"]) for one in status.processes]
        if list(self.root.y_range.factors) != names[::-1]:
            self.root.y_range.factors = names[::-1]
            self.root.height = (
                PLOT_HEIGHT if len(names) > MAX_WORKERS_IN_PLOT else PLOT_HEIGHT // 3 + WORKER_BAR_HEIGHT * len(names)
            )
        memory = [one["memory"] for one in status.processes]
        _span(self.root.x_range, memory, zero=True)
        self.source.data = {"worker": names, "bytes": memory}


PANELS: dict[str, Callable[[View], Panel]] = {
    "score": ScorePanel,
    "sizes": SizesPanel,
    "sweeps": SweepsPanel,
    "shares": SharesPanel,
    "memory": MemoryPanel,
}


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_LABEL_LETTERS else f"{text[: MAX_LABEL_LETTERS - 1]}…"


EVERY = 500  # Milliseconds between two updates
TEMPLATE = """{% extends "base.html" %}
{% block content %}
{% from macros import embed %}
<style>
  .content { overflow: auto !important; height: auto !important; }
  .collapsium { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 360px), 1fr)); gap: 12px;
    padding: 12px; max-width: 1600px; margin: 0 auto; }
  .collapsium > .wide { grid-column: 1 / -1; min-width: 0; }
  .collapsium > div { min-width: 0; }
</style>
<div class="collapsium">
  <div class="wide">{{ embed(roots.run) }}{{ embed(roots.member) }}{{ embed(roots.figures) }}</div>
  {% for name in plots_of_runs %}<div>{{ embed(roots[name]) }}</div>{% endfor %}
  <div>{{ embed(roots.topics) }}</div>
</div>
{{ plot_script }}
{% endblock %}
"""


def _figures(view: View) -> str:
    """Return the figures of a run as HTML."""
    status = view.status()
    if status is None:
        return "<p>No run yet. Fits that use this scheduler appear here.</p>"
    fit, units = view.fit(status), UNITS.get(str(status.start.get("holds", "documents")), UNITS["documents"])
    event, left = fit.event, fit.left(status.planned)
    cells = {
        "iteration": f"{fit.iteration:,} of {status.planned:,}",
        "score": f"{fit.curves['score'].last:.4f}" if "score" in fit.curves else "",
        "swept": sample_text(event["documents_share"]) if "documents_share" in event else "",
        "active topics": f"{event['active']:,}" if "active" in event else "",
        f"{units[1]} per second": quantity(event["tokens_a_second"]) if "tokens_a_second" in event else "",
        "elapsed": duration_text(fit.elapsed),
        "remaining": "" if left is None or status.ended else f"about {duration_text(left)}",
        "members": f"{len(status.members_ended)} of {status.restarts} ended" if status.restarts else "",
        "state": view.state(status),
    }
    figures = "".join(
        f'<span style="display:inline-block;margin:2px 18px 2px 0"><small style="color:#555">{name}</small><br>'
        f'<b id="collapsium-{name.replace(" ", "-")}">{escape(value)}</b></span>'
        for name, value in cells.items()
        if value
    )
    start = status.start
    sizes = ", ".join(f"{int(start.get(key, 0)):,} {unit}" for key, unit in zip(UNITS["documents"], units, strict=True))
    notices = "".join(f"<p>{escape(text)}</p>" for text in status.notices)
    return f"<div>{escape(status.family)}: {escape(sizes)}</div><div>{figures}</div>{notices}"


def _changing_topics(view: View) -> str:
    """Return the topics whose share changed most, with their words, as HTML."""
    status = view.status()
    fit = FitStatus() if status is None else view.fit(status)
    if not fit.event.get("moved"):
        return ""
    lines = "".join(
        f"<li>{'+' if change > 0 else '−'}{abs(change):.2%} &ensp;<b>{int(one)}</b> "
        f"{escape(' '.join(fit.words.get(str(int(one)), [])))}</li>"
        for one, change in fit.event["moved"]
    )
    age = f" (words of iteration {fit.words_at:,})" if fit.words else ""
    return f'<b>Fastest growing and shrinking topics{age}</b><ul style="padding-left:16px">{lines}</ul>'


class Selects:
    """Selection of a run, by default the newest, and of a member of an ensemble."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.run = Select(title="Run", options=[], name="run", sizing_mode="stretch_width", visible=False)
        self.member = Select(title="Member", options=[], name="member", sizing_mode="stretch_width", visible=False)
        self.run.on_change("value", lambda _attr, _old, new: self._choose_run(new))
        self.member.on_change("value", lambda _attr, _old, new: view.choose(view.chosen, new))

    def _choose_run(self, run: str) -> None:
        self._view.choose(run)
        self.member.value = ""
        self.update()

    def update(self) -> None:
        """Update the options to the runs and members that exist."""
        names, status = self._view.names(), self._view.status()
        self._offer(self.run, [("", f"the newest: {names[0]}"), *((name, name) for name in names)] if names else [])
        members = range(status.restarts) if status is not None else ()
        options = [("", "the one of the last event"), *((str(one), str(one)) for one in members)]
        self._offer(self.member, options if len(options) > 1 else [])

    @staticmethod
    def _offer(select: Select, options: list[tuple[str, str]]) -> None:
        if list(select.options) != options:
            select.options, select.visible = options, bool(options)
        if select.value not in dict(options):
            select.value = ""


def page(scheduler: Scheduler, extra: dict[str, object], doc: Document) -> None:
    """Build the page."""
    view = View(scheduler)
    panels = {name: make(view) for name, make in PANELS.items()}
    selects = Selects(view)
    figures = Div(name="figures", sizing_mode="stretch_width")
    topics = Div(name="topics", sizing_mode="stretch_width")

    def update() -> None:
        selects.update()
        for div, text in ((figures, _figures(view)), (topics, _changing_topics(view))):
            if div.text != text:
                div.text = text
        for panel in panels.values():
            panel.update()

    update()
    for name, panel in panels.items():
        panel.root.name = name
        doc.add_root(panel.root)
    for root in (selects.run, selects.member, figures, topics):
        doc.add_root(root)
    doc.add_periodic_callback(update, EVERY)
    doc.title, doc.theme = "Collapsium", BOKEH_THEME
    doc.template = env.from_string(TEMPLATE)
    doc.template_variables.update(extra, plots_of_runs=list(PANELS))


def single(make: Callable[[View], Panel], scheduler: Scheduler, extra: dict[str, object], doc: Document) -> None:
    """Build a page of a single plot, for JupyterLab."""
    panel = make(View(scheduler))
    panel.root.sizing_mode = "stretch_both"
    panel.update()
    doc.add_root(panel.root)
    doc.add_periodic_callback(panel.update, EVERY)
    doc.theme = BOKEH_THEME
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)


PAGES: dict[str, Callable[..., None]] = {
    "/collapsium": page,
    **{f"/individual-collapsium-{name}": partial(single, make) for name, make in PANELS.items()},
}


def serve_pages(scheduler: Scheduler) -> None:
    """Add the page and the plots to a running scheduler, unless it serves no dashboard."""
    served = [one for one in scheduler.http_application.applications if isinstance(one, BokehTornado)]
    if not served:
        return
    # All pages share these variables.
    variables = template_variables(scheduler)
    prefix = getattr(served[0], "prefix", "")
    application = BokehApplication(PAGES, scheduler, prefix=prefix, template_variables=variables)
    scheduler.http_application.add_application(application)
    application.initialize(IOLoop.current())
    application.start()
    # The list of plots comes from the first application, and its navigation from these variables.
    served[0]._applications.update(application._applications)
    variables["pages"].insert(0, "collapsium")
    plots = [
        {"url": url.strip("/"), "name": url.strip("/").partition("-")[2].replace("-", " ").title()} for url in PAGES
    ]
    variables["plots"] += [plot for plot in plots if plot["name"]]
    variables["plots"].sort(key=lambda plot: str(plot["name"]))
