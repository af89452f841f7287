"""Plots of a comparison, where matplotlib is installed: PNG and SVG."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collapsium.pipeline.reporting.plots.style import (
    COLOURS,
    LATE,
    MARKS,
    SALT,
    _whole_steps,
    can_draw,
    new_panels,
    saved,
    thousands,
    whole_numbers,
)
from collapsium.pipeline.workflows.compare.tables import Row, label_of
from collapsium.storage.io.folder import Folder

LINES = ("-", "--", ":", "-.")  # of one family: how it begins
SCORE = "held-out score (nats a token)"

Rows = Sequence[Row]
Picture = Callable[[], Any]


def draw(rows: Rows, series: Rows, folder: Folder) -> list[str] | None:
    """Draw what the rows and series of a comparison have to show.

    Parameters
    ----------
    rows, series : sequence of mapping
        As `collapsium.pipeline.workflows.compare.metrics` makes them.
    folder : Folder
        Where the pictures go.

    Returns
    -------
    list of str or None
        Their names without endings; None where matplotlib is not installed.
    """
    pictures: dict[str, Picture] = {
        "score-by-topics": lambda: _by_topics(rows, "score", SCORE, "Held-out score by number of topics"),
        "score-by-steps": lambda: _courses(rows, series, "steps", "steps (iterations × topics)"),
        "score-by-seconds": lambda: _courses(rows, series, "seconds", "seconds of work"),
        "objective-by-topics": lambda: _objective_by_topics(rows),
        "objective-by-iterations": lambda: _objective_by_iterations(rows, series),
        "topics-by-iterations": lambda: _topics_by_iterations(rows, series),
    }
    return draw_pictures(pictures, folder, {"axes.grid": True, "grid.alpha": 0.3})


def draw_pictures(pictures: Mapping[str, Picture], folder: Folder, style: Mapping[str, Any]) -> list[str] | None:
    """Save the figures of functions as PNG and SVG, and return their names; None where matplotlib is not installed."""
    if not can_draw():
        return None
    from matplotlib import rc_context

    drawn = []
    with rc_context({**SALT, "font.size": 10, **style}):
        for name, picture in pictures.items():
            figure = picture()
            if figure is None:
                continue
            for kind in ("png", "svg"):
                folder.write(f"{name}.{kind}", saved(figure, kind))
            drawn.append(name)
    return drawn


def _label(row: Row) -> str:
    return label_of(row, topics=False)


def _styles(rows: Rows) -> dict[str, dict[str, Any]]:
    """Return colour, line and mark of each label: a family has one colour, how it begins is the line's kind."""
    families = list(dict.fromkeys(row["family"] for row in rows))
    found: dict[str, dict[str, Any]] = {}
    begun: dict[str, int] = {}
    for row in rows:
        label, family = _label(row), row["family"]
        if label in found:
            continue
        number = begun.get(family, 0)
        begun[family] = number + 1
        found[label] = {
            "color": COLOURS[families.index(family) % len(COLOURS)],
            "linestyle": LINES[number % len(LINES)],
            "marker": MARKS[len(found) % len(MARKS)],
            "markersize": 5,
            "linewidth": 1.6,
        }
    return found


def _legend(figure: Any, axes: Sequence[Any]) -> None:
    """Put one legend beside all panels, so that it covers no line."""
    named = {label: line for one in axes for line, label in zip(*one.get_legend_handles_labels(), strict=True)}
    figure.legend(list(named.values()), list(named), loc="outside right center", frameon=False)


def _by_topics(rows: Rows, name: str, what: str, title: str) -> Any:
    """Draw a number against K with its standard error; families that find K lie level."""
    shown = [row for row in rows if row[name] is not None]
    if not shown:
        return None
    figure, (axes,) = new_panels(1, title)
    _draw_by_topics(axes, shown, _styles(rows), name, what)
    _legend(figure, [axes])
    return figure


def _draw_by_topics(axes: Any, rows: Rows, styles: Mapping[str, Any], name: str, what: str) -> None:
    counts = sorted({row["topics"] for row in rows if row["topics"] is not None})
    for label in dict.fromkeys(_label(row) for row in rows):
        own, style = [row for row in rows if _label(row) == label], styles[label]
        if own[0]["topics"] is None:
            value, error = own[0][name], own[0][f"{name}_error"] or 0.0
            plain = {key: style[key] for key in ("color", "linestyle", "linewidth")}
            axes.axhline(value, label=f"{label} (finds K)", **plain)
            axes.axhspan(value - error, value + error, color=style["color"], alpha=0.12, linewidth=0)
            continue
        own = sorted(own, key=lambda row: int(row["topics"]))
        errors = [row[f"{name}_error"] or 0.0 for row in own]
        axes.errorbar(
            [row["topics"] for row in own], [row[name] for row in own], errors, label=label, capsize=3, **style
        )
    axes.set_xticks([])
    if counts:
        axes.set_xticks(counts, [f"{count:,}" for count in counts])
        room = max((counts[-1] - counts[0]) * 0.08, 1.0)
        axes.set_xlim(counts[0] - room, counts[-1] + room)
    axes.set_xlabel("number of topics K")
    axes.set_ylabel(what)
    axes.ticklabel_format(axis="y", useOffset=False, style="plain")


