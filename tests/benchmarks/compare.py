"""Our fits beside other libraries', in one run: a table and a plot of score against time.

Each round runs every contestant once, one after another, and the next round in the opposite order, so that the noise of
a shared machine falls on all alike; what is told are medians over the rounds. Ours is the command `collapsium fit`. A
peer is what is installed of tomotopy, topica, gensim and scikit-learn, run by its own Python calls.

All scores are one definition, document completion: the mean over held-out tokens of log sum_k theta_dk phi_kw, in
nats, higher being better. The table says what its seconds and its megabytes are.
"""

import argparse
import contextlib
import json
import math
import os
import selectors
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from collapsium.storage.errors import CollapsiumError
from tests.benchmarks import table
from tests.benchmarks.peers import LIBRARIES, PEERS, RESTARTS, Data, installed

EVERY = 0.05  # seconds between two samples of memory
COMMAND = Path(sysconfig.get_path("scripts")) / "collapsium"
FAMILIES = ("lda", "hdp")
ITERATIONS = "100,tomotopy=500,topica=50,gensim=20,scikit-learn=20"
VERSIONS = ("collapsium", "numpy", "numba", "distributed", *PEERS)
# The peers spread their work over processes or threads of their own; were each of these to start a pool of BLAS
# threads, they would stand in one another's way.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
EXAMPLES = """examples:
  python -m tests.benchmarks.compare            a synthetic corpus, all peers that are installed
  python -m tests.benchmarks.compare --train train --heldout heldout --topics 120 --rounds 5
  python -m tests.benchmarks.compare --peers tomotopy --families lda --iterations 100,tomotopy=1000

`collapsium split CORPUS TRAIN HELDOUT` makes the two folders of a corpus.
`python -m tests.benchmarks.table FOLDER` draws the table and the plot again from FOLDER/results.json."""


@dataclass
class Watched:
    """What was seen of a command while it ran: its start (since the epoch), seconds, peak, lines of JSON, error."""

    began: float
    seconds: float = 0.0
    megabytes: float = 0.0
    lines: list = field(default_factory=list)
    error: str = ""


def tree(process):
    """Return a process and all that came of it; nothing, if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process, *process.children(recursive=True)]
    return []


def memory(process):
    """Return the resident megabytes of a process and all that came of it."""
    total = 0
    for one in tree(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += one.memory_info().rss
    return total / 2**20


def end(process):
    """End a process that we started, and all that came of it."""
    for one in tree(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()


def watch(command, limit, environment=None, always=True):
    """Run a command, and watch what it prints and how much memory it takes.

    Parameters
    ----------
    command : sequence of str
        The command and its arguments.
    limit : float
        Seconds after which it is ended.
    environment : dict, optional
        Variables to set over ours.
    always : bool, optional
        Watch memory from beginning to end; otherwise from each line with the state `fitting` to the next other.

    Returns
    -------
    Watched
        With an error, if it failed; what it printed before is there all the same.
    """
    seen, clock = Watched(time.time()), time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = psutil.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **(environment or {})},
        )
        try:
            whole = _follow(process, seen, clock + limit, always)
            code = process.wait() if whole else None
            seen.seconds = time.perf_counter() - clock
        finally:
            end(process)
            process.stdout.close()
        if not whole:
            seen.error = f"took more than {limit:g} s"
        elif code:
            errors.seek(0)
            said = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
            seen.error = said[-1][:200] if said else f"ended with code {code}"
    return seen


def _follow(process, seen, deadline, always):
    """Read lines and sample memory until the output ends; return False if that is not before the deadline."""
    wanted, rest, due = always, b"", 0.0
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            ready = selector.select(timeout=EVERY)
            if wanted and (ready or time.perf_counter() >= due):
                # Also when a line has come: it may say that there is nothing more to watch.
                seen.megabytes = max(seen.megabytes, memory(process))
                due = time.perf_counter() + EVERY
            if time.perf_counter() > deadline:
                return False
            if not ready:
                continue
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                return True
            *lines, rest = (rest + data).split(b"\n")
            for line in filter(None, map(_parsed, lines)):
                if "state" in line:
                    wanted = always or line["state"] == "fitting"
                else:
                    seen.lines.append(line)


def _parsed(line):
    """Return what a line says; nothing, if it is no record: a library may print to the same output."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


