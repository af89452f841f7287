"""Tables and plots of the experiments on labels."""

import json

from collapsium.pipeline.reporting.plots.style import COLOURS, MARKS, can_draw

PANEL = 4.6, 3.8  # inches


def table(rows, names):
    """Return rows as a table in Markdown."""
    head = f"| {' | '.join(names)} |\n|{' --- |' * len(names)}\n"
    return head + "\n".join(f"| {' | '.join(_shown(row[name]) for name in names)} |" for row in rows)


def _shown(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write(out, name, results, tables, note):
    """Write results as JSON, and tables and a note to them as text; print the note."""
    (out / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / f"{name}.md").write_text("\n\n".join([*tables, note]) + "\n")
    print(note, f"Written: {out / name}.json and .md{' and .png' if can_draw() else ''}", sep="\n", flush=True)


def lines(axes, x, y, label, error=None):
    """Plot a line with markers, in the next colour."""
    at = len(axes.lines)
    axes.errorbar(x, y, yerr=error, color=COLOURS[at % len(COLOURS)], marker=MARKS[at % len(MARKS)], label=label)


def saved(path, painters, legend=True):
    """Save a figure of panels, each drawn by a function of its axes, if matplotlib is installed."""
    if not can_draw():
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(PANEL[0] * len(painters), PANEL[1]), layout="constrained")
    for axes, paint in zip(figure.subplots(1, len(painters), squeeze=False)[0], painters, strict=True):
        paint(axes)
        if legend:
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