def _mean(series: Rows, across: str, name: str) -> tuple[list[float], list[float]]:
    """Return a cell's course, each iteration the mean over the restarts; where a restart tells nothing, none."""
    by_iteration: dict[int, list[tuple[float, float]]] = {}
    for row in series:
        if row[across] is not None and row[name] is not None:
            by_iteration.setdefault(row["iteration"], []).append((row[across], row[name]))
    points = [by_iteration[iteration] for iteration in sorted(by_iteration)]
    return [statistics.fmean(x for x, _ in each) for each in points], [
        statistics.fmean(y for _, y in each) for each in points
    ]


def _of(series: Rows, cell: str) -> list[Row]:
    return [row for row in series if row["cell"] == cell]


def _courses(rows: Rows, series: Rows, across: str, what: str) -> Any:
    """Draw the score against steps or seconds: a panel a number of topics, families that find it in each."""
    counts: list[Any] = sorted({row["topics"] for row in rows if row["topics"] is not None}) or [None]
    styles, lowest, highest = _styles(rows), [], []
    figure, panels = new_panels(len(counts), f"Held-out score by {across}")
    for axes, count in zip(panels, counts, strict=True):
        for row in rows:
            if row["topics"] not in (count, None):
                continue
            x, y = _mean(_of(series, row["cell"]), across, "score")
            if not y:
                continue
            label = _label(row) + (" (finds K)" if row["topics"] is None else "")
            axes.plot(x, y, label=label, markevery=[len(x) - 1], **styles[_label(row)])
            lowest.append(y[int(len(y) * LATE)])
            highest.append(max(y))
        axes.set_xscale("log")
        axes.set_title("" if count is None else f"K = {count}")
        axes.set_xlabel(f"{what}, log scale")
    if not lowest:
        return None
    # The first iterations lie so low that they would press all else together.
    low, high = min(lowest), max(highest)
    room = 0.05 * (high - low) or 0.01
    for axes in panels:
        axes.set_ylim(low - room, high + room)
        axes.ticklabel_format(axis="y", useOffset=False)
        if across == "steps":
            _whole_steps(axes)
    panels[0].set_ylabel(SCORE)
    _legend(figure, panels)
    return figure


def _told(rows: Rows) -> dict[str, list[Row]]:
    """Return the rows that have an objective, by family: those of different families are not comparable."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["objective"] is not None:
            found.setdefault(row["family"], []).append(row)
    return found


def _objective_by_topics(rows: Rows) -> Any:
    given = {row["family"] for row in rows if row["topics"] is not None}
    told, styles = {family: own for family, own in _told(rows).items() if family in given}, _styles(rows)
    if not told:
        return None
    figure, panels = new_panels(len(told), "Objective by number of topics (each family has its own)")
    for axes, (family, own) in zip(panels, told.items(), strict=True):
        _draw_by_topics(axes, own, styles, "objective", "objective (nats)")
        axes.set_title(family)
        thousands(axes.yaxis)
    _legend(figure, panels)
    return figure


def _objective_by_iterations(rows: Rows, series: Rows) -> Any:
    told = _told(rows)
    if not told:
        return None
    figure, panels = new_panels(len(told), "Objective by iterations (each family has its own)")
    for axes, (family, own) in zip(panels, told.items(), strict=True):
        _draw_each(axes, own, series, "objective", "objective (nats)")
        axes.set_title(family)
        thousands(axes.yaxis)
    return figure


def _draw_each(axes: Any, rows: Rows, series: Rows, name: str, what: str) -> None:
    """Draw the cells of one family, each a line named by K or how it begins, in a panel of their own."""
    lowest, highest = [], []
    sizes = list(dict.fromkeys(row["topics"] for row in rows))
    starts = list(dict.fromkeys(row["start"] for row in rows))
    for row in rows:
        x, y = _mean(_of(series, row["cell"]), "iteration", name)
        if not y:
            continue
        begins = "" if row["start"] == "random" else row["start"]
        label = ", ".join(part for part in ("" if row["topics"] is None else f"K = {row['topics']}", begins) if part)
        # A number of topics has one colour, how a fit begins is the line's kind: lines that coincide are both seen.
        number, begun = sizes.index(row["topics"]), starts.index(row["start"])
        style = {"color": COLOURS[(number if len(sizes) > 1 else begun) % len(COLOURS)]}
        style["linestyle"] = LINES[(begun + number // len(COLOURS)) % len(LINES)]
        axes.plot(x, y, label=label or row["family"], linewidth=1.6, **style)
        lowest.append(y[int(len(y) * LATE)])
        highest.append(max(y))
    if lowest and name == "objective":
        low, high = min(lowest), max(highest)
        room = 0.05 * (high - low) or 1.0
        axes.set_ylim(low - room, high + room)
    whole_numbers(axes.xaxis)
    axes.set_xlabel("iteration")
    axes.set_ylabel(what)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), frameon=False, ncols=2, fontsize=9)


def _topics_by_iterations(rows: Rows, series: Rows) -> Any:
    """Draw how many topics hold 99% of the tokens, for those families that tell it: a panel a family."""
    telling = {row["cell"] for row in series if row["topics_99"] is not None}
    told: dict[str, list[Row]] = {}
    for row in rows:
        if row["cell"] in telling:
            told.setdefault(row["family"], []).append(row)
    if not told:
        return None
    figure, panels = new_panels(len(told), "Topics that hold 99% of the tokens, by iterations")
    for axes, (family, own) in zip(panels, told.items(), strict=True):
        _draw_each(axes, own, series, "topics_99", "topics")
        axes.set_title(family)
        axes.set_ylim(0, 1.05 * max(axes.get_ylim()[1], 1.0))
        whole_numbers(axes.yaxis)
    return figure
