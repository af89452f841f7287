"""Draw topic shares by period with matplotlib: a panel for each topic, and one for the number of documents."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.analysis.topic_shares import TimeShares
from collapsium.pipeline.formatting import plain, shortened
from collapsium.pipeline.models.topics import Topic, topics
from collapsium.pipeline.reporting.plots.style import ACROSS, COLOURS, GRID, Drawing, Style, integer_ticks, new_panels
from collapsium.storage.data_types import JsonObject
from collapsium.storage.errors import OptionError
from collapsium.storage.printable import CsvRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_TOPICS = 12
# Most words in a panel's title, characters of each, and characters of all, which fit above a panel.
WORDS, LETTERS, TITLE_LETTERS = 5, 14, 46
BAND = 1.96  # Half-width of the bands in standard errors, which makes them 95% intervals
FEW_DOCUMENTS = 5  # Periods with fewer documents have hollow marks, and their bands do not determine the scale
CHARACTER = 0.085  # Mean width of a character of a label, in inches
MOST_NAMES, NAME_GAP = 5, 3  # Most names of periods below a panel, and characters between them
MAX_NAME = 14  # Characters of a name below a panel


def draw_time(
    run: str | os.PathLike[str],
    shares: TimeShares,
    style: Style,
    chosen: Sequence[int] | None = None,
    *,
    same_scale: bool = False,
    ax: Axes | None = None,
) -> Drawing:
    """Draw topic shares by period; given axes take a single topic, without the number of documents."""
    known = {topic.id: topic for topic in style.named(topics(run, WORDS))}
    columns = columns_of(shares, known, chosen)
    if ax is not None and len(columns) != 1:
        raise OptionError(f"takes one topic over time, found {len(columns)}; name it (`topics`)", "ax")
    return Drawing(lambda: _figure(shares, columns, known, style, same_scale, ax), GRID)


def _figure(
    shares: TimeShares,
    columns: Sequence[int],
    known: Mapping[int, Topic],
    style: Style,
    same_scale: bool,
    ax: Axes | None,
) -> Figure:
    what, unit = style.text("Topics by"), style.text("share of the tokens, with 95% intervals")
    heading = plain(style.title or f"{what} {shares.period}: {unit}")
    panels = len(columns) + (ax is None)
    across = 2 if panels == 4 else ACROSS
    figure, axes = new_panels(panels, "", legend=False, size=style.size, across=across, ax=ax)
    if ax is None:
        figure.suptitle(heading, x=0.01, ha="left", fontsize=13, fontweight="bold", parse_math=False)
        widths = [end - start for start, end in zip(shares.starts, shares.ends, strict=True)]
        axes[-1].bar(shares.starts, shares.documents, width=widths, align="edge", color="#9AA3AA")
        axes[-1].set_title(style.text("Number of documents"), fontsize=10, parse_math=False)
        integer_ticks(axes[-1].yaxis)
    middles = [start + (end - start) / 2 for start, end in zip(shares.starts, shares.ends, strict=True)]
    for panel, column in zip(axes, columns, strict=False):
        topic = int(shares.topics[column])
        _draw_topic(panel, shares, column, np.array(middles))
        if same_scale:
            panel.set_ylim(0.0, 100 * max(top_of_scale(shares, shown) for shown in columns))
        panel.set_title(_named(topic, known.get(topic)), fontsize=10, parse_math=False)
    first, last = shares.starts[0], shares.ends[-1]
    # Widths of a panel, one of several or given axes, and of the longest name, in characters of its labels
    across_panel = 1.0 / min(panels, across) if ax is None else float(ax.get_position().width)
    width = float(figure.get_size_inches()[0]) * across_panel / CHARACTER
    longest = max(len(label_of(shares, row)) for row in range(len(shares.names)))
    limit = max(1, min(MOST_NAMES, int(width / (longest + NAME_GAP))))
    rows = labelled_periods([(middle - first) / (last - first) for middle in middles], limit)
    for panel in axes:
        panel.set_xlim(first, last)
        panel.set_xticks([middles[row] for row in rows], [label_of(shares, row) for row in rows])
    return figure


def columns_of(shares: TimeShares, known: Mapping[int, Topic], chosen: Sequence[int] | None) -> list[int]:
    """Return the columns of the topics to draw; raise `OptionError` if a topic does not exist."""
    if chosen is None:
        return [column for column in shares.foremost() if int(shares.topics[column]) in known]
    topics = list(dict.fromkeys(chosen))
    if not 0 < len(topics) <= MAX_TOPICS:
        raise OptionError(f"expected 1 to {MAX_TOPICS} topics, found {len(topics)}", "topics")
    columns = {topic: column for column, topic in enumerate(shares.topics.tolist())}
    for topic in topics:
        if topic not in columns:
            raise OptionError(f"`topics` {topic}: the model has no topic {topic} with tokens")
    return [columns[topic] for topic in topics]


def _named(number: int, topic: Topic | None) -> str:
    """Return a topic's id with its title or first words."""
    if topic is not None and topic.title is not None:
        return shortened(f"{number}: {topic.title}", TITLE_LETTERS)
    names = [] if topic is None else topic.names[:WORDS]
    title = str(number)
    for place, name in enumerate(shortened(name, LETTERS) for name in names):
        longer = f"{title}{' ' if place else ': '}{name}"
        if place and len(longer) > TITLE_LETTERS:
            break
        title = longer
    return title