@dataclass(frozen=True)
class Contestant:
    """Who takes part, a family of ours or a peer; its iterations, and the options that all are given."""

    name: str
    iterations: int
    given: argparse.Namespace

    @property
    def ours(self):
        """Whether it is a family of ours."""
        return self.name not in PEERS

    @property
    def who(self):
        """The name that the table has."""
        return f"collapsium {self.name}" if self.ours else self.name

    def run(self, number, place):
        """Run once; return the record of `results.json`."""
        seed = self.given.seed + number
        record = self._fit(seed, place) if self.ours else self._call(seed, place, self.name in RESTARTS and number > 0)
        points = record["points"]
        if not record["error"] and not (points and all(math.isfinite(point["score"]) for point in points)):
            record["error"] = "no finite score"
        last = points[-1] if points else {}
        return {
            "who": self.who,
            "ours": self.ours,
            "round": number + 1,
            "seed": seed,
            "asked_iterations": self.iterations,
            "seconds": last.get("seconds"),
            "score": last.get("score"),
            **record,
        }

    def _options(self, seed):
        given = self.given
        options = {"topics": given.topics, "iterations": self.iterations, "workers": given.workers, "seed": seed}
        priors = {"beta": given.beta} | ({} if self.name == "hdp" else {"alpha": given.alpha})  # hdp learns its own
        return [f"--{name}={value}" for name, value in (options | priors).items()]

    def _fit(self, seed, place):
        out, given = place / f"{self.name}-{seed}", self.given
        words = [COMMAND, "fit", given.train, out, "--family", self.name, "--heldout", given.heldout, "--quiet"]
        seen = watch([*words, *self._options(seed)], given.limit)
        events = _events(out)
        told = {name: event[name] for event in events for name in ("start_seconds", "compile_seconds") if name in event}
        # A run's record is written when all is loaded and compiled, and the clock of the fit starts.
        record = out / "run.json"
        startup = record.stat().st_mtime - seen.began if record.exists() else None
        shutil.rmtree(out, ignore_errors=True)
        scored = [event for event in events if event["event"] == "iteration" and "score" in event]
        points = _points(scored, "iteration", "elapsed")
        times = {"startup_seconds": startup, "command_seconds": seen.seconds, **told}
        return {"points": points, **times, "megabytes": seen.megabytes, "error": seen.error}

    def _call(self, seed, place, last):
        words = [sys.executable, "-m", "tests.benchmarks.peers", self.name, place / "train.npz", place / "heldout.npz"]
        options = [*self._options(seed), *(["--last"] if last else [])]
        seen = watch([*words, *options], self.given.limit, ONE_THREAD, always=False)
        points = _points(seen.lines, "iterations", "seconds")
        return {"points": points, "megabytes": seen.megabytes, "error": seen.error}


def _points(lines, iteration, seconds):
    """Return where a fit stood when, from lines that have these by other names."""
    return [{"iteration": line[iteration], "seconds": line[seconds], "score": line["score"]} for line in lines]


def _events(run):
    """Read a run's events, without a last line that was cut short."""
    path = run / "events.jsonl"
    return list(filter(None, map(_parsed, path.read_bytes().split(b"\n")))) if path.exists() else []


def iterations_of(text):
    """Read `100,tomotopy=500`, a number for all and others by name, as iterations by contestant."""
    found = dict.fromkeys((*FAMILIES, *PEERS), 0)
    for part in sorted(text.split(","), key=lambda part: "=" in part):
        name, equals, number = part.rpartition("=")
        if not number.strip().isdecimal() or int(number) < 1:
            raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, found {number!r}")
        if equals and name not in found:
            raise argparse.ArgumentTypeError(f"no contestant {name!r}; there are {', '.join(found)}")
        found.update({name: int(number)} if equals else dict.fromkeys(found, int(number)))
    if not all(found.values()):
        raise argparse.ArgumentTypeError("expected a number for all first, such as 100,tomotopy=500")
    return found


def some_of(known):
    """Return a reader of names with commas between, each one of those known; an empty text is none of them."""

    def read(text):
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"no {name!r}; there are {', '.join(known)}")
        return list(dict.fromkeys(names))

    return read


def parser_of():
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.compare",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    corpus = parser.add_argument_group("the corpus; by default one is drawn from LDA's own model")
    corpus.add_argument("--train", metavar="CORPUS", help="training tokens")
    corpus.add_argument("--heldout", metavar="CORPUS", help="held-out tokens of the same documents")
    corpus.add_argument("--documents", type=int, default=2000, metavar="D", help="documents to draw (default: 2000)")
    corpus.add_argument("--words", type=int, default=5000, metavar="W", help="vocabulary to draw (default: 5000)")
    corpus.add_argument("--tokens", type=int, default=150, metavar="N", help="tokens of a document (default: 150)")
    fit = parser.add_argument_group("the fits")
    fit.add_argument("--topics", type=int, default=100, metavar="K", help="topics (default: 100)")
    fit.add_argument(
        "--iterations",
        type=iterations_of,
        default=ITERATIONS,
        metavar="N[,NAME=N...]",
        help=f"for all, and others for some: an iteration of one is not worth one of another (default: {ITERATIONS})",
    )
    fit.add_argument(
        "--alpha", type=float, default=0.1, metavar="X", help="of each topic; hdp learns it (default: 0.1)"
    )
    fit.add_argument("--beta", type=float, default=100.0, metavar="X", help="of a topic over all words (default: 100)")
    fit.add_argument("--workers", type=int, default=2, metavar="N", help="cores for each (default: 2)")
    fit.add_argument("--seed", type=int, default=1, metavar="S", help="of the first round; then one up (default: 1)")
    who = parser.add_argument_group("who, and how often")
    names = ",".join(PEERS)
    who.add_argument("--peers", type=some_of(PEERS), default=names, metavar="NAMES", help=f"default: {names}")
    families = ",".join(FAMILIES)
    who.add_argument(
        "--families", type=some_of(FAMILIES), default=families, metavar="NAMES", help=f"default: {families}"
    )
    who.add_argument("--rounds", type=int, default=3, metavar="N", help="how often each runs (default: 3)")
    who.add_argument("--limit", type=float, default=3600, metavar="S", help="seconds for one run (default: 3600)")
    who.add_argument("--out", type=Path, default=Path("build/bench"), metavar="FOLDER", help="default: build/bench")
    return parser


