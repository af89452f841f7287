"""Tables and figures of the results, from the file of records alone."""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from collapsium.pipeline.reporting.plots.style import COLOURS, GRID, MARKS, can_draw, drawn, new_panels
from collapsium.storage.data_types import JsonObject
from tests.benchmarks.results.commands import SCRIPTS, STEPS
from tests.benchmarks.results.plan import CONTESTANTS
from tests.benchmarks.results.scale import BASE, CURVES

PUBLISHED = Path("docs/benchmarks/results.jsonl")
MARKED = re.compile(r"(<!-- table: (?P<name>\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
OURS = {contestant.name for contestant in CONTESTANTS if contestant.family}
Fits = dict[tuple[str, str], list[JsonObject]]  # By corpus and contestant


def best_score(fit: JsonObject) -> float:
    """Return a fit's score; for samplers with averaged samples, the score of these, because they predict better."""
    value: float = fit.get("averaged", fit["score"])
    return value


class Summary:
    """Records by corpus and contestant."""

    def __init__(self, records: Sequence[JsonObject]) -> None:
        self.records = {tuple(record["key"]): record for record in records}
        self.fits: Fits = defaultdict(list)
        for record in records:
            if (
                len(record["key"]) == 4
                and isinstance(record["key"][-1], int)
                and record["key"][0] in ("truth", "peers")
            ):
                _, corpus, contestant, _ = record["key"]
                self.fits[corpus, contestant].append(record)

    def corpora(self, part: str) -> list[str]:
        """Return the corpora of a part that have fits, in their order."""
        return list(dict.fromkeys(key[1] for key in self.records if key[0] == part and self.contestants(key[1])))

    def contestants(self, corpus: str) -> list[str]:
        """Return the contestants on a corpus, the best score first."""
        names = [contestant for where, contestant in self.fits if where == corpus]
        return sorted(names, key=lambda name: -self.mean(corpus, name, best_score))

    def values(self, corpus: str, contestant: str, figure: str | Callable[[JsonObject], float]) -> list[float]:
        """Return a metric for all seeds."""
        read = figure if callable(figure) else lambda fit: fit.get(figure)
        return [value for fit in self.fits.get((corpus, contestant), ()) if (value := read(fit)) is not None]

    def mean(self, corpus: str, contestant: str, figure: str | Callable[[JsonObject], float]) -> float:
        """Return the mean of a metric, or NaN if there are no values."""
        values = self.values(corpus, contestant, figure)
        return statistics.fmean(values) if values else math.nan

    def text(
        self, corpus: str, contestant: str, figure: str | Callable[[JsonObject], float], form: str, scale: float = 1.0
    ) -> str:
        """Return the mean and standard deviation of a metric over the seeds, as text."""
        values = [value * scale for value in self.values(corpus, contestant, figure)]
        if not values:
            return ""
        spread = f"±{statistics.stdev(values):{form}}" if len(values) > 1 else ""
        return f"{statistics.fmean(values):{form}}{spread}"

    def stability(self, part: str, corpus: str, contestant: str) -> float | None:
        """Return the similarity of topics between seeds."""
        record = self.records.get((part, corpus, contestant, "stability"))
        return None if record is None else record["stability"]

    def seconds_to(self, corpus: str, contestant: str, score: float) -> float | None:
        """Return the processor time in which the first seed's curve passes a score."""
        points = [point for fit in self.fits.get((corpus, contestant), ()) for point in fit["points"]]
        return next((seconds for _, seconds, reached in points if reached >= score), None)

    def slope(self, curve: str, figure: str) -> float | None:
        """Return the exponent with which a metric grows with a size: the slope in logarithms."""
        points = self.points(curve, figure)
        if len(points) < 2:
            return None
        sizes, values = ([math.log(point[axis]) for point in points] for axis in (0, 1))
        slope, _ = statistics.linear_regression(sizes, values)
        return slope

    def points(self, curve: str, figure: str) -> list[tuple[int, float]]:
        """Return the measured points of a curve."""
        keys = [(size, ("scale", *{**BASE, curve: size}.values())) for size in CURVES[curve]]
        return [(size, self.records[key][figure]) for size, key in keys if key in self.records]


def table_of(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first are numbers."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def truth_table(found: Summary) -> str:
    """Return the table of the share of recovered true topics, the best contestant first."""
    corpora = found.corpora("truth")
    names = list(dict.fromkeys(name for corpus in corpora for name in found.contestants(corpus)))
    if not names:
        return ""
    shares = {name: [found.mean(corpus, name, "found") for corpus in corpora] for name in names}
    # a contestant that was not run on a corpus comes last
    names.sort(
        key=lambda name: (sum(map(math.isnan, shares[name])), -statistics.fmean(filter(math.isfinite, shares[name])))
    )
    best = [max(filter(math.isfinite, column)) for column in zip(*shares.values(), strict=True)]
    rows = []
    for name in names:
        cells = [found.text(corpus, name, "found", ".0f", 100) for corpus in corpora]
        bold = [
            f"**{cell}**" if share == top else cell for cell, share, top in zip(cells, shares[name], best, strict=True)
        ]
        rows.append([f"`{name}`" if name in OURS else name, *bold])
    return table_of(["topics found, %", *corpora], rows)


def stability_table(found: Summary) -> str:
    """Return the similarity of topics between seeds, and the number of topics that `hdp` uses."""
    corpora = found.corpora("truth")
    names = list(dict.fromkeys(name for corpus in corpora for name in found.contestants(corpus)))

    def overall(name: str) -> float:
        values = [found.stability("truth", corpus, name) for corpus in corpora]
        return statistics.fmean(value for value in values if value is not None)

    if not names:
        return ""
    rows = []
    for name in sorted(names, key=overall, reverse=True):
        values = [found.stability("truth", corpus, name) for corpus in corpora]
        rows.append(
            [f"`{name}`" if name in OURS else name, *("" if value is None else f"{value:.2f}" for value in values)]
        )
    rows.append(
        ["number of topics that `hdp` uses", *(found.text(corpus, "hdp", "topics", ".0f") for corpus in corpora)]
    )
    return table_of(["stability", *corpora], rows)


COLUMNS = {
    "NPMI": ("npmi", ".3f"),
    "c_v": ("c_v", ".3f"),
    "purity": ("purity", ".3f"),
    "NMI": ("nmi", ".3f"),
    "diversity": ("diversity", ".2f"),
}


def scores_table(found: Summary) -> str:
    """Return scores on simulated corpora, the contestant with the best mean first."""
    corpora = found.corpora("truth")
    names = list(dict.fromkeys(name for corpus in corpora for name in found.contestants(corpus)))
    if not names:
        return ""
    # a contestant that was not run on a corpus has no rank there, and comes last
    ranks = {name: statistics.fmean(found.mean(corpus, name, best_score) for corpus in corpora) for name in names}
    names.sort(key=lambda name: -ranks[name] if math.isfinite(ranks[name]) else math.inf)
    best = [found.contestants(corpus)[0] for corpus in corpora]
    rows = []
    for name in names:
        cells = [found.text(corpus, name, best_score, ".3f") for corpus in corpora]
        marked = [f"**{cell}**" if name == first else cell for cell, first in zip(cells, best, strict=True)]
        rows.append([f"`{name}`" if name in OURS else name, *marked])
    return table_of(["score", *corpora], rows)


def peers_table(found: Summary) -> str:
    """Return scores, metrics, time and memory by corpus, the best score first."""
    tables = []
    for corpus in found.corpora("peers"):
        names = found.contestants(corpus)
        shown = {
            head: form for head, form in COLUMNS.items() if any(found.values(corpus, name, form[0]) for name in names)
        }
        rows = []
        for name in names:
            score = found.mean(corpus, name, best_score)
            passed = None if name in OURS else found.seconds_to(corpus, "lda", score)
            rows.append([
                f"`{name}`" if name in OURS else name,
                found.text(corpus, name, best_score, ".3f"),
                f"{math.exp(-score):,.0f}",
                *(found.text(corpus, name, figure, form) for figure, form in shown.values()),
                f"{found.mean(corpus, name, 'seconds'):.0f}",
                "" if passed is None else f"{passed:.1f}",
                # The fits of a contestant share a process, whose peak only rises: the first one has its own.
                f"{found.values(corpus, name, 'megabytes')[0]:.0f}",
            ])  # fmt: skip
        heads = [corpus, "score", "perplexity", *shown, "seconds", "`lda` to this score", "MB"]
        tables.append(table_of(heads, rows))
    return "\n".join(tables)


def cells_table(found: Summary) -> str:
    """Return the recovery of simulated topics of single cells, in the time of `lda` and in multiples of it."""
    rows: dict[str, list[list[str]]] = {}
    for key, record in found.records.items():
        if key[0] != "cells":
            continue
        _, size, contestant, *times = key
        name = f"`{contestant}`" if contestant in OURS else contestant
        longer = f", {times[0]}" if times and times[0] != "1 x" else ""
        rows.setdefault(size, []).append([
            f"{name}{longer}",
            f"{record['recovered']:.3f}",
            f"{record['above_95']}",
            f"{record['score']:.3f}",
            f"{record['iterations']}",
            f"{record['seconds']:.0f}",
            f"{record['nearly_done']:.0f}" if contestant in OURS else "",
            f"{record['megabytes']:,}",
        ])  # fmt: skip
    last = "seconds to within 0.005 of last score"
    heads = ["correlation", "topics above .95", "score", "iterations", "seconds", last, "MB"]
    # sorted by the first column of values
    ordered = {size: sorted(part, key=lambda row: -float(row[1])) for size, part in rows.items()}
    return "\n\n".join(table_of([size, *heads], part) for size, part in ordered.items())


def commands_table(found: Summary) -> str:
    """Return processor seconds of commands and scripts."""
    rows, total = [], [0.0, 0.0]
    for name in STEPS:
        record = found.records.get(("commands", name))
        if record is not None:
            rows.append(
                [
                    f"`collapsium {'--help' if name == 'help' else name}`",
                    f"{record['cold']:.1f}",
                    f"{record['warm']:.1f}",
                ]
            )
            if name in ("ingest", "fit", "topics"):
                total = [sum(pair) for pair in zip(total, (record["cold"], record["warm"]), strict=True)]
    if not rows:
        return ""
    rows.append(["from typing to topics: `ingest`, `fit`, `topics`", *(f"{value:.1f}" for value in total)])
    for name in SCRIPTS:
        record = found.records.get(("commands", name))
        if record is not None:
            rows.append([f"a script with {name}", "", f"{record['warm']:.1f}"])
    return table_of(["processor seconds", "first time on a machine", "later"], rows)


def scale_table(found: Summary) -> str:
    """Return the scaling laws of time and memory."""
    rows = []
    for curve in CURVES:
        seconds, memory = found.points(curve, "seconds"), found.points(curve, "megabytes")
        if len(seconds) > 1:
            powers = [found.slope(curve, figure) for figure in ("seconds", "megabytes")]
            rows.append([
                f"{curve}, {seconds[0][0]:,} to {seconds[-1][0]:,}",
                f"{seconds[0][1]:.3f} to {seconds[-1][1]:.3f}",
                f"{powers[0]:.2f}",
                f"{memory[0][1]:,} to {memory[-1][1]:,}",
                f"{powers[1]:.2f}",
            ])  # fmt: skip
    if not rows:
        return ""
    return table_of(["growing size", "seconds per iteration", "exponent", "MB", "exponent"], rows)


def sessions_table(found: Summary) -> str:
    """Return when and where the results were measured."""
    used = {record["session"] for record in found.records.values() if "session" in record}
    if not used:
        return ""
    sessions = [found.records["session", name] for name in sorted(used)]
    machines = sorted({f"{session['machine']['cpu']}, {session['machine']['cores']} cores" for session in sessions})
    commits = ", ".join(dict.fromkeys(session["commit"] for session in sessions))
    # versions of libraries belong to the session in which they were installed
    installed = {item: None for session in sessions for item in session["machine"]["versions"].items()}
    versions = ", ".join(f"{name} {version}" for name, version in installed)
    days = " to ".join(dict.fromkeys((sessions[0]["key"][1][:10], sessions[-1]["key"][1][:10])))
    return f"Measured on {days} at the commits {commits}, on {'; '.join(machines)}: {versions}.\n"


def shapes_table(found: Summary) -> str:
    """Return the times after which Collapsium's scores exceed tomotopy's, from the benchmark of corpora."""
    rows = []
    for key, record in found.records.items():
        if key[0] == "shapes":
            rows.append([
                key[1],
                f"`{key[2]}`",
                f"{record['rounds']}",
                f"{record['tomotopy']:.4f}",
                f"{record['tomotopy_seconds']:g}",
                f"{record['seconds']:.2f}",
                f"{record['times_faster']:.1f}",
                f"{record['score']:.4f}",
                f"{record['tomotopy_averaged']:.4f}",
            ])  # fmt: skip
    heads = ["corpus", "family", "rounds", "tomotopy's score", "tomotopy's seconds", "our seconds to that score"]
    return table_of([*heads, "ratio", "our score after tomotopy's seconds", "tomotopy's average"], rows)


TABLES = {
    "shapes": shapes_table,
    "truth": truth_table,
    "stability": stability_table,
    "scores": scores_table,
    "peers": peers_table,
    "cells": cells_table,
    "commands": commands_table,
    "scale": scale_table,
    "sessions": sessions_table,
}


def filled(page: str, records: Sequence[JsonObject]) -> str:
    """Return a page with the tables between its marks."""
    found = Summary(records)
    return MARKED.sub(lambda mark: f"{mark[1]}{part_of(mark['name'], found)}{mark[3]}", page)


def part_of(name: str, found: Summary) -> str:
    """Return a table with its figure, or how to measure it if the file of results lacks it."""
    table = TABLES[name](found)
    if not table:
        return "The published file does not have these measurements yet.\n"
    figure = PICTURES.get(name)
    return table if figure is None else f"{table}\n![{figure[1]}](../images/{figure[0]}.png)\n"


def orders(found: Summary) -> dict[str, list[str]]:
    """Return the contestants on each corpus, the best score first."""
    return {corpus: found.contestants(corpus) for part in ("truth", "peers") for corpus in found.corpora(part)}


def differences(records: Sequence[JsonObject], published: Sequence[JsonObject]) -> list[str]:
    """Return a line for each corpus on which the order of contestants differs from the published results."""
    ours, theirs = orders(Summary(records)), orders(Summary(published))
    lines = []
    for corpus in [name for name in ours if name in theirs]:
        both = [
            [name for name in order[corpus] if name in other[corpus]]
            for order, other in ((ours, theirs), (theirs, ours))
        ]
        if both[0] != both[1]:
            lines.append(f"{corpus}: {', '.join(both[0])}; published: {', '.join(both[1])}")
    return lines


def write(records: Sequence[JsonObject], page: Path, figures: Path | None) -> None:
    """Write the tables into a page and the figures into a folder."""
    from tests.benchmarks.shapes.records import read

    if not records:
        raise SystemExit("error: the file has no results yet")
    page.write_text(filled(page.read_text(encoding="utf-8"), records), encoding="utf-8")
    other = differences(records, read(PUBLISHED))
    print("\n".join(["other orders than published:", *other] if other else ["the orders are the published ones"]))
    if figures is not None and can_draw():
        figures.mkdir(parents=True, exist_ok=True)
        found = Summary(records)
        for name, draw in FIGURES.items():
            if not any(TABLES[table](found) for table, picture in PICTURES.items() if picture[0] == name):
                continue
            (figures / f"{name}.png").write_bytes(drawn(lambda draw=draw: draw(found), "png", GRID))


def _styles(found: Summary) -> dict[str, JsonObject]:
    """Return a colour and a marker for each contestant; Collapsium's lines are thicker."""
    names = list(dict.fromkeys([*(contestant.name for contestant in CONTESTANTS), *(name for _, name in found.fits)]))
    return {
        name: {
            "color": COLOURS[number % len(COLOURS)],
            "marker": MARKS[number % len(MARKS)],
            "markersize": 4,
            "linewidth": 2.2 if name in OURS else 1.2,
        }
        for number, name in enumerate(names)
    }


def _legend(figure, panels) -> None:
    named = {label: line for axes in panels for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(list(named.values()), list(named), loc="outside right center", frameon=False)


def score_figure(found: Summary):
    """Draw held-out scores over processor time until they are flat."""
    corpora = found.corpora("peers") or found.corpora("truth")
    figure, panels = new_panels(len(corpora), "Held-out score over processor time, one core", across=2)
    for axes, corpus in zip(panels, corpora, strict=True):
        ends = []
        for name in found.contestants(corpus):
            points = [point for fit in found.fits[corpus, name] for point in fit["points"]]
            if points:
                _, seconds, scores = zip(*points, strict=True)
                axes.plot(seconds, scores, label=name, **_styles(found)[name])
                ends.append(scores[-1])
        axes.set_ylim(min(ends) - 0.1, max(ends) + 0.03)
        axes.set_xscale("log")
        axes.set_title(corpus)
        axes.set_xlabel("processor seconds, log scale")
    panels[0].set_ylabel("nats per held-out token")
    _legend(figure, panels)
    return figure


def truth_figure(found: Summary):
    """Plot the share of true topics that each contestant recovers."""
    corpora = found.corpora("truth")
    names = list(dict.fromkeys(name for corpus in corpora for name in found.contestants(corpus)))
    figure, (axes,) = new_panels(1, "True topics found in simulated corpora", panel=(8.0, 3.7))
    for number, name in enumerate(names):
        places = [at + (number - len(names) / 2 + 0.5) * 0.09 for at in range(len(corpora))]
        shares = [found.mean(corpus, name, "found") for corpus in corpora]
        style = _styles(found)[name]
        axes.plot(places, shares, linestyle="", marker=style["marker"], color=style["color"], markersize=7, label=name)
    axes.set_xticks(range(len(corpora)), [corpus.replace(" ", "\n", 1) for corpus in corpora])
    axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel("share found")
    axes.grid(visible=False, axis="x")
    _legend(figure, [axes])
    return figure


def scale_figure(found: Summary):
    """Draw the time of an iteration over sizes."""
    curves = [curve for curve in CURVES if len(found.points(curve, "seconds")) > 1]
    figure, panels = new_panels(len(curves), "Processor time of an iteration of lda", legend=False, sharey=True)
    for axes, curve, colour in zip(panels, curves, COLOURS, strict=False):
        sizes, seconds = zip(*found.points(curve, "seconds"), strict=True)
        axes.plot(sizes, seconds, marker="o", color=colour, linewidth=2.2)
        axes.set_xscale("log")
        axes.set_yscale("log")
        ends = (sizes[0], sizes[len(sizes) // 2], sizes[-1])
        axes.set_xticks(ends, [f"{size:,}" for size in ends])
        axes.set_yticks([0.05, 0.1, 0.2, 0.4], ["0.05", "0.1", "0.2", "0.4"])
        axes.minorticks_off()
        axes.set_xlabel(curve)
        axes.set_title(f"exponent {found.slope(curve, 'seconds'):.2f}")
    panels[0].set_ylabel("seconds")
    return figure


FIGURES = {"score_over_time": score_figure, "truth": truth_figure, "scale": scale_figure}
PICTURES = {
    "stability": ("truth", "Shares of true topics that each contestant finds in simulated corpora"),
    "peers": ("score_over_time", "Held-out scores over processor time until they are flat"),
    "scale": ("scale", "Processor time of an iteration over tokens, words and topics"),
}
"""Figures below tables, with their descriptions."""
