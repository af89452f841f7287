"""What a comparison found, for people: `python -m tests.benchmarks.table FOLDER` makes it again from results.json."""

import importlib.util
import json
import math
import os
import platform
import statistics
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

TIMES = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)  # seconds at which scores are told
# Okabe and Ito's colours, which people who see colours differently can tell apart; their yellow is too pale for lines.
OURS = ("#0072B2", "#D55E00")
THEIRS = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKS = ("o", "s", "^", "D", "v", "P", "X")
NOTES = """\
Medians over the rounds. Score: mean log probability of a held-out token, in nats, by document completion; higher is
better. Seconds: for ours from the start of the fit, every iteration's scoring counted; for peers their fitting alone.
Start-up: all that the command does before that, the starting of workers and loading of compiled kernels included.
Whole command: from its call to its end, the writing of the model included. Memory: peak of the resident memory of
all processes, sampled every 50 ms, where pages that processes share count in each; of ours from beginning to end, of
peers while they fit. A peer that begins anew for each point of its curve gives the curve in the first round alone,
and its end in all."""


@dataclass
class Summary:
    """Medians of one contestant's runs.

    Attributes
    ----------
    who : str
        Its name.
    ours : bool
        Whether it is a family of ours.
    runs : list of dict
        Its runs that did not fail.
    error : str
        What the last run that failed said.
    """

    who: str
    ours: bool
    runs: list
    error: str

    def median(self, name):
        """Return the median of a number over the runs that have it, or None."""
        found = [run[name] for run in self.runs if run.get(name) is not None]
        return statistics.median(found) if found else None

    @property
    def iterations(self):
        """Return the iterations that were made."""
        return max((run["points"][-1]["iteration"] for run in self.runs), default=None)

    def curve(self):
        """Return (seconds, score) by iteration, medians over the rounds that have that iteration."""
        points = {}
        for run in self.runs:
            for point in run["points"]:
                points.setdefault(point["iteration"], []).append((point["seconds"], point["score"]))
        return [tuple(map(statistics.median, zip(*found, strict=True))) for _, found in sorted(points.items())]

    def seconds_to(self, score, startup=False):
        """Return the seconds until a score is passed, a median; infinite if most rounds never do, None without runs.

        Parameters
        ----------
        score : float
            To be reached, in nats.
        startup : bool, optional
            Count the command's start-up too.
        """
        found = []
        for run in self.runs:
            passed = (point["seconds"] for point in run["points"] if point["score"] >= score)
            found.append(next(passed, math.inf) + ((run.get("startup_seconds") or 0.0) if startup else 0.0))
        return statistics.median_high(found) if found else None


def summaries(results):
    """Return a Summary of each contestant, ours first."""
    found = {}
    for run in sorted(results["runs"], key=lambda run: (run["round"], not run["ours"])):
        one = found.setdefault(run["who"], Summary(run["who"], run["ours"], [], ""))
        if run["error"]:
            one.error = run["error"]
        else:
            one.runs.append(run)
    return list(found.values())


def seconds_text(value):
    """Write seconds with as many digits as mean something."""
    if value is None or math.isinf(value):
        return "-" if value is None else "never"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def number_text(value, digits):
    """Write a number, or a dash for none."""
    return "-" if value is None else f"{value:.{digits}f}"


def line(run):
    """Say a run in one line."""
    if run["error"]:
        return f"{run['who']}: failed: {run['error']}"
    done = f"{run['points'][-1]['iteration']} iterations in {seconds_text(run['seconds'])} s"
    whole = f", whole command {seconds_text(run['command_seconds'])} s" if run["ours"] else ""
    return f"{run['who']}: {done}{whole}, score {run['score']:.4f}, peak {run['megabytes']:.0f} MB"


