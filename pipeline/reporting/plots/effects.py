"""Draw effects of covariates with matplotlib: forests of coefficients and differences, and curves with bands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from collapsium.pipeline.analysis.group_words import GroupWords
from collapsium.pipeline.analysis.regression import Effects
from collapsium.pipeline.analysis.words_over import WordsOver
from collapsium.pipeline.formatting import plain, shortened
from collapsium.pipeline.reporting.plots.style import ACROSS, COLOURS, PANEL, Size, drawn, new_panels, picture_kind
from collapsium.pipeline.reporting.plots.time import labelled_periods
from collapsium.storage.errors import OptionError
from collapsium.storage.io.file import File
from collapsium.workers.design import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_PANELS = 12  # Terms of a forest, or topics of a figure of curves
MAX_WORDS = 12  # Words of each group
MAX_LETTERS = 34  # Characters of a topic's words beside a forest
ROW = 0.24  # Height of a row of a forest, in inches
RISING = 6  # Words that rise, and as many that fall
WIDE = (5.6, 3.3)  # Panel of words over time, with their names at the right, in inches
SHOWN_PERIODS = 5  # Names of periods below a panel of words
NAME_HEIGHT = 0.062  # Height of a word's name, relative to its panel
WORD_LETTERS = 18


def effects_figure(
    effects: Effects,
    *,
    topics: Sequence[int] | None = None,
    title: str | None = None,
    size: Size | None = None,
    names: Mapping[int, str] | None = None,
    ax: Axes | None = None,
) -> Figure:
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
    size : tuple of float, optional
        Width and height in inches.
    names : mapping of int to str, optional
        Names of topics by their ids, in place of their words.
    ax : matplotlib.axes.Axes, optional
        Axes to draw in, if there is a single panel.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, which the caller may change, and save as PNG, SVG or PDF.

    Raises
    ------
    OptionError
        A topic does not exist, or there are axes for several panels.
    """
    place = {topic: column for column, topic in enumerate(effects.topics.tolist())}
    for topic in topics or ():
        if topic not in place:
            raise OptionError(f"`topics` {topic}: there is no such topic")
    columns = [*place.values()] if topics is None else [place[topic] for topic in topics]
    if names is not None:
        known = zip(effects.topics.tolist(), effects.words, strict=True)
        effects = replace(effects, words=[names.get(topic, words) for topic, words in known])
    along = number_along(effects)
    if along is None:
        return _forest(effects, columns, title, size, ax)
    if topics is None:
        columns = most_changed(effects)
    return _curves(effects, columns[:MAX_PANELS], along, title, size, ax)


def write_effects(
    effects: Effects, path: str, *, title: str | None = None, names: Mapping[int, str] | None = None
) -> None:
    """Write the figure of effects to a PNG, SVG or PDF file."""
    File(path).write(drawn(lambda: effects_figure(effects, title=title, names=names), picture_kind(path)))


