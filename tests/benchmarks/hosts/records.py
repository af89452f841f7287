"""Records of the benchmark of hosts, with one file per cell, and the table of them."""

import json
import math
from dataclasses import asdict, dataclass

LATER = (10, 40)
"""Iterations whose traffic is averaged; earlier ones have more, as more counts change."""


@dataclass(frozen=True)
class Cell:
    """One fit of the benchmark: its hosts, and the speed of their links."""

    hosts: int
    """Worker hosts; 0 for threads of one process."""
    share: float
    """Share of a processor of each host."""
    megabits: float = 0.0
    """Rate of each link, in both directions; 0 without links."""
    loses: bool = False
    """Whether a host is lost in the middle."""

    @property
    def name(self):
        """The name of the cell and of its file."""
        place = f"{self.hosts}-hosts" if self.hosts else "threads"
        where = f"{place}-{self.share:g}-cores{f'-{self.megabits:g}-mbit' * bool(self.hosts)}"
        return f"{where}-loss" if self.loses else where

    @property
    def title(self):
        """The first columns of its row: executor, cores, and Mbit/s."""
        hosts = f"{self.hosts} host{'s' * (self.hosts > 1)}" if self.hosts else "threads"
        links = f"{self.megabits:g}" if self.hosts else ""
        return f"{hosts}{', one of them lost' * self.loses} | {self.share:g} | {links}"


def read(folder):
    """Return the records in a folder, by the names of their cells."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def write(folder, cell, settings, result):
    """Write the record of a cell."""
    folder.mkdir(parents=True, exist_ok=True)
    record = {"cell": asdict(cell), "settings": settings, **result}
    unfinished = folder / f".{cell.name}"
    unfinished.write_text(json.dumps(record, indent=1))
    unfinished.rename(folder / f"{cell.name}.json")
    return record


def busiest(before, after):
    """Return the largest number of bytes out of or into a host between two readings of the switch."""
    sums = {"out": {}, "in": {}}
    for (sender, receiver), count in after.items():
        moved = count - before.get((sender, receiver), 0)
        for direction, host in (("out", sender), ("in", receiver)):
            sums[direction][host] = sums[direction].get(host, 0) + moved
    return {direction: max(by_host.values(), default=0) for direction, by_host in sums.items()}


def seconds_per_iteration(record):
    """Return the mean seconds of an iteration after the first."""
    iterations = record["iterations"]
    first, last = iterations[0], iterations[-1]
    return (last["elapsed"] - first["elapsed"]) / max(last["iteration"] - first["iteration"], 1)


def traffic(record):
    """Return the bytes of the busiest link per iteration, in multiples of the rows' bytes.

    For each direction these are the largest of the first iterations, and the mean and the largest of the later ones.
    """
    found = {}
    rows = record["settings"]["words"] * record["settings"]["topics"] * 4
    for direction in ("out", "in"):
        by_iteration = {row["iteration"]: row[direction] / rows for row in record["iterations"] if direction in row}
        first = [value for number, value in by_iteration.items() if number < LATER[0]]
        later = [value for number, value in by_iteration.items() if LATER[0] <= number <= LATER[1]]
        mean = sum(later) / len(later) if later else math.nan
        found[direction] = max(first, default=math.nan), mean, max(later, default=math.nan)
    return found


def table(records):
    """Return the table of records in Markdown, and a line that says whether all have the same bits."""
    cells = {name: Cell(**record["cell"]) for name, record in records.items()}
    shown = [name for name in records if "error" not in records[name]]
    order = sorted(shown, key=lambda name: (cells[name].loses, cells[name].hosts, -cells[name].megabits, name))
    alone = {
        (cells[name].megabits, cells[name].share): seconds_per_iteration(records[name])
        for name in order
        if cells[name].hosts == 1 and not cells[name].loses
    }
    lines = [
        (
            "| | cores of each | Mbit/s | s per iteration | speed-up from one host | first iterations: out, in | "
            f"mean of {LATER[0]} to {LATER[1]}: out, in | largest of these: out, in | driver and scheduler, ms |"
        ),
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in order:
        cell, record = cells[name], records[name]
        seconds, first = seconds_per_iteration(record), alone.get((cell.megabits, cell.share))
        speed_up = f"{first / seconds:.2f}" if first and cell.hosts > 1 and not cell.loses else ""
        columns = zip(traffic(record)["out"], traffic(record)["in"], strict=True)
        moved = [f"{out:.2f}, {into:.2f}" if out == out else "" for out, into in columns]
        spent = record.get("driving")
        driving = "" if spent is None else f"{1000 * spent:.0f}"
        lines.append(f"| {cell.title} | {seconds:.3f} | {speed_up} | {' | '.join(moved)} | {driving} |")
    lines += ["", "Bytes are multiples of M, the bytes of all rows (words x topics x 4), through the busiest link.", ""]
    bits = {records[name]["bits"] for name in order}
    if len(order) < 2:
        lines.append("No two fits to compare.")
    elif len(bits) == 1:
        lines.append(f"All {len(order)} fits have the same model and the same figures in every iteration, bit for bit.")
    else:
        by_bits = [", ".join(name for name in order if records[name]["bits"] == digest) for digest in sorted(bits)]
        lines.append(f"The fits differ in their bits: {'; '.join(by_bits)}.")
    lines += [f"{name}: {records[name]['error']}" for name in records if name not in shown]
    return "\n".join([*lines, ""]), len(bits) <= 1
