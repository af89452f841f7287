"""The bench of shapes: our fits and other libraries' on corpora of all shapes, by one score.

    python -m tests.benchmarks.shapes prepare CORPORA --sources FOLDER
    python -m tests.benchmarks.shapes run CORPORA RESULTS.jsonl
    python -m tests.benchmarks.shapes report RESULTS.jsonl OUT

`prepare` makes the corpora from public files, splits them by tokens, and draws the simulated one. `run` runs the cells
of a grid one after another. Each is appended to the results as it is done, so that a command that was interrupted goes on
where it was. `report` makes tables and plots of the results, at any time.

All scores are one definition, document completion: the mean over held-out tokens of log sum_k theta_dk phi_kw, in nats,
higher being better.
"""

import argparse
import itertools
import json
import tempfile
import time
import tomllib
from pathlib import Path

from collapsium.storage.errors import CollapsiumError
from tests.benchmarks.machine import machine
from tests.benchmarks.peers import PEERS
from tests.benchmarks.processes import TOO_LONG
from tests.benchmarks.shapes import report
from tests.benchmarks.shapes.corpora import SHAPES, measures, part_of, prepare
from tests.benchmarks.shapes.fits import LeftOutError, Setting, command
from tests.benchmarks.shapes.grid import DEFAULT, Choice, Grid, cells_of, with_settings, with_varied
from tests.benchmarks.shapes.records import append, read

VERSIONS = ("collapsium", "numpy", "numba", "distributed", *PEERS)
SIX = tuple(name for name in SHAPES if name not in ("small", "large"))


def names_of(text):
    """Read names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def numbers_of(text):
    """Read whole numbers with commas between them."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected whole numbers with commas between, found {text!r}") from None


def varied_of(text):
    """Read `alpha=[0.03, 0.1]`, an option and its values."""
    try:
        (option,) = tomllib.loads(text).items()
    except (ValueError, tomllib.TOMLDecodeError):
        option = ("", None)
    if not isinstance(option[1], list):
        raise argparse.ArgumentTypeError(f"expected OPTION=[VALUE, ...], found {text!r}")
    return option


