"""Draw effects of covariates with matplotlib: forests of coefficients and differences, and curves with bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from collapsium.pipeline.analysis.group_words import GroupWords
from collapsium.pipeline.analysis.regression import Effects
from collapsium.pipeline.formatting import plain, shortened
from collapsium.pipeline.reporting.plots.style import ACROSS, COLOURS, drawn, new_panels, picture_kind
from collapsium.storage.errors import OptionError
from collapsium.storage.io.file import File

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_PANELS = 12  # Terms of a forest, or topics of a figure of curves
MAX_WORDS = 12  # Words of each group
MAX_LETTERS = 34  # Characters of a topic's words beside a forest
ROW = 0.24  # Height of a row of a forest, in inches


def effects_figure(effects: Effects, *, topics: Sequence[int] | None = None, title: str | None = None) -> Figure:
    """Return a figure of effects: curves of predictions along a number, else a forest of all terms.

    A forest has a panel for each term but the intercept, with a point and an interval for each topic. Curves have a
    panel for each topic, and a colour for each value of the other fields.

    Parameters
    ----------
    effects : Effects
        Result of `effects` or `table_effects`.
    topics : sequence of int, optional
        Topics to draw; by default all in a forest, and those with the largest changes as curves.
    title : str, optional
        Title of the figure.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, which the caller may change.

    Raises
    ------
    OptionError
        A topic does not exist.
    """
    columns = _columns(effects, topics)
    along = _number(effects)
    if along is None:
        return _forest(effects, columns, title)
    if topics is None:
        change = effects.estimate.max(axis=0) - effects.estimate.min(axis=0)
        columns = np.argsort(-change, kind="stable")[: MAX_PANELS // 2].tolist()
    return _curves(effects, columns[:MAX_PANELS], along, title)


def write_effects(effects: Effects, path: str) -> None:
    """Write the figure of effects to a PNG or SVG file."""
    File(path).write(drawn(lambda: effects_figure(effects), picture_kind(path)))


def words_figure(compared: GroupWords, *, count: int = MAX_WORDS, title: str | None = None) -> Figure:
    """Return a figure of the words that groups use more: a panel for each group, an interval for each word.

    Parameters
    ----------
    compared : GroupWords
        Result of `words_by`.
    count : int, optional
        Words of each group.
    title : str, optional
        Title of the figure.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, which the caller may change.
    """
    groups = compared.groups[:MAX_PANELS]
    heading = title or f"Topic {compared.topic} by {compared.field}: log-odds of words, with 95% intervals"
    figure, axes = new_panels(len(groups), plain(heading), legend=False)
    rows = compared.records(count)
    chosen = [[row for row in rows if row["group"] == group] for group in groups]
    width, height = figure.get_size_inches()
    down = -(-len(groups) // ACROSS)
    figure.set_size_inches(width + 1.5, max(height, down * (ROW * max(map(len, chosen)) + 1.2)))
    for panel, group, words in zip(axes, groups, chosen, strict=True):
        places = np.arange(len(words))[::-1]
        estimate, spread = (np.array([float(row[name]) for row in words]) for name in ("log_odds", "se"))
        panel.errorbar(estimate, places, xerr=1.96 * spread, fmt="o", markersize=4, color=COLOURS[0])
        panel.axvline(0.0, color="#000000", linewidth=0.8)
        names = [shortened(plain(str(row["word"])), MAX_LETTERS) for row in words]
        panel.set_yticks(places, names, fontsize=8, parse_math=False)
        panel.set_title(plain(group), fontsize=10, parse_math=False)
        panel.set_xlabel("log-odds")
    return figure


def write_words(compared: GroupWords, path: str) -> None:
    """Write the figure of words by group to a PNG or SVG file."""
    File(path).write(drawn(lambda: words_figure(compared), picture_kind(path)))


def _columns(effects: Effects, topics: Sequence[int] | None) -> list[int]:
    place = {topic: column for column, topic in enumerate(effects.topics.tolist())}
    for topic in topics or ():
        if topic not in place:
            raise OptionError(f"`topics` {topic}: there is no such topic")
    return [*place.values()] if topics is None else [place[topic] for topic in topics]


def _number(effects: Effects) -> str | None:
    """Return the field along which predictions or differences form a curve."""
    names = dict.fromkeys(name for values in effects.values for name in values)
    for name in names:
        numbers = {values.get(name) for values in effects.values}
        if len(numbers) > 2 and all(isinstance(number, float) for number in numbers):
            return name
    return None


def _forest(effects: Effects, columns: Sequence[int], title: str | None) -> Figure:
    rows = [row for row, term in enumerate(effects.terms) if term != "Intercept"][:MAX_PANELS]
    figure, axes = new_panels(max(len(rows), 1), plain(title or "Effects with intervals"), legend=False)
    width, height = figure.get_size_inches()
    down = -(-max(len(rows), 1) // 3)
    figure.set_size_inches(width + 1.5, max(height, down * (ROW * len(columns) + 1.2)))
    names = [f"{effects.topics[column]}: {shortened(plain(effects.words[column]), MAX_LETTERS)}" for column in columns]
    places = np.arange(len(columns))[::-1]
    for panel, row in zip(axes, rows, strict=False):
        estimate = effects.estimate[row, columns]
        low, high = effects.low[row, columns], effects.high[row, columns]
        sure = np.ones(len(columns), dtype=bool) if effects.kind == "prediction" else (low > 0.0) | (high < 0.0)
        for chosen, colour in ((sure, COLOURS[0]), (~sure, "#9AA3AA")):
            spread = np.stack([estimate - low, high - estimate])[:, chosen]
            panel.errorbar(estimate[chosen], places[chosen], xerr=spread, fmt="o", markersize=4, color=colour)
        if effects.kind != "prediction":
            panel.axvline(0.0, color="#000000", linewidth=0.8)
        panel.set_title(plain(effects.terms[row]), fontsize=10, parse_math=False)
        panel.set_yticks(places, names if panel in axes[::3] else [""] * len(names), fontsize=8, parse_math=False)
        panel.set_xlabel("log odds" if effects.link == "logit" and effects.kind != "prediction" else "share")
    return figure


def _curves(effects: Effects, columns: Sequence[int], along: str, title: str | None) -> Figure:
    groups: dict[str, list[int]] = {}
    for row, values in enumerate(effects.values):
        others = ", ".join(f"{name}={value}" for name, value in values.items() if name != along)
        # A difference has its own values at the end of the term's name.
        key = others if effects.kind == "prediction" else effects.terms[row].partition(" at ")[0]
        groups.setdefault(key, []).append(row)
    figure, axes = new_panels(len(columns), plain(title or f"Topics along {along}"), legend=len(groups) > 1)
    for panel, column in zip(axes, columns, strict=False):
        for number, (name, rows) in enumerate(groups.items()):
            _draw_curve(panel, effects, rows, column, along, COLOURS[number % len(COLOURS)], plain(name))
        if effects.kind != "prediction":
            panel.axhline(0.0, color="#000000", linewidth=0.8)
        words = shortened(plain(effects.words[column]), MAX_LETTERS)
        panel.set_title(f"{effects.topics[column]}: {words}", fontsize=10, parse_math=False)
        panel.set_xlabel(plain(along))
        panel.set_ylabel("share (%)" if effects.link == "identity" or effects.kind == "prediction" else "log odds")
    if len(groups) > 1 and columns:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    return figure


def _draw_curve(
    panel: Axes, effects: Effects, rows: Sequence[int], column: int, along: str, colour: str, name: str
) -> None:
    order = sorted(rows, key=lambda row: float(effects.values[row][along]))
    at = [float(effects.values[row][along]) for row in order]
    factor = 1.0 if effects.link == "logit" and effects.kind != "prediction" else 100.0
    estimate, low, high = (factor * part[order, column] for part in (effects.estimate, effects.low, effects.high))
    panel.plot(at, estimate, color=colour, linewidth=1.4, label=name)
    panel.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
