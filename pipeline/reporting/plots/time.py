"""Pictures of topic shares by period, where matplotlib is installed: a panel a topic, and one of documents."""

from __future__ import annotations

import datetime
import io
import itertools
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collapsium.pipeline.analysis.topic_shares import TimeShares
from collapsium.pipeline.analysis.topics import Topic, topics
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.plots.style import COLOURS, SALT, new_panels, saved, whole_numbers
from collapsium.storage.errors import OptionError
from collapsium.storage.printable import CsvRows

MOST = 12  # topics that are drawn
WORDS, LETTERS = 4, 14  # of a topic in its panel's title, and of each
BAND = 1.96  # standard errors on either side
FEW_DOCUMENTS = 5  # periods of fewer have hollow marks


def draw_time(
    run: str | os.PathLike[str], found: TimeShares, kind: str, title: str, chosen: Sequence[int] | None = None
) -> bytes:
    """Draw topic shares by period; needs matplotlib.

    Parameters
    ----------
    run : str or path-like
        Folder of the run.
    found : TimeShares
        Its shares.
    kind : str
        ``png`` or ``svg``.
    title : str
        What stands above.
    chosen : sequence of int, optional
        Ids of the topics, twelve at most; by default the largest and those that change most.

    Returns
    -------
    bytes
        The picture: bands are 95% intervals, from the standard errors.

    Raises
    ------
    OptionError
        A topic is not there, or there are too many.
    """
    from matplotlib import rc_context

    known = {topic.id: topic for topic in topics(run, WORDS)}
    columns = columns_of(found, known, chosen)
    style = {"font.size": 10, "axes.grid": True, "grid.alpha": 0.3, "svg.fonttype": "none"}
    with warnings.catch_warnings(), rc_context({**SALT, **style}):
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure, axes = new_panels(len(columns) + 1, "", legend=False)
        figure.suptitle(plain(f"{title}: shares of topics by {found.period}"), x=0.01, ha="left", parse_math=False)
        for one, column in zip(axes, columns, strict=False):
            topic = int(found.topics[column])
            _course(one, found, column)
            one.set_title(_named(topic, known.get(topic)), fontsize=10, parse_math=False)
        _documents(axes[-1], found)
        for one in axes:
            _dates(one, found)
        return saved(figure, kind)


def columns_of(found: TimeShares, known: Mapping[int, Topic], chosen: Sequence[int] | None) -> list[int]:
    """Return the columns of the topics to draw; `OptionError` where one is not there."""
    if chosen is None:
        return [one for one in found.foremost() if int(found.topics[one]) in known]
    wanted = list(dict.fromkeys(chosen))
    if not 0 < len(wanted) <= MOST:
        raise OptionError(f"expected 1 to {MOST} topics, found {len(wanted)}", "topics")
    place = {topic: column for column, topic in enumerate(found.topics.tolist())}
    for topic in wanted:
        if topic not in place:
            raise OptionError(f"`topics` {topic}: the model has no topic {topic} with tokens")
    return [place[topic] for topic in wanted]


def _named(number: int, topic: Topic | None) -> str:
    """Name a topic by its id and its first words."""
    names = [] if topic is None else topic.names[:WORDS] if topic.title is None else [topic.title]
    short = [name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…" for name in map(plain, names)]
    return f"{number}: {' '.join(short)}" if short else str(number)


def _middles(found: TimeShares) -> list[datetime.datetime]:
    return [start + (end - start) / 2 for start, end in zip(found.starts, found.ends, strict=True)]


def unbroken(found: TimeShares) -> list[range]:
    """Return runs of periods between which none is without documents."""
    breaks = [place for place in range(1, len(found.starts)) if found.ends[place - 1] != found.starts[place]]
    edges = [0, *breaks, len(found.starts)]
    return [range(low, high) for low, high in itertools.pairwise(edges) if high > low]


def _course(axes: Any, found: TimeShares, column: int) -> None:
    """Draw a topic's share with its band; lines end where periods have no documents."""
    at, share = np.array(_middles(found)), 100 * found.shares[:, column]
    error = 100 * BAND * found.errors[:, column]
    for run in unbroken(found):
        rows = slice(run.start, run.stop)
        axes.plot(at[rows], share[rows], color=COLOURS[0], linewidth=1.4)
        if len(run) > 1:
            low = np.maximum(share[rows] - error[rows], 0.0)
            axes.fill_between(at[rows], low, share[rows] + error[rows], color=COLOURS[0], alpha=0.18, linewidth=0)
        else:
            axes.errorbar(at[rows], share[rows], error[rows], color=COLOURS[0], alpha=0.5, linewidth=1)
    few = found.documents < FEW_DOCUMENTS
    style = {"markersize": 3.2, "color": COLOURS[0], "markeredgewidth": 0.8}
    axes.plot(at[~few], share[~few], "o", **style)
    axes.plot(at[few], share[few], "o", markerfacecolor="white", **style)
    # A band of a few documents shall not press all else together.
    axes.set_ylim(0.0, max(float(share.max()) * 1.25, float(np.quantile(share + error, 0.9)), 1e-6))
    axes.set_ylabel("share (%)")


def _documents(axes: Any, found: TimeShares) -> None:
    """Draw how many documents the periods have."""
    widths = [end - start for start, end in zip(found.starts, found.ends, strict=True)]
    axes.bar(found.starts, found.documents, width=widths, align="edge", color="#9AA3AA")
    axes.set_title("Documents", fontsize=10)
    whole_numbers(axes.yaxis)


def _dates(axes: Any, found: TimeShares) -> None:
    """Mark the horizontal axis with dates."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    axes.set_xlim(found.starts[0], found.ends[-1])
    locator = AutoDateLocator(minticks=3, maxticks=6)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def csv_of(found: TimeShares) -> bytes:
    """Write the shares as CSV: a row for each period and topic."""
    sink = io.StringIO()
    writer = CsvRows(sink, "\n")
    writer.writerow(["period", "start", "documents", "tokens", "topic", "share", "error"])
    for row, name in enumerate(found.names):
        about = [name, found.starts[row].isoformat(), int(found.documents[row]), round(float(found.tokens[row]), 3)]
        for topic, share, error in zip(found.topics, found.shares[row], found.errors[row], strict=True):
            writer.writerow([*about, int(topic), f"{share:.6g}", f"{error:.6g}"])
    return sink.getvalue().encode()


def record_of(found: TimeShares) -> dict[str, Any]:
    """Return the shares as JSON has them: an object a period, and how dates were read."""
    dates = found.summary
    return {
        "period": found.period,
        "topics": found.topics.tolist(),
        "periods": [
            {
                "period": name,
                "start": start.isoformat(),
                "documents": int(documents),
                "tokens": float(tokens),
                "shares": [round(one, 6) for one in shares.tolist()],
                "errors": [round(one, 6) for one in errors.tolist()],
            }
            for name, start, documents, tokens, shares, errors in zip(
                found.names, found.starts, found.documents, found.tokens, found.shares, found.errors, strict=True
            )
        ],
        "left_out": {"missing": dates.missing, "unreadable": dates.unreadable, "inexact": found.inexact},
        "ambiguous": dates.ambiguous,
        "notes": found.notes,
    }