def parser_of():
    """Return the parser of the command line."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.shapes", description=__doc__, formatter_class=formatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    parser_of_command = commands.add_parser("prepare", help="make the corpora")
    parser_of_command.add_argument("corpora", type=Path, help="folder of the corpora, NAME-train and NAME-test")
    parser_of_command.add_argument(
        "--sources", type=Path, help="folder of the public files; without it, only drawn corpora are made"
    )
    parser_of_command.add_argument(
        "--corpora", dest="names", type=names_of, default=SIX, help=f"default: {','.join(SIX)}"
    )
    parser_of_command = commands.add_parser("run", help="run the cells of a grid that are not done")
    parser_of_command.add_argument("corpora", type=Path, help="folder of the corpora, NAME-train and NAME-test")
    parser_of_command.add_argument(
        "results", type=Path, help="file of results, JSON lines, to which records are appended"
    )
    parser_of_command.add_argument("--grid", type=Path, default=DEFAULT, help="TOML file (default: %(default)s)")
    parser_of_command.add_argument(
        "--corpora", dest="names", type=names_of, default=(), help="some of the corpora (default: all there)"
    )
    parser_of_command.add_argument(
        "--topics", type=numbers_of, default=(), help="some numbers of topics (default: the grid's)"
    )
    parser_of_command.add_argument(
        "--contestants",
        type=names_of,
        default=(),
        metavar="NAME,...",
        help="some contestants, or patterns such as 'lda*'",
    )
    parser_of_command.add_argument(
        "--vary", type=varied_of, action="append", default=[], metavar="OPTION=[VALUE,...]",
        help="with one contestant: all combinations of these values, instead of the grid's blocks",
    )  # fmt: skip
    parser_of_command.add_argument("--iterations", type=int, help="of all, for a trial (default: the grid's)")
    parser_of_command.add_argument("--rounds", type=int, help="how often each cell is run (default: the grid's)")
    parser_of_command.add_argument("--limit", type=float, help="seconds of one fit (default: the grid's)")
    parser_of_command.add_argument("--workers", type=int, default=2, help="cores for each (default: 2)")
    parser_of_command.add_argument("--scheduler", default="threads", help="of our fits (default: threads)")
    parser_of_command.add_argument("--seed", type=int, default=1, help="of the first round; then one up (default: 1)")
    parser_of_command.add_argument("--dry-run", action="store_true", help="list the cells that are to be run")
    parser_of_command = commands.add_parser("report", help="make tables and plots")
    parser_of_command.add_argument("results", type=Path)
    parser_of_command.add_argument("out", type=Path, help="folder of the tables and plots")
    return parser


def warm_up(place, setting, families):
    """Fit something tiny with each family, so that its kernels are compiled and cached.

    Compiling takes more memory than fits of small corpora do, which would be taken for theirs.
    """
    if not families:
        return
    # With few topics, fits of long documents begin from clusters of words, fits of short ones from clusters of documents.
    # Fits of the long ones have tokens enough to search for the temperature. With 100 iterations, `hdp` moves
    # topics.
    for kind, tokens in (("short", 20), ("long", 400)):
        corpus, train, heldout = (place / f"tiny-{kind}{part}" for part in ("", "-train", "-test"))
        sizes = ["--topics=4", "--documents=80", "--words=400", f"--tokens={tokens}"]
        command("simulate", corpus, "--family", "lda", *sizes)
        command("split", corpus, train, heldout)
        limits = ["--iterations=100", "--heldout", heldout, f"--workers={setting.workers}", "--quiet"]
        for family, topics in itertools.product(families, (4, 200)):
            run = place / f"tiny-{kind}-{family}-{topics}"
            command("fit", train, run, "--family", family, f"--topics={topics}", *limits)


def run(arguments):
    """Run the cells that have no record yet."""
    grid = with_settings(Grid.read(arguments.grid), arguments.rounds, arguments.limit, arguments.iterations)
    if arguments.vary:
        grid = with_varied(grid, ",".join(arguments.contestants), dict(arguments.vary))
        arguments.contestants = ()
    present = [name for name in _names(arguments.corpora) if not arguments.names or name in arguments.names]
    for name in arguments.names:
        if name not in present:
            raise SystemExit(f"error: {arguments.corpora}: no {name}-train and {name}-test; `prepare` makes corpora")
    cells = cells_of(grid, present, Choice(arguments.names, arguments.topics, arguments.contestants))
    if not cells:
        raise SystemExit("error: the grid has no such cells, or the folder no corpora")
    with tempfile.TemporaryDirectory(prefix="collapsium-bench-") as folder:
        place = Path(folder)
        setting = Setting(arguments.corpora, place, arguments.workers, arguments.scheduler, grid.limit, arguments.seed)
        sizes = {name: measures(arguments.corpora, name, place) for name in {cell.corpus: 0 for cell in cells}}
        how = {"workers": arguments.workers, "scheduler": arguments.scheduler, "machine": machine(VERSIONS)}
        records = read(arguments.results)
        # A fit that failed is run again, but for one that took too long.
        done = {
            json.dumps(record["key"])
            for record in records
            if not record["error"] or record["error"].startswith(TOO_LONG)
        }

        def key_of(cell):
            return cell.key(sizes[cell.corpus]["train"]["digest"])

        left = [cell for cell in cells if json.dumps(key_of(cell)) not in done]
        print(f"{len(left)} of {len(cells)} cells to run", flush=True)
        if arguments.dry_run:
            for cell in left:
                print(f"{cell.corpus}, K={cell.topics}: {cell.name}, round {cell.number + 1}")
            return
        warm_up(place, setting, sorted({cell.contestant.family for cell in left if cell.ours}))
        for number, cell in enumerate(left):
            same = [record for record in records if record["corpus"] == cell.corpus and record["topics"] == cell.topics]
            began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            title = f"{number + 1}/{len(left)} {cell.corpus}, K={cell.topics}: {cell.name}"
            try:
                result = setting.run(cell, sizes[cell.corpus]["train"]["tokens"], same)
            except LeftOutError as error:
                print(f"{title}: left out: {error}", flush=True)
                continue
            record = {
                "key": key_of(cell),
                "corpus": cell.corpus,
                "topics": cell.topics,
                "contestant": cell.name,
                "ours": cell.ours,
                "round": cell.number + 1,
                "options": cell.contestant.options,
                "family": cell.contestant.family,
                "ensemble_of": cell.contestant.of,
                "began": began,
                "sizes": sizes[cell.corpus],
                **how,
                **result,
            }
            append(arguments.results, record)
            records.append(record)
            print(f"{title}: {report.line(record)}", flush=True)


def _names(folder):
    """Return the names of the corpora in a folder, the bench's first."""
    names = sorted(path.name.removesuffix("-train") for path in folder.glob("*-train"))
    names = [name for name in names if part_of(folder, name, "test").exists()]
    return sorted(names, key=lambda name: (list(SHAPES).index(name) if name in SHAPES else len(SHAPES), name))


def main(arguments=None):
    """Read the command line, and run the command."""
    arguments = parser_of().parse_args(arguments)
    try:
        if arguments.command == "prepare":
            unknown = [name for name in arguments.names if name not in SHAPES]
            if unknown:
                raise SystemExit(f"error: no corpus {unknown[0]!r}; there are {', '.join(SHAPES)}")
            prepare(arguments.sources, arguments.corpora, arguments.names)
        elif arguments.command == "run":
            run(arguments)
        else:
            report.write(read(arguments.results), arguments.out)
    except (CollapsiumError, LeftOutError) as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
