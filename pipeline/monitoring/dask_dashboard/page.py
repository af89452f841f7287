"""The page of runs on the Dask dashboard, in Bokeh: how it is laid out, and kept up to date."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from html import escape
from typing import Any

from bokeh.models import Div, Select
from distributed.dashboard.components.scheduler import BOKEH_THEME, env

from collapsium.pipeline.formatting import lasting, quantity
from collapsium.pipeline.monitoring.dask_dashboard.panels import PANELS
from collapsium.pipeline.monitoring.dask_dashboard.view import View
from collapsium.pipeline.monitoring.run_status import HELD, Course

EVERY = 500  # milliseconds between two looks
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
