"""Reproducible results: `make results`, or `python -m tests.benchmarks.results run OUT --parts truth,peers`.

`run` makes corpora, fits each contestant in a separate process, with one seed after another, and appends their records
to OUT/results.jsonl, so that an interrupted command can be continued. `report` writes the tables and figures of the
page from a file of results, and reports where the order of the contestants differs from the published one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from collapsium.storage.errors import CollapsiumError
from tests.benchmarks.comparison.base import ONE_THREAD
from tests.benchmarks.comparison.libraries import LIBRARIES, PEERS, installed
from tests.benchmarks.machine import machine
from tests.benchmarks.processes import watch
from tests.benchmarks.results import cells, commands, report, scale
from tests.benchmarks.results.corpora import prepare
from tests.benchmarks.results.plan import CONTESTANTS, CORPORA, SEEDS, Contestant, Corpus
from tests.benchmarks.shapes.records import append, read

VERSIONS = ("collapsium", "numpy", "numba", "scipy", *PEERS)
LIMIT = 7200.0
"""Seconds after which the fits of a contestant to a corpus are ended."""
PARTS = ("truth", "peers", "cells", "scale", "commands")


def names_of(text: str) -> tuple[str, ...]:
    """Read names with commas or spaces between them."""
    return tuple(text.replace(",", " ").split())


class Results:
    """The file of results, to which a session adds its records."""

    def __init__(self, path: Path) -> None:
        self.path, self.records = path, read(path)
        self._session: str | None = None

    def has(self, key: list[object]) -> bool:
        """Return whether there is a record with this key."""
        return any(record["key"] == key for record in self.records)

    def add(self, key: list[object], result: dict[str, object]) -> None:
        """Append a record, with the session in which it was measured."""
        if self._session is None:
            self._session = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            commit = subprocess.run(
                ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
            )
            about = {"commit": commit.stdout.strip(), "machine": machine(VERSIONS)}
            self._write({"key": ["session", self._session], **about})
        self._write({"key": key, "session": self._session, **result})

    def _write(self, record: dict[str, object]) -> None:
        append(self.path, record)
        self.records.append(record)


def run_fits(part: str, out: Path, results: Results, arguments: argparse.Namespace) -> None:
    """Fit the contestants of a part to its corpora."""
    for corpus in (known for known in CORPORA if known.part == part):
        if arguments.corpora and corpus.name not in arguments.corpora:
            continue
        prepared = prepare(corpus, out / "corpora", arguments.sources)
        if prepared is None:
            print(f"{corpus.name}: left out, as {corpus.source} is not among the sources (SOURCES=...)", flush=True)
            continue
        sizes = prepared.sizes()
        if not results.has([part, corpus.name]):
            results.add([part, corpus.name], {"about": corpus.about, "topics": corpus.topics, **sizes})
        for contestant in (known for known in CONTESTANTS if part in known.parts):
            if arguments.contestants and contestant.name not in arguments.contestants:
                continue
            if contestant.peer and not installed(LIBRARIES[contestant.peer].module):
                print(f"{contestant.name} is not installed: left out", flush=True)
                continue
            run_seeds(part, corpus, contestant, prepared.arguments(), results)


def run_seeds(
    part: str, corpus: Corpus, contestant: Contestant, files: dict[str, str | None], results: Results
) -> None:
    """Fit a contestant with all seeds; record each, and the stability of topics between them."""
    key = [part, corpus.name, contestant.name]
    if results.has([*key, "stability"]):
        return
    arguments = {
        **files,
        "family": contestant.family,
        "peer": contestant.peer,
        "options": contestant.options,
        "topics": corpus.topics,
        "iterations": contestant.iterations,
        "seeds": list(range(1, SEEDS + 1)),
    }
    seen = watch([sys.executable, "-m", "tests.benchmarks.results.fit", json.dumps(arguments)], LIMIT, ONE_THREAD)
    title = f"{corpus.name}, {contestant.name}"
    if seen.error:
        print(f"{title}: failed: {seen.error}", flush=True)
        return
    for line in seen.lines:
        results.add([*key, line.pop("seed", "stability")], line)
    scores = ", ".join(f"{line['score']}" for line in seen.lines if "score" in line)
    print(f"{title}: {scores}; {seen.seconds:.0f} s", flush=True)


def parser_of() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.results",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_subparsers(dest="command", required=True)
    command = which.add_parser("run", help="measure what OUT/results.jsonl does not have yet")
    command.add_argument("out", type=Path, help="folder of the results, corpora and topics")
    command.add_argument("--parts", type=names_of, default=PARTS, help=f"default: {','.join(PARTS)}")
    command.add_argument("--sources", type=Path, help="folder of public corpora; without it, they are left out")
    command.add_argument(
        "--corpora", type=lambda text: text.split(","), help="some corpora alone, as `10 flat,AG News`"
    )
    command.add_argument("--contestants", type=names_of, help="some contestants alone")
    command = which.add_parser("report", help="write tables and figures")
    command.add_argument("results", type=Path, help="file of results")
    command.add_argument("page", type=Path, help="page whose tables are written")
    command.add_argument("--figures", type=Path, help="folder of the figures")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Read the command line, and run the command."""
    parsed = parser_of().parse_args(arguments)
    if parsed.command == "report":
        report.write(read(parsed.results), parsed.page, parsed.figures)
        return
    for part in parsed.parts:
        if part not in PARTS:
            raise SystemExit(f"error: no part {part!r}; there are {', '.join(PARTS)}")
    results = Results(parsed.out / "results.jsonl")
    try:
        for part in parsed.parts:
            if part == "commands":
                commands.run(parsed.out, results)
            elif part == "scale":
                scale.run(parsed.out, results)
            elif part == "cells":
                cells.run(parsed.out, results)
            else:
                run_fits(part, parsed.out, results, parsed)
    except CollapsiumError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main(sys.argv[1:])
