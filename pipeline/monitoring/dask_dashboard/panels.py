"""Plots of a run on the Dask dashboard, in Bokeh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bokeh.models import ColumnDataSource, CustomJSTickFormatter, FactorRange, NumeralTickFormatter, Range1d
from bokeh.plotting import figure

from collapsium.pipeline.monitoring.dask_dashboard.view import View
from collapsium.pipeline.monitoring.run_status import FitStatus, RunStatus


@dataclass(frozen=True)
class PlotLayout:
    """Layout of the plots."""

    height: int = 280  # Height of a plot, in pixels
    topics: int = 15  # Number of topics with a bar
    label: int = 44  # Characters of a topic's words
    few_workers: int = 6  # Up to so many workers, the plot's height depends on their number
    worker_height: int = 30  # Height of a worker's bar, in pixels


LAYOUT = PlotLayout()
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
            height=LAYOUT.height,
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
        sizes = fit.event.get("sizes", [])[: LAYOUT.topics]
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
                LAYOUT.height
                if len(names) > LAYOUT.few_workers
                else LAYOUT.height // 3 + LAYOUT.worker_height * len(names)
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
    return text if len(text) <= LAYOUT.label else f"{text[: LAYOUT.label - 1]}…"
