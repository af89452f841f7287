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
        """Return the table, with columns that stand in line."""
        rows = [[str(value).replace("|", "/") for value in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(self.names, *rows, strict=True)]

        def line_of(row):
            cells = [cell.ljust(width) for cell, width in zip(row[: self.left], widths, strict=False)]
            cells += [cell.rjust(width) for cell, width in zip(row[self.left :], widths[self.left :], strict=True)]
            return f"| {' | '.join(cells)} |"

        rule = [f"{'-' * (width - 1)}{':' if n >= self.left else '-'}" for n, width in enumerate(widths)]
        return "\n".join([f"## {self.title}", "", *map(line_of, [self.names, rule, *rows])])


def seconds_text(value):
    """Return seconds with as many digits as mean something; ``never`` for infinity, a dash for None."""
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
    for one in found:
        estimate, peak = one.median("estimated_megabytes"), one.median("megabytes")
        ratio = number_text(estimate / peak, 2) if estimate and peak else "-"
        single = None if one.members else one.median("score")
        speed = one.median("tokens_a_second")
        rows.append(
            [
                one.corpus, one.topics, one.name, one.iterations_text, seconds_text(one.median("seconds")),
                number_text(single, 4), number_text(one.median("averaged"), 4),
                number_text(speed and speed / 1e6, 2), number_text(peak, 0), number_text(estimate, 0), ratio,
            ]
        )  # fmt: skip
    names = ["corpus", "K", "contestant", "iterations", "seconds", "score", "averaged", "Mtokens/s", "peak MB",
             "estimate MB", "estimate / peak"]  # fmt: skip
    return Table("Scores, speed and memory", names, rows)


def passing_table(found):
    """Return the table of when ours pass each peer's last score, and where they are after as much time."""
    rows = []
    for peer in (one for one in found if not one.ours and one.runs):
        score, theirs, averaged = (peer.median(name) for name in ("score", "seconds", "averaged"))
        for ours in (one for one in found if one.is_default and one.group == peer.group and one.runs):
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
    """Return the table of how far the defaults are from the best of the options that were tried."""
    rows = []
    for default in (one for one in found if one.is_default and one.runs and not one.members):
        tried = [one for one in found if one.varies(default) and one.runs]
        if not tried:
            continue
        own = {one.name: default.score_after(one.iterations) for one in tried}
        scored = [one for one in tried if own[one.name] is not None]
        if not scored:
            continue
        gains = {one.name: one.median("score") - own[one.name] for one in scored}
        best = max(scored, key=lambda one: gains[one.name])
        rows.append(
            [
                default.corpus, default.topics, default.name, len(scored), best.iterations,
                number_text(own[best.name], 4), best.name, number_text(best.median("score"), 4),
                f"{gains[best.name]:+.4f}", "yes" if gains[best.name] <= SETTLED else "no",
            ]
        )  # fmt: skip
    names = ["corpus", "K", "family", "tried", "after", "defaults", "best of the grid", "its score", "gain",
             f"within {SETTLED:g}"]  # fmt: skip
    return Table("The defaults beside the best of a grid", names, rows)


def grid_rows_table(found):
    """Return the table of all options that were tried, each beside the defaults after as many iterations."""
    rows = []
    for default in (one for one in found if one.is_default and one.runs and not one.members):
        for one in found:
            if not (one.varies(default) and one.runs):
                continue
            own = default.score_after(one.iterations)
            gain = None if own is None else one.median("score") - own
            cells = [one.corpus, one.topics, one.name, one.iterations, number_text(one.median("score"), 4)]
            rows.append([*cells, "-" if gain is None else f"{gain:+.4f}"])
    return Table("Options that were tried", ["corpus", "K", "options", "iterations", "score", "gain"], rows)


def about(records):
    """Return the corpora, the machine and the versions as text."""
    corpora = {one["corpus"]: one["sizes"] for one in records}
    lines = [
        f"{name}: {sizes['documents']:,} documents, {sizes['words']:,} words, {sizes['train']['tokens']:,} tokens to fit, "
        f"{sizes['test']['tokens']:,} held out."
        for name, sizes in corpora.items()
    ]
    for how in {str((one["machine"], one["workers"], one["scheduler"])): one for one in records}.values():
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
    failed = [f"{one.corpus}, K={one.topics}: {one.name} failed: {one.error}" for one in found if one.error]
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
