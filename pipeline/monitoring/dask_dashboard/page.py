"""The page of runs on the Dask dashboard, in Bokeh: what it shows, and how it is kept up to date."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import Any

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
from distributed.dashboard.components.scheduler import BOKEH_THEME, env

from collapsium.pipeline.formatting import lasting, quantity
from collapsium.pipeline.monitoring.dask_dashboard.runs import runs_of
from collapsium.pipeline.monitoring.run_status import HELD, Course, Picture

EVERY = 500  # milliseconds between two looks
HEIGHT, TOPICS, LABEL = 280, 15, 44
QUIET, SLOW = 30.0, 5.0  # seconds, and times what an iteration takes, without a word after which that is said
FEW, BAR = 6, 30  # workers of which each has a bar so high, in pixels
SPENT = {"kernel": "#1f77b4", "reduce": "#2ca02c", "score": "#9467bd", "update": "#ff7f0e", "wait": "#bbbbbb"}
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


class View:
    """What one who looks at the page sees: the run that he chose, or whichever began last; and of it a member.

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


class Panel:
    """A plot that is kept up to date by `update`."""

    title = ""

    def __init__(self, view: View, **options: Any) -> None:
        self.view = view
        # Ranges are set by hand: Bokeh complains in the console about those that it finds no data for.
        ranges = {"x_range": Range1d(0.0, 1.0), "y_range": Range1d(0.0, 1.0), **options}
        self.root = figure(
            title=self.title,
            height=HEIGHT,
            sizing_mode="stretch_width",
            toolbar_location=None,
            tools="",
            **ranges,
        )
        self.root.min_border_right = 16

    def update(self) -> None:
        """Look at the run, and show it."""
        picture = self.view.picture()
        if picture is not None:
            self.show(picture, self.view.course(picture))

    def show(self, picture: Picture, course: Course) -> None:
        """Show a run."""


def _span(over: Range1d, values: Sequence[float], *, zero: bool = False, margin: float = 0.05) -> None:
    """Let a range hold all values, with a margin, from zero on if asked for."""
    if not values:
        return
    low, high = 0.0 if zero else min(values), max(values)
    room = (high - low or abs(high) or 1.0) * margin
    start, end = (0.0 if zero else low - room), high + room
    if (over.start, over.end) != (start, end):
        over.update(start=start, end=end)


class ScorePanel(Panel):
    """The held-out score or, where nothing is held out, the objective, by iteration."""

    title = "Score over iterations"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.source = ColumnDataSource({"iteration": [], "value": []}, name="score-data")
        self.root.line("iteration", "value", source=self.source, line_width=2)
        self.root.scatter("iteration", "value", source=self.source, size=4)
        self.root.xaxis.axis_label = "iteration"

    def show(self, picture: Picture, course: Course) -> None:  # noqa: ARG002
        """Show a run."""
        name = "score" if course.curves.get("score") else "objective"
        points = course.curves[name].points if name in course.curves else []
        unit = "nats a held-out token" if name == "score" else "objective, nats"
        self.root.title.text = f"{name.title()} over iterations ({unit})"
        data = {"iteration": [at for at, _ in points], "value": [value for _, value in points]}
        _span(self.root.x_range, data["iteration"])
        _span(self.root.y_range, data["value"])
        self.source.data = data


class SizesPanel(Panel):
    """How large the largest topics are; their words lie over the bars, as a narrow window has no room beside them."""

    title = "Size of topics (share of the tokens)"

    def __init__(self, view: View) -> None:
        super().__init__(view, y_range=FactorRange(factors=[""]))
        self.source = ColumnDataSource({"topic": [], "share": [], "words": []}, name="sizes-data")
        self.root.hbar(y="topic", right="share", height=0.9, source=self.source, color="#a6cbe8")
        self.root.text(
            x=0, y="topic", text="words", source=self.source, x_offset=4, text_baseline="middle", text_font_size="11px"
        )
        self.root.xaxis.formatter = NumeralTickFormatter(format="0.[00]%")
        self.root.xaxis.ticker.desired_num_ticks = 4

    def show(self, picture: Picture, course: Course) -> None:  # noqa: ARG002
        """Show a run."""
        sizes = course.event.get("sizes", [])[:TOPICS]
        names = [str(int(one)) for one, _ in sizes]
        if list(self.root.y_range.factors) != names[::-1]:
            self.root.y_range.factors = names[::-1]
        _span(self.root.x_range, [share for _, share in sizes], zero=True)
        of = f"; words of iteration {course.words_at:,}" if course.words else ""
        self.root.title.text = self.title.removesuffix(")") + f"{of})"
        words = [_clipped(" ".join(course.words.get(name, []))) for name in names]
        self.source.data = {"topic": names, "share": [share for _, share in sizes], "words": words}