def unbroken(shares: TimeShares) -> list[range]:
    """Return the runs of consecutive periods that all have documents."""
    breaks = [row for row in range(1, len(shares.starts)) if shares.ends[row - 1] != shares.starts[row]]
    edges = [0, *breaks, len(shares.starts)]
    return [range(low, high) for low, high in itertools.pairwise(edges) if high > low]


def _draw_topic(axes: Axes, shares: TimeShares, column: int, at: npt.NDArray[np.object_]) -> None:
    """Draw a topic's share with its band; lines are interrupted at periods without documents."""
    share = 100 * shares.shares[:, column]
    error = 100 * BAND * shares.errors[:, column]
    for run in unbroken(shares):
        rows = slice(run.start, run.stop)
        axes.plot(at[rows], share[rows], color=COLOURS[0], linewidth=1.4)
        if len(run) > 1:
            low = np.maximum(share[rows] - error[rows], 0.0)
            axes.fill_between(at[rows], low, share[rows] + error[rows], color=COLOURS[0], alpha=0.18, linewidth=0)
        else:
            axes.errorbar(at[rows], share[rows], error[rows], color=COLOURS[0], alpha=0.5, linewidth=1)
    has_few_documents = shares.documents < FEW_DOCUMENTS
    style = {"markersize": 3.2, "color": COLOURS[0], "markeredgewidth": 0.8}
    axes.plot(at[~has_few_documents], share[~has_few_documents], "o", **style)
    axes.plot(at[has_few_documents], share[has_few_documents], "o", markerfacecolor="white", **style)
    axes.set_ylim(0.0, 100 * top_of_scale(shares, column))
    axes.set_ylabel("share (%)")


def top_of_scale(shares: TimeShares, column: int) -> float:
    """Return the top of the scale of a topic's share: above all bands, except in periods with few documents."""
    share = shares.shares[:, column]
    bands = share + BAND * shares.errors[:, column]
    reliable = bands[shares.documents >= FEW_DOCUMENTS]
    return max(1.1 * float(share.max()), 1.05 * float(reliable.max(initial=0.0)), 1e-8)


def label_of(shares: TimeShares, row: int) -> str:
    """Return the name of a period for an axis; a week is named by its Monday."""
    return shares.starts[row].date().isoformat() if shares.period == "week" else shortened(shares.names[row], MAX_NAME)


def labelled_periods(places: Sequence[float], limit: int) -> list[int]:
    """Return the periods to name, from the last one backwards, so far apart that about `limit` names fit."""
    rows = [len(places) - 1]
    for row in range(len(places) - 2, -1, -1):
        if places[row] <= places[rows[-1]] - 1.0 / limit:
            rows.append(row)
    return rows[::-1]


def csv_of(time_shares: TimeShares) -> bytes:
    """Return the shares as CSV, with a row for each period and topic."""
    sink = io.StringIO()
    writer = CsvRows(sink, ["period", "start", "documents", "tokens", "topic", "share", "error"], "\n")
    for row, name in enumerate(time_shares.names):
        tokens = round(float(time_shares.tokens[row]), 3)
        period = [name, time_shares.starts[row].isoformat(), int(time_shares.documents[row]), tokens]
        values = zip(time_shares.topics, time_shares.shares[row], time_shares.errors[row], strict=True)
        for topic, share, error in values:
            writer.writerow([*period, int(topic), f"{share:.6g}", f"{error:.6g}"])
    return sink.getvalue().encode()


def record_of(time_shares: TimeShares) -> JsonObject:
    """Return the shares as JSON values: an object for each period, and notes on the reading of dates."""
    dates = time_shares.summary
    return {
        "period": time_shares.period,
        "topics": time_shares.topics.tolist(),
        "periods": [
            {
                "period": name,
                "start": start.isoformat(),
                "documents": int(documents),
                "tokens": float(tokens),
                "shares": [round(share, 6) for share in shares.tolist()],
                "errors": [round(error, 6) for error in errors.tolist()],
            }
            for name, start, documents, tokens, shares, errors in zip(
                time_shares.names,
                time_shares.starts,
                time_shares.documents,
                time_shares.tokens,
                time_shares.shares,
                time_shares.errors,
                strict=True,
            )
        ],
        "left_out": {"missing": dates.missing, "unreadable": dates.unreadable, "inexact": time_shares.inexact},
        "ambiguous": dates.ambiguous,
        "notes": time_shares.notes,
    }