def command(*words):
    """Run a command of ours that is not timed."""
    done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip() or f"collapsium {words[0]} ended with code {done.returncode}")


def draw(place, documents, words, tokens, topics, seed):
    """Draw a corpus and split it; return the folders of the two parts."""
    whole, train, heldout = place / "whole", place / "train", place / "heldout"
    sizes = {"documents": documents, "words": words, "tokens": tokens, "topics": topics, "seed": seed}
    command("simulate", whole, "--family", "lda", *(f"--{name}={value}" for name, value in sizes.items()))
    command("split", whole, train, heldout)
    return train, heldout


def warm_up(place, families, workers):
    """Fit something tiny with each family, so that its kernels are compiled and lie in the cache."""
    place.mkdir()
    train, heldout = draw(place, 40, 50, 20, 4, 0)
    for family in families:
        sizes = ["--topics=4", "--iterations=2", f"--workers={workers}", "--quiet"]
        command("fit", train, place / family, "--family", family, "--heldout", heldout, *sizes)


def compare(given, contestants, place):
    """Run all rounds; the results are written after each."""
    train, heldout = Data.read(given.train), Data.read(given.heldout)
    train.save(place / "train.npz")
    heldout.save(place / "heldout.npz")
    sizes = {"documents": len(train.documents()), "words": train.size, "tokens": int(train.counts.sum())}
    names = ("topics", "alpha", "beta", "workers", "seed", "rounds")
    results = {
        "machine": table.machine(VERSIONS),
        "corpus": {"drawn": given.drawn, **sizes, "heldout_tokens": int(heldout.counts.sum())},
        "options": {name: getattr(given, name) for name in names},
        "left_out": given.left_out,
        "runs": [],
    }
    del train, heldout
    for number in range(given.rounds):
        for one in contestants[:: -1 if number % 2 else 1]:
            record = one.run(number, place)
            results["runs"].append(record)
            print(f"round {number + 1} of {given.rounds}: {table.line(record)}", flush=True)
        table.write(results, given.out)
    return results


def main(argv=None):
    """Read the command line, make what is needed, compare; return the exit code."""
    parser = parser_of()
    given = parser.parse_args(argv)
    for name in ("documents", "words", "tokens", "topics", "workers", "rounds"):
        if getattr(given, name) < 1:
            parser.error(f"--{name}: expected a whole number from 1 up, found {getattr(given, name)}")
    if (given.train is None) != (given.heldout is None):
        parser.error("--train and --heldout come together: `collapsium split CORPUS TRAIN HELDOUT` makes both")
    given.left_out = [name for name in given.peers if not installed(LIBRARIES[name].module)]
    for name in given.left_out:
        print(f"{name} is not installed and left out; `pip install '.[bench]'` installs all peers")
    names = [*given.families, *(name for name in given.peers if name not in given.left_out)]
    contestants = [Contestant(name, given.iterations[name], given) for name in names]
    if not contestants:
        parser.error("nobody is left to compare")
    with tempfile.TemporaryDirectory(prefix="collapsium-bench-") as folder:
        place = Path(folder)
        given.drawn = given.train is None
        if given.drawn:
            print("drawing a corpus", flush=True)
            given.train, given.heldout = draw(
                place, given.documents, given.words, given.tokens, given.topics, given.seed
            )
        warm_up(place / "tiny", given.families, given.workers)
        try:
            results = compare(given, contestants, place)
        except CollapsiumError as error:
            raise SystemExit(f"error: {error}") from None
    pictures = "score-over-time.png and .svg" if table.can_draw() else "and no plot, as matplotlib is not installed"
    print(f"\n{table.text(results)}\n{given.out}: results.json, table.md, {pictures}")
    return int(any(run["ours"] and run["error"] for run in results["runs"]))


if __name__ == "__main__":
    sys.exit(main())
