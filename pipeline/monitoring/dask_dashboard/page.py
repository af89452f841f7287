"""The page of runs on the Dask dashboard, in Bokeh: its layout and its updates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from html import escape

from bokeh.document import Document
from bokeh.models import Div, Select
from distributed import Scheduler
from distributed.dashboard.components.scheduler import BOKEH_THEME, env

from collapsium.pipeline.formatting import duration_text, quantity, sample_text
from collapsium.pipeline.monitoring.dask_dashboard.panels import PANELS, Panel
from collapsium.pipeline.monitoring.dask_dashboard.view import View
from collapsium.pipeline.monitoring.run_status import UNITS, FitStatus

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