def grid(names, rows, left=1):
    """Write a Markdown table whose columns stand in line; after the first few, which are names, all to the right."""
    rows = [[str(cell).replace("|", "/") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]

    def row_text(row):
        cells = [cell.ljust(width) for cell, width in zip(row[:left], widths, strict=False)]
        cells += [cell.rjust(width) for cell, width in zip(row[left:], widths[left:], strict=True)]
        return f"| {' | '.join(cells)} |"

    rule = [f"{'-' * (width - 1)}{':' if n >= left else '-'}" for n, width in enumerate(widths)]
    return "\n".join(map(row_text, [names, rule, *rows]))


def ends_text(found):
    """Write the table of who took how long, to which score."""
    rows = []
    for one in found:
        times = [one.median(name) for name in ("seconds", "startup_seconds", "command_seconds")]
        score, peak = number_text(one.median("score"), 4), number_text(one.median("megabytes"), 0)
        rows.append([one.who, one.iterations or "-", *map(seconds_text, times), peak, score])
    names = ["who", "iterations", "seconds", "start-up s", "whole command s", "peak MB", "final score"]
    return grid(names, rows)


def passing_text(found):
    """Write the table of when ours pass each peer's final score."""
    rows = []
    for ours in (one for one in found if one.ours and one.runs):
        for peer in (one for one in found if not one.ours and one.runs):
            score, theirs = peer.median("score"), peer.median("seconds")
            own, whole = ours.seconds_to(score), ours.seconds_to(score, startup=True)
            ratio = "-" if math.isinf(own) else f"{theirs / own:.2f}"
            times = [seconds_text(value) for value in (theirs, own, whole)]
            rows.append([ours.who, peer.who, f"{score:.4f}", *times, ratio])
    names = ["ours", "peer", "its final score", "its seconds", "our seconds", "with start-up s", "its / our seconds"]
    return grid(names, rows, left=2) if rows else ""


def over_time_text(found):
    """Write the table of the score that each has after so many seconds."""
    curves = {one.who: one.curve() for one in found if one.runs}
    times = sorted(seconds for curve in curves.values() for seconds, _ in curve)
    if not times:
        return ""
    shown = [at for at in TIMES if times[0] <= at and at / 2.5 <= times[-1]]
    rows = []
    for who, curve in curves.items():
        scores = [[score for seconds, score in curve if seconds <= at] for at in shown]
        ended = [at > curve[-1][0] for at in shown]
        cells = [
            f"{known[-1]:.4f}{'*' if over else ''}" if known else "-" for known, over in zip(scores, ended, strict=True)
        ]
        rows.append([who, *cells])
    return grid(["score after s", *(f"{at:g}" for at in shown)], rows)


def rounds_text(number):
    """Say how many rounds there were."""
    return "1 round" if number == 1 else f"{number} rounds"


def corpus_text(results):
    """Say what was fitted, and on what."""
    corpus, machine, options = results["corpus"], results["machine"], results["options"]
    sizes = f"{corpus['documents']:,} documents, {corpus['words']:,} words, {corpus['tokens']:,} tokens"
    kind = "A corpus drawn from LDA's own model" if corpus["drawn"] else "A given corpus"
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    return (
        f"{kind}: {sizes} to fit and {corpus['heldout_tokens']:,} held out.\n"
        f"{options['topics']} topics, alpha {options['alpha']:g} of each, beta {options['beta']:g} of a topic, "
        f"{options['workers']} cores for each, {rounds_text(options['rounds'])}.\n"
        f"{machine['cpu']}, {machine['cores']} cores, {machine['gigabytes']:.0f} GB; {versions}."
    )


def text(results):
    """Write all tables as Markdown."""
    found = summaries(results)
    failed = [f"{one.who} failed: {one.error}" for one in found if one.error]
    absent = [f"{name} is not installed and was left out." for name in results["left_out"]]
    passing, over_time = passing_text(found), over_time_text(found)
    parts = [
        "# Fits side by side",
        corpus_text(results),
        ends_text(found),
        "\n".join([*failed, *absent]),
        passing and f"When ours pass a peer's final score:\n\n{passing}",
        over_time and f"Score after so many seconds; * where a contestant had ended before:\n\n{over_time}",
        NOTES,
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def can_draw():
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(results, out):
    """Draw score against time into `score-over-time.png` and `.svg`, where matplotlib is installed."""
    found = [one for one in summaries(results) if one.runs]
    if not found or not can_draw():
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    figure, axes = pyplot.subplots(figsize=(10, 5.5), layout="constrained")
    colours = {True: iter(OURS), False: iter(THEIRS)}
    for one, mark in zip(found, MARKS, strict=False):
        _draw_one(axes, one, next(colours[one.ours]), mark)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    options = results["options"]
    axes.set_xlabel("seconds (log scale)")
    axes.set_ylabel("mean log probability of a held-out token (nats)")
    rounds = rounds_text(options["rounds"])
    axes.set_title(f"{options['topics']} topics, {options['workers']} cores for each, medians of {rounds}")
    axes.grid(which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False)  # beside the axes, so that it covers no line
    for kind in ("png", "svg"):
        figure.savefig(out / f"score-over-time.{kind}", dpi=150)
    pyplot.close(figure)


def _draw_one(axes, one, colour, mark):
    """Draw a contestant's line; marks stand at scored states of peers, and at the end of ours, which score always."""
    seconds, scores = zip(*one.curve(), strict=True)
    marked = [len(seconds) - 1] if one.ours else None
    axes.plot(
        seconds, scores, color=colour, marker=mark, markevery=marked, markersize=5, linewidth=2.2 if one.ours else 1.4,
        label=one.who,
    )  # fmt: skip
    startup = one.median("startup_seconds")
    if startup is not None:
        late = [value + startup for value in seconds]
        axes.plot(late, scores, color=colour, linestyle="--", linewidth=1, label=f"{one.who}, with start-up")


def write(results, out):
    """Write the raw results, the tables and the plot."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "table.md").write_text(text(results))
    draw(results, out)


def machine(names):
    """Return what the numbers depend on: processor, cores, memory, and versions of those of the packages installed."""
    cpu = platform.processor() or platform.machine()
    described = Path("/proc/cpuinfo")
    if described.exists():
        lines = (row.partition(":") for row in described.read_text().splitlines())
        cpu = next((value.strip() for name, _, value in lines if name.strip() == "model name"), cpu)
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cpu": cpu, "cores": os.cpu_count(), "gigabytes": gigabytes, "versions": versions}


if __name__ == "__main__":
    (folder,) = map(Path, sys.argv[1:])
    write(json.loads((folder / "results.json").read_text()), folder)