def words_figure(
    compared: GroupWords,
    *,
    count: int = MAX_WORDS,
    title: str | None = None,
    size: Size | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Return a figure of the words that groups use more: a panel for each group, an interval for each word.

    Parameters
    ----------
    compared : GroupWords
        Result of `words_by`.
    count : int, optional
        Words of each group.
    title : str, optional
        Title of the figure.
    size : tuple of float, optional
        Width and height in inches.
    ax : matplotlib.axes.Axes, optional
        Axes to draw in, if there is a single group.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, which the caller may change, and save as PNG, SVG or PDF.
    """
    groups = compared.groups[:MAX_PANELS]
    heading = title or f"Topic {compared.topic} by {compared.field}: log-odds of words, with 95% intervals"
    rows = compared.records(count)
    chosen = [[row for row in rows if row["group"] == group] for group in groups]
    size = size or _rows_size(len(groups), max(map(len, chosen)))
    figure, axes = new_panels(len(groups), plain(heading), legend=False, size=size, ax=ax)
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


def write_words(
    compared: GroupWords | WordsOver, path: str, *, title: str | None = None, names: Mapping[int, str] | None = None
) -> None:
    """Write the figure of words by group, or of words over time, to a PNG, SVG or PDF file."""
    kind = picture_kind(path)
    if isinstance(compared, WordsOver):
        File(path).write(drawn(lambda: words_over_figure(compared, title=title, names=names), kind))
    else:
        name = (names or {}).get(compared.topic)
        named = title or (None if name is None else f"{name} by {compared.field}: log-odds of words")
        File(path).write(drawn(lambda: words_figure(compared, title=named), kind))


def words_over_figure(
    words: WordsOver,
    *,
    count: int = RISING,
    title: str | None = None,
    size: Size | None = None,
    names: Mapping[int, str] | None = None,
) -> Figure:
    """Return a figure of words over time: for each topic the words that rise and, beside them, those that fall.

    Parameters
    ----------
    words : WordsOver
        Result of `words_over`. At most six topics are drawn, the first ones.
    count : int, optional
        Words that rise, and as many that fall.
    title : str, optional
        Title of the figure.
    size : tuple of float, optional
        Width and height in inches.
    names : mapping of int to str, optional
        Names of topics by their ids, in place of their words.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, which the caller may change, and save as PNG, SVG or PDF.
    """
    topics = words.topics.tolist()[: MAX_PANELS // 2]
    heading = title or "Words over time: share of the topic's tokens"
    figure, axes = new_panels(2 * len(topics), plain(heading), legend=False, across=2, size=size, panel=WIDE)
    at = places_of(words.periods)
    for row, topic in enumerate(topics):
        name = shortened(plain((names or {}).get(topic, words.names[row])), MAX_LETTERS)
        for panel, direction, chosen in (
            (axes[2 * row], "rising", words.rising(row, count)),
            (axes[2 * row + 1], "falling", words.falling(row, count)),
        ):
            panel.set_title(f"{topic}: {name}, {direction}", fontsize=10, parse_math=False)
            shares, terms = 100 * words.probability[row][:, chosen], [words.words[word] for word in chosen]
            # Each word is named at the end of its line, where the names leave room for each other.
            top = 1.05 * float(shares.max(initial=1e-9))
            panel.set_ylim(0.0, top)
            panel.grid(alpha=0.3)
            for number, share in enumerate(shares.T):
                panel.plot(at, share, "o-", color=COLOURS[number % len(COLOURS)], linewidth=1.4, markersize=2.5)
            order = np.argsort(shares[-1], kind="stable")
            heights = spread_evenly(shares[-1][order] / top, NAME_HEIGHT)
            for height, number in zip(heights.tolist(), order.tolist(), strict=True):
                text, colour = shortened(plain(terms[number]), WORD_LETTERS), COLOURS[number % len(COLOURS)]
                style = {"color": colour, "fontsize": 8.5, "va": "center", "parse_math": False}
                where = {"textcoords": "offset points", "annotation_clip": False}
                panel.annotate(text, (at[-1], height * top), (6, 0), **where, **style)
            labelled = labelled_periods(((at - at[0]) / max(at[-1] - at[0], 1e-9)).tolist(), SHOWN_PERIODS)
            panel.set_xticks(at[labelled], [words.periods[place] for place in labelled])
    for panel in axes[::2]:
        panel.set_ylabel("share of the topic (%)")
    return figure


def places_of(periods: Sequence[str]) -> Floats:
    """Return where periods are drawn: at their years if they are years, else in equal steps."""
    if all(re.fullmatch(r"\d{4}(s|-\d{4})?", period) for period in periods):
        return np.array([float(period[:4]) for period in periods])
    return np.arange(float(len(periods)))


def spread_evenly(heights: Floats, least: float) -> Floats:
    """Move ascending heights apart until neighbours differ by `least`, about their means."""
    blocks: list[list[float]] = []  # Sums of the wanted heights of the lowest member, and numbers of members
    for height in heights.tolist():
        blocks.append([height, 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] + blocks[-2][1] * least > blocks[-1][0] / blocks[-1][1]:
            total, members = blocks.pop()
            blocks[-1][0] += total - members * blocks[-1][1] * least
            blocks[-1][1] += members
    return np.array([
        total / members + place * least for total, members in blocks for place in range(int(members))
    ])  # fmt: skip


def number_along(effects: Effects) -> str | None:
    """Return the field along which predictions or differences form a curve."""
    names = dict.fromkeys(name for values in effects.values for name in values)
    for name in names:
        numbers = {values.get(name) for values in effects.values}
        if len(numbers) > 2 and all(isinstance(number, float) for number in numbers):
            return name
    return None


def most_changed(effects: Effects) -> list[int]:
    """Return the columns of the topics whose predictions or differences vary most."""
    change = effects.estimate.max(axis=0) - effects.estimate.min(axis=0)
    return [int(column) for column in np.argsort(-change, kind="stable")[: MAX_PANELS // 2]]


def rows_of_terms(effects: Effects, limit: int = MAX_PANELS) -> list[int]:
    """Return the terms of a forest, without the intercept."""
    return [row for row, term in enumerate(effects.terms) if term != "Intercept"][:limit]


def curves_of(effects: Effects, along: str) -> dict[str, list[int]]:
    """Return the rows of each curve along a number, in ascending order, by the values of the other fields."""
    curves: dict[str, list[int]] = {}
    for row, values in enumerate(effects.values):
        # A difference has its own field last, and its values at the end of the term's name.
        names = [*values] if effects.kind == "prediction" else [*values][:-1]
        held = ", ".join(f"{name}={values[name]}" for name in names if name != along)
        key = held if effects.kind == "prediction" else effects.terms[row].partition(" at ")[0]
        key = f"{key} at {held}" if held and effects.kind != "prediction" else key
        curves.setdefault(key, []).append(row)
    return {key: sorted(rows, key=lambda row: float(effects.values[row][along])) for key, rows in curves.items()}


def _rows_size(panels: int, rows: int) -> Size:
    """Return the size of a figure whose panels have a named row for each topic or word."""
    down = -(-panels // ACROSS)
    return PANEL[0] * min(panels, ACROSS) + 1.5, max(PANEL[1] * down + 0.5, down * (ROW * rows + 1.2))


def _forest(effects: Effects, columns: Sequence[int], title: str | None, size: Size | None, ax: Axes | None) -> Figure:
    rows = rows_of_terms(effects)
    panels = max(len(rows), 1)
    size = size or _rows_size(panels, len(columns))
    figure, axes = new_panels(panels, plain(title or "Effects with intervals"), legend=False, size=size, ax=ax)
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


def _curves(
    effects: Effects, columns: Sequence[int], along: str, title: str | None, size: Size | None, ax: Axes | None
) -> Figure:
    groups = curves_of(effects, along)
    heading = plain(title or f"Topics along {along}")
    across = 2 if len(columns) == 4 else ACROSS
    figure, axes = new_panels(len(columns), heading, legend=len(groups) > 1, across=across, size=size, ax=ax)
    for panel, column in zip(axes, columns, strict=False):
        for number, (name, rows) in enumerate(groups.items()):
            colour = COLOURS[number % len(COLOURS)]
            at = [float(effects.values[row][along]) for row in rows]
            factor = 1.0 if effects.link == "logit" and effects.kind != "prediction" else 100.0
            estimate, low, high = (
                factor * part[rows, column] for part in (effects.estimate, effects.low, effects.high)
            )
            panel.plot(at, estimate, color=colour, linewidth=1.4, label=plain(name))
            panel.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
        shares = effects.estimate[:, column]
        possible = (shares >= 0.0) & (shares <= 1.0)
        if effects.kind == "prediction" and possible.any() and not possible.all():
            # A line that leaves what is possible, where a group has no documents, would flatten all others.
            top = 105.0 * float(effects.high[possible, column].max())
            panel.set_ylim(-0.05 * top, top)
        if effects.kind != "prediction":
            panel.axhline(0.0, color="#000000", linewidth=0.8)
        words = shortened(plain(effects.words[column]), MAX_LETTERS)
        panel.set_title(f"{effects.topics[column]}: {words}", fontsize=10, parse_math=False)
        panel.set_xlabel(plain(along))
        panel.set_ylabel("share (%)" if effects.link == "identity" or effects.kind == "prediction" else "log odds")
    if len(groups) > 1 and ax is not None:
        ax.legend(frameon=False)
    elif len(groups) > 1 and columns:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    return figure
