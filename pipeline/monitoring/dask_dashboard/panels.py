"""Plots of a run on the Dask dashboard, in Bokeh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bokeh.models import ColumnDataSource, CustomJSTickFormatter, FactorRange, NumeralTickFormatter, Range1d
from bokeh.plotting import figure

from collapsium.pipeline.monitoring.dask_dashboard.view import View
from collapsium.pipeline.monitoring.run_status import Course, Picture

HEIGHT, TOPICS, LABEL = 280, 15, 44
FEW, BAR = 6, 30  # workers of which each has a bar so high, in pixels
SPENT = {"kernel": "#1f77b4", "reduce": "#2ca02c", "score": "#9467bd", "update": "#ff7f0e", "wait": "#bbbbbb"}


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