class SweepsPanel(Panel):
    """What a sweep of a shard takes: least, quarters and most, by iteration."""

    title = "Sweep of a shard (seconds: least, half, most)"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        names = ("iteration", "least", "low", "half", "high", "most")
        self.source = ColumnDataSource({name: [] for name in names}, name="sweeps-data")
        self.root.varea("iteration", "least", "most", source=self.source, fill_alpha=0.2)
        self.root.varea("iteration", "low", "high", source=self.source, fill_alpha=0.3)
        self.root.line("iteration", "half", source=self.source, line_width=2)
        self.root.xaxis.axis_label = "iteration"

    def show(self, picture: Picture, course: Course) -> None:  # noqa: ARG002
        """Show a run."""
        points = course.curves["sweeps"].points if "sweeps" in course.curves else []
        data = {"iteration": [at for at, _ in points]}
        for place, name in enumerate(("least", "low", "half", "high", "most")):
            data[name] = [values[place] for _, values in points]
        _span(self.root.x_range, data["iteration"])
        _span(self.root.y_range, data["most"], zero=True)
        self.source.data = data


class SharesPanel(Panel):
    """Where a worker's time goes: shares by iteration."""

    title = "Where a worker's time goes"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.source = ColumnDataSource({"iteration": [], **{name: [] for name in SPENT}}, name="shares-data")
        self.root.varea_stack(
            list(SPENT), x="iteration", color=list(SPENT.values()), legend_label=list(SPENT), source=self.source
        )
        self.root.yaxis.formatter = NumeralTickFormatter(format="0%")
        self.root.xaxis.axis_label = "iteration"
        self.root.add_layout(self.root.legend[0], "below")
        self.root.legend.orientation = "horizontal"
        self.root.legend.label_text_font_size = "9pt"
        self.root.legend.spacing, self.root.legend.padding, self.root.legend.border_line_color = 4, 2, None

    def show(self, picture: Picture, course: Course) -> None:  # noqa: ARG002
        """Show a run."""
        points = course.curves["seconds"].points if "seconds" in course.curves else []
        data: dict[str, list[float]] = {"iteration": [at for at, _ in points], **{name: [] for name in SPENT}}
        for _, seconds in points:
            whole = sum(seconds.values()) or 1.0
            for name in SPENT:
                data[name].append(seconds.get(name, 0.0) / whole)
        _span(self.root.x_range, data["iteration"])
        self.source.data = data


class MemoryPanel(Panel):
    """What each worker process holds."""

    title = "Memory a worker"

    def __init__(self, view: View) -> None:
        super().__init__(view, y_range=FactorRange(factors=[""]))
        self.source = ColumnDataSource({"worker": [], "bytes": []}, name="memory-data")
        self.root.hbar(y="worker", right="bytes", height=0.7, source=self.source)
        self.root.xaxis.formatter = CustomJSTickFormatter(code="return (tick / 1e6).toFixed(0) + ' MB'")
        self.root.xaxis.ticker.desired_num_ticks = 4

    def show(self, picture: Picture, course: Course) -> None:  # noqa: ARG002
        """Show a run."""
        names = [str(one["name"]) for one in picture.processes]
        if list(self.root.y_range.factors) != names[::-1]:
            self.root.y_range.factors = names[::-1]
            self.root.height = HEIGHT if len(names) > FEW else HEIGHT // 3 + BAR * len(names)
        held = [one["memory"] for one in picture.processes]
        _span(self.root.x_range, held, zero=True)
        self.source.data = {"worker": names, "bytes": held}


PANELS: dict[str, Callable[[View], Any]] = {
    "score": ScorePanel,
    "sizes": SizesPanel,
    "sweeps": SweepsPanel,
    "shares": SharesPanel,
    "memory": MemoryPanel,
}


