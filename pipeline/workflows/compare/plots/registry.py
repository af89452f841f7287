"""The plots of each kind of comparison, drawn as PNG and SVG."""

from __future__ import annotations

from collapsium.pipeline.reporting.plots.style import SALT, can_draw, saved
from collapsium.pipeline.workflows.compare.options import CompareOptions
from collapsium.pipeline.workflows.compare.plots.bars import (
    ClassificationBars,
    ConfusionMatrices,
    PerplexityByCell,
    PerplexityByOption,
)
from collapsium.pipeline.workflows.compare.plots.base import Plot, Results
from collapsium.pipeline.workflows.compare.plots.lines import (
    ObjectiveByIterations,
    ObjectiveByTopics,
    ScoreByTopics,
    ScoreCourse,
    TopicsByIterations,
)
from collapsium.storage.io.folder import Folder


def plots_for(options: CompareOptions) -> tuple[Plot, ...]:
    """Return the plots of a comparison, in order of drawing."""
    if options.unseen is None:
        return (
            ScoreByTopics(),
            ScoreCourse("score-by-steps", "steps", "steps (iterations × topics)"),
            ScoreCourse("score-by-seconds", "seconds", "seconds of work"),
            ObjectiveByTopics(),
            ObjectiveByIterations(),
            TopicsByIterations(),
        )
    if options.field is None:
        return PerplexityByCell(), PerplexityByOption()
    return PerplexityByCell(), PerplexityByOption(), ClassificationBars(), ConfusionMatrices()


def draw_plots(results: Results, folder: Folder) -> list[str] | None:
    """Draw the plots that have data, and return their names; None if matplotlib is not installed."""
    if not can_draw():
        return None
    from matplotlib import rc_context

    drawn = []
    for plot in plots_for(results.options):
        with rc_context({**SALT, "font.size": 10, **plot.style}):
            figure = plot.draw(results)
            if figure is None:
                continue
            for kind in ("png", "svg"):
                folder.write(f"{plot.name}.{kind}", saved(figure, kind))
        drawn.append(plot.name)
    return drawn
