"""Plots of the benchmark of shapes: score against time, memory against its estimate, and varied options.

Each is drawn for light and for dark pages, as PNG and SVG.
"""

from collapsium.pipeline.reporting.plots.style import COLOURS, MARKS, SALT, new_panels, saved

DARK = {
    "figure.facecolor": "#14181e",
    "axes.facecolor": "#14181e",
    "savefig.facecolor": "#14181e",
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), "#ced6dd"),
    "grid.color": "#48566b",
}
"""Colours of the documentation's dark pages."""
BLACK, WHITE = "#000000", "#ffffff"
WORST = 0.15
"""Nats below the best end of a panel from which curves are shown."""


def draw(found, out):
    """Draw all plots into a folder; return their names."""
    from matplotlib import rc_context

    plots = {}
    for topics in sorted({summary.topics for summary in found}):
        plots[f"score-over-time-{topics}"] = lambda dark, topics=topics: score_over_time(found, topics, dark)
    plots["memory"] = lambda dark: memory(found, dark)
    names = []
    for name, make in plots.items():
        for suffix, style in (("", {}), ("-dark", DARK)):
            with rc_context({**SALT, "axes.grid": True, "grid.alpha": 0.3, **style}):
                figure = make(bool(suffix))
                if figure is None:
                    continue
                for kind in ("png", "svg"):
                    (out / f"{name}{suffix}.{kind}").write_bytes(saved(figure, kind))
                names.append(f"{name}{suffix}.png and .svg")
    return names


def styles_of(names, dark):
    """Return the colour and marker of each name."""
    colours = [WHITE if dark and colour == BLACK else colour for colour in COLOURS]
    return {
        name: {"color": colours[number % len(colours)], "marker": MARKS[number % len(MARKS)], "markersize": 5}
        for number, name in enumerate(names)
    }


def score_over_time(found, topics, dark):
    """Plot the score over time in a panel for each corpus: the defaults, ensembles as single markers, and other
    libraries."""
    shown = [
        summary
        for summary in found
        if summary.topics == topics and summary.runs and (summary.is_default or not summary.ours)
    ]
    if not shown:
        return None
    corpora = list(dict.fromkeys(summary.corpus for summary in shown))
    styles = styles_of(dict.fromkeys(summary.name for summary in shown), dark)
    figure, panels = new_panels(len(corpora), f"Held-out score by seconds, K = {topics}")
    for axes, corpus in zip(panels, corpora, strict=True):
        drawn = [summary for summary in shown if summary.corpus == corpus]
        for summary in drawn:
            seconds, scores = zip(*summary.curve(), strict=True)
            axes.plot(
                seconds, scores, label=summary.name, markevery=[len(seconds) - 1], linewidth=1.6, **styles[summary.name]
            )
            averaged = summary.median("averaged")
            if averaged is not None and not summary.ours:
                axes.plot(seconds[-1:], [averaged], linestyle="", fillstyle="none", **styles[summary.name])
        ends = [
            value
            for summary in drawn
            for value in (summary.median("score"), summary.median("averaged"))
            if value is not None
        ]
        axes.set_ylim(min(max(min(ends), max(ends) - 2 * WORST), max(ends) - WORST) - 0.02, max(ends) + 0.02)
        axes.set_xscale("log")
        axes.set_title(corpus)
        axes.set_xlabel("seconds, log scale")
        axes.ticklabel_format(axis="y", useOffset=False)
    panels[0].set_ylabel("nats per held-out token")
    legend(figure, panels)
    return figure


def memory(found, dark):
    """Plot the estimate against the measured peak, with lines at 15% above and below."""
    shown = [summary for summary in found if summary.runs and summary.median("estimated_megabytes")]
    if not shown:
        return None
    styles = styles_of(dict.fromkeys(summary.corpus for summary in shown), dark)
    figure, (axes,) = new_panels(1, "Memory: estimate against measured peak")
    peaks = [summary.median("megabytes") for summary in shown]
    ends = [0.8 * min(peaks), 1.25 * max(peaks)]
    for factor, line in ((1.0, "-"), (0.85, ":"), (1.15, ":")):
        axes.plot(ends, [factor * end for end in ends], color="#888888", linestyle=line, linewidth=1)
    for summary, peak in zip(shown, peaks, strict=True):
        axes.plot(
            [peak],
            [summary.median("estimated_megabytes")],
            linestyle="",
            label=summary.corpus,
            **styles[summary.corpus],
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("measured peak, MB")
    axes.set_ylabel("estimate, MB")
    legend(figure, [axes])
    return figure


def legend(figure, panels):
    """Draw a legend outside the panels, so that it covers no line."""
    named = {label: line for panel in panels for line, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(list(named.values()), list(named), loc="outside right center", frameon=False)