def _clipped(text: str) -> str:
    return text if len(text) <= LABEL else f"{text[: LABEL - 1]}…"


def _figures(view: View) -> str:
    """Write the figures of a run as HTML."""
    picture = view.picture()
    if picture is None:
        return "<p>No run has been told of yet. This page shows fits as they come.</p>"
    course, units = view.course(picture), HELD.get(str(picture.start.get("holds", "documents")), HELD["documents"])
    event, left = course.event, course.left(picture.planned)
    cells = {
        "iteration": f"{course.iteration:,} of {picture.planned:,}",
        "score": f"{course.curves['score'].last:.4f}" if "score" in course.curves else "",
        "topics active": f"{event['active']:,}" if "active" in event else "",
        f"{units[1]} a second": quantity(event["tokens_a_second"]) if "tokens_a_second" in event else "",
        "elapsed": lasting(course.elapsed),
        "left": "" if left is None or picture.ended else f"about {lasting(left)}",
        "members": f"{len(picture.members_ended)} of {picture.restarts} at their end" if picture.restarts else "",
        "state": view.state(picture),
    }
    shown = "".join(
        f'<span style="display:inline-block;margin:2px 18px 2px 0"><small style="color:#555">{name}</small><br>'
        f'<b id="collapsium-{name.replace(" ", "-")}">{escape(value)}</b></span>'
        for name, value in cells.items()
        if value
    )
    start = picture.start
    sizes = ", ".join(f"{int(start.get(key, 0)):,} {unit}" for key, unit in zip(HELD["documents"], units, strict=True))
    notices = "".join(f"<p>{escape(text)}</p>" for text in picture.notices)
    return f"<div>{escape(picture.family)}: {escape(sizes)}</div><div>{shown}</div>{notices}"


def _moving(view: View) -> str:
    """Write the topics that moved most, with their words, as HTML."""
    picture = view.picture()
    course = Course() if picture is None else view.course(picture)
    if not course.event.get("moved"):
        return ""
    lines = "".join(
        f"<li>{'+' if change > 0 else '−'}{abs(change):.2%} &ensp;<b>{int(one)}</b> "
        f"{escape(' '.join(course.words.get(str(int(one)), [])))}</li>"
        for one, change in course.event["moved"]
    )
    of = f" (words of iteration {course.words_at:,})" if course.words else ""
    return f'<b>Topics that move most{of}</b><ul style="padding-left:16px">{lines}</ul>'


class Selects:
    """What the page is chosen with: a run, by itself whichever began last, and a member of an ensemble."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.run = Select(title="Run", options=[], name="run", sizing_mode="stretch_width", visible=False)
        self.member = Select(title="Member", options=[], name="member", sizing_mode="stretch_width", visible=False)
        self.run.on_change("value", lambda _attr, _old, new: self._chose(new))
        self.member.on_change("value", lambda _attr, _old, new: view.choose(view.chosen, new))

    def _chose(self, run: str) -> None:
        self._view.choose(run)
        self.member.value = ""
        self.update()

    def update(self) -> None:
        """Offer what there is."""
        names, picture = self._view.names(), self._view.picture()
        self._offer(self.run, [("", f"the newest: {names[0]}"), *((name, name) for name in names)] if names else [])
        members = range(picture.restarts) if picture is not None else ()
        told = [("", "the one told of last"), *((str(one), str(one)) for one in members)]
        self._offer(self.member, told if len(told) > 1 else [])

    @staticmethod
    def _offer(select: Select, options: list[tuple[str, str]]) -> None:
        if list(select.options) != options:
            select.options, select.visible = options, bool(options)
        if select.value not in dict(options):
            select.value = ""


def page(scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
    """Make the page.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        That has been told of runs.
    extra : dict
        What Dask's templates are filled with.
    doc : bokeh.document.Document
        To be filled.
    """
    view = View(scheduler)
    panels = {name: make(view) for name, make in PANELS.items()}
    selects = Selects(view)
    figures = Div(name="figures", sizing_mode="stretch_width")
    topics = Div(name="topics", sizing_mode="stretch_width")

    def update() -> None:
        selects.update()
        for div, text in ((figures, _figures(view)), (topics, _moving(view))):
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


def single(make: Callable[[View], Any], scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
    """Make a page of one plot, for JupyterLab."""
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
