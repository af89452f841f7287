"""Tables and plots of the bench of shapes."""

from dataclasses import dataclass

from collapsium.pipeline.reporting.plots.style import can_draw
from tests.benchmarks.shapes.plots import draw
from tests.benchmarks.shapes.summaries import SETTLED, summaries

NOTES = """\
Medians over the rounds. Score: mean log probability of a held-out token, in nats, by document completion; higher is
better. Averaged: for a peer that samples the score of the mean prediction of its samples, for an ensemble the score of its
members. Seconds: for ours from the start of the fit, for peers their fitting alone; both without scoring.
Scores of samples, with which fits of large corpora begin, are left out: others are scored by all documents.
Tokens a second: training tokens by the time of one iteration without scoring, for ours the median of the second half.
Memory: peak of the resident memory of all processes; of ours from beginning to end, of peers while they fit. Estimate:
what `collapsium estimate` says for the same fit."""


@dataclass(frozen=True)
class Table:
    """A table in Markdown: its title, the names of its columns, and its rows; the first columns are names."""

    title: str
    names: list
    rows: list
    left: int = 3

    def text(self):
        """Return the table in Markdown, with aligned columns."""
        rows = [[str(value).replace("|", "/") for value in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(self.names, *rows, strict=True)]

        def line_of(row):
            cells = [cell.ljust(width) for cell, width in zip(row[: self.left], widths, strict=False)]
            cells += [cell.rjust(width) for cell, width in zip(row[self.left :], widths[self.left :], strict=True)]
            return f"| {' | '.join(cells)} |"

        rule = [f"{'-' * (width - 1)}{':' if n >= self.left else '-'}" for n, width in enumerate(widths)]
        return "\n".join([f"## {self.title}", "", *map(line_of, [self.names, rule, *rows])])


def seconds_text(value):
    """Return seconds with their significant digits; ``never`` for infinity, a dash for None."""
    if value is None:
        return "-"
    if value == float("inf"):
        return "never"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def number_text(value, digits):
    """Return a number as text, or a dash for None."""
    return "-" if value is None else f"{value:,.{digits}f}"


def line(record):
    """Return a record in one line."""
    if record["error"]:
        return f"failed: {record['error']}"
    averaged = "" if record["averaged"] is None else f", averaged {record['averaged']:.4f}"
    members = f"{record['members']} members, " if "members" in record else ""
    return (
        f"{members}{record['iterations']} iterations in {seconds_text(record['seconds'])} s, score {record['score']:.4f}"
        f"{averaged}, peak {record['megabytes']:.0f} MB"
    )


def ends_table(found):
    """Return the table of scores, speed and memory."""
    rows = []
    for summary in found:
        estimate, peak = summary.median("estimated_megabytes"), summary.median("megabytes")
        ratio = number_text(estimate / peak, 2) if estimate and peak else "-"
        single = None if summary.members else summary.median("score")
        speed = summary.median("tokens_a_second")
        rows.append(
            [
                summary.corpus, summary.topics, summary.name, summary.iterations_text, seconds_text(summary.median("seconds")),
                number_text(single, 4), number_text(summary.median("averaged"), 4),
                number_text(speed and speed / 1e6, 2), number_text(peak, 0), number_text(estimate, 0), ratio,
            ]
        )  # fmt: skip
    names = ["corpus", "K", "contestant", "iterations", "seconds", "score", "averaged", "Mtokens/s", "peak MB",
             "estimate MB", "estimate / peak"]  # fmt: skip
    return Table("Scores, speed and memory", names, rows)


def passing_table(found):
    """Return the table of when Collapsium exceeds each library's last score, and its scores after the same time."""
    rows = []
    for peer in (summary for summary in found if not summary.ours and summary.runs):
        score, theirs, averaged = (peer.median(name) for name in ("score", "seconds", "averaged"))
        for ours in (
            summary for summary in found if summary.is_default and summary.group == peer.group and summary.runs
        ):
            if ours.members:
                continue
            seconds, equal = ours.seconds_to(score), ours.score_at(theirs)
            ratio = "-" if seconds == float("inf") else f"{theirs / seconds:.1f}"
            ensemble = ours.ensemble(found)
            rows.append(
                [
                    peer.corpus, peer.topics, peer.name, ours.name, number_text(score, 4), seconds_text(theirs),
                    seconds_text(seconds), ratio, number_text(equal, 4), number_text(averaged, 4),
                    number_text(ensemble and ensemble.median("averaged"), 4),
                    seconds_text(ensemble and ensemble.median("seconds")),
                ]
            )  # fmt: skip
    names = ["corpus", "K", "peer", "ours", "its score", "its s", "our s to it", "ratio", "our score at its s",
             "its average", "our ensemble", "ensemble s"]  # fmt: skip
    return Table("Time to a peer's last score, and scores after as much time", names, rows, left=4)


def grid_table(found):
    """Return the table of the gaps between the defaults and the best of the varied options."""
    rows = []
    for default in (summary for summary in found if summary.is_default and summary.runs and not summary.members):
        tried = [summary for summary in found if summary.varies(default) and summary.runs]
        if not tried:
            continue
        default_scores = {summary.name: default.score_after(summary.iterations) for summary in tried}
        scored = [summary for summary in tried if default_scores[summary.name] is not None]
        if not scored:
            continue
        gains = {summary.name: summary.median("score") - default_scores[summary.name] for summary in scored}
        best = max(scored, key=lambda summary: gains[summary.name])
        rows.append(
            [
                default.corpus, default.topics, default.name, len(scored), best.iterations,
                number_text(default_scores[best.name], 4), best.name, number_text(best.median("score"), 4),
                f"{gains[best.name]:+.4f}", "yes" if gains[best.name] <= SETTLED else "no",
            ]
        )  # fmt: skip
    names = ["corpus", "K", "family", "tried", "after", "defaults", "best of the grid", "its score", "gain",
             f"within {SETTLED:g}"]  # fmt: skip
    return Table("The defaults beside the best of a grid", names, rows)


def grid_rows_table(found):
    """Return the table of all varied options, each compared with the defaults after as many iterations."""
    rows = []
    for default in (summary for summary in found if summary.is_default and summary.runs and not summary.members):
        for summary in found:
            if not (summary.varies(default) and summary.runs):
                continue
            default_score = default.score_after(summary.iterations)
            gain = None if default_score is None else summary.median("score") - default_score
            cells = [
                summary.corpus,
                summary.topics,
                summary.name,
                summary.iterations,
                number_text(summary.median("score"), 4),
            ]
            rows.append([*cells, "-" if gain is None else f"{gain:+.4f}"])
    return Table("Options that were tried", ["corpus", "K", "options", "iterations", "score", "gain"], rows)


def about(records):
    """Return the corpora, the machine and the versions as text."""
    corpora = {record["corpus"]: record["sizes"] for record in records}
    lines = [
        f"{name}: {sizes['documents']:,} documents, {sizes['words']:,} words, {sizes['train']['tokens']:,} tokens to fit, "
        f"{sizes['test']['tokens']:,} held out."
        for name, sizes in corpora.items()
    ]
    for how in {
        str((record["machine"], record["workers"], record["scheduler"])): record for record in records
    }.values():
        versions = ", ".join(f"{name} {number}" for name, number in how["machine"]["versions"].items())
        machine = how["machine"]
        lines.append(
            f"{machine['cpu']}, {machine['cores']} cores, {machine['gigabytes']:.0f} GB; {how['workers']} cores for "
            f"each, ours on {how['scheduler']}; {versions}."
        )
    return "\n".join(lines)


def text(records):
    """Return all tables as Markdown."""
    found = summaries(records)
    tables = [ends_table(found), passing_table(found), grid_table(found), grid_rows_table(found)]
    failed = [
        f"{summary.corpus}, K={summary.topics}: {summary.name} failed: {summary.error}"
        for summary in found
        if summary.error
    ]
    parts = [
        "# Bench of shapes",
        about(records),
        *(table.text() for table in tables if table.rows),
        "\n".join(failed),
        NOTES,
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def write(records, out):
    """Write the tables, and the plots where matplotlib is installed."""
    if not records:
        raise SystemExit("error: the file has no results yet")
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(text(records), encoding="utf-8")
    names = draw(summaries(records), out) if can_draw() else []
    print(f"{out}: table.md{''.join(f', {name}' for name in names)}")
