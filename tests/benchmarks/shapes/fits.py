"""Fits of the bench of shapes: a family's by its command, an ensemble's, and a peer's, each with its record."""

import json
import math
import shutil
import statistics
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collapsium.storage.runs.run import EVENTS, JOURNAL, MEMBERS
from tests.benchmarks.peers import LIBRARIES, RESTARTS, installed
from tests.benchmarks.processes import parsed, watch
from tests.benchmarks.shapes.corpora import part_of
from tests.benchmarks.shapes.grid import flag_value

COMMAND = Path(sysconfig.get_path("scripts")) / "collapsium"
# The other libraries use processes or threads themselves; if each of these started a pool of BLAS threads, they would
# # compete for cores.
# threads, they would stand in one another's way.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class EnsemblePlan:
    """How an ensemble is fitted within another's time."""

    most_members: int = 8
    least_iterations: int = 40
    """Iterations after which a fit's score has come near its end."""
    share: float = 0.8
    """Share of the time that is planned for, as the speed of a shared machine changes."""

    def plan(self, seconds, fit, saving=0.0):
        """Return members and the iterations of each: as many members as get the least iterations, at least two.

        Parameters
        ----------
        seconds : float
            The time.
        fit : sequence of (int, float)
            Iterations of a fit by itself and the seconds until their ends; first iterations take longer than later ones.
        saving : float
            Seconds in which a fit writes its last checkpoint and its model.
        """
        iterations, ends = zip(*fit, strict=True)
        for members in range(self.most_members, 1, -1):
            member_iterations = int(np.interp(self.share * seconds / members - saving, ends, iterations))
            if member_iterations >= self.least_iterations:
                break
        return members, member_iterations


PLAN = EnsemblePlan()


class LeftOutError(Exception):
    """A cell cannot be run, for the reason in the text."""


def command(*words):
    """Run a command of Collapsium that is not timed; return its output."""
    done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        errors = done.stderr.strip().splitlines()
        raise LeftOutError(errors[-1] if errors else f"collapsium {words[0]} ended with code {done.returncode}")
    return done.stdout


@dataclass(frozen=True)
class Setting:
    """Where and how cells are run.

    Attributes
    ----------
    corpora : Path
        Folder of the corpora.
    place : Path
        Folder for files of this command, with the parts of the corpora as arrays.
    workers : int
        Cores for each.
    scheduler : str
        Scheduler of our fits.
    limit : float
        Seconds after which a fit is ended.
    seed : int
        Seed of the first round.
    """

    corpora: Path
    place: Path
    workers: int
    scheduler: str
    limit: float
    seed: int

    def run(self, cell, tokens, records):
        """Run a cell.

        Parameters
        ----------
        cell : Cell
            It.
        tokens : int
            Training tokens of its corpus.
        records : sequence of dict
            The records so far, with the records of the same corpus and number of topics that an ensemble needs.

        Returns
        -------
        dict
            Points of score against time, seconds, scores, speed, memory and error.

        Raises
        ------
        LeftOutError
            It cannot be run.
        """
        if not cell.ours:
            record = self._peer(cell)
        elif cell.contestant.within:
            record = self._ensemble(cell, records)
        else:
            record = self._family(cell)
        points = record["points"]
        if not record["error"] and not (points and all(math.isfinite(point["score"]) for point in points)):
            record["error"] = "no finite score"
        last = points[-1] if points else {}
        record = {"seconds": last.get("seconds"), "score": last.get("score"), "averaged": None, **record}
        seconds = record.get("iteration_seconds")
        return {**record, "tokens_a_second": tokens / seconds if seconds else None}

    def _options(self, cell):
        options = {"topics": cell.topics, "workers": self.workers, "seed": self.seed + cell.number}
        return [f"--{name}={value}" for name, value in options.items()]

    def _peer(self, cell):
        contestant, peer = cell.contestant, cell.contestant.peer
        if not installed(LIBRARIES[peer].module):
            raise LeftOutError(f"{peer} is not installed; `pip install '.[bench]'` installs all peers")
        files = [self.place / f"{cell.corpus}-{part}.npz" for part in ("train", "test")]
        words = [sys.executable, "-m", "tests.benchmarks.peers", peer, *files, *self._options(cell)]
        sampling = {"samples": contestant.samples, "sample_every": contestant.sample_every}
        options = {
            "iterations": contestant.iterations,
            **(sampling if contestant.samples else {}),
            **contestant.options,
        }
        words += [f"--{name.replace('_', '-')}={flag_value(value)}" for name, value in options.items()]
        # A library whose longer fits start afresh is scored at the end only, which costs a single fit.
        words += ["--last"] if peer in RESTARTS else []
        seen = watch(words, self.limit, ONE_THREAD, always=False)
        points = _points(seen.lines, "iterations", "seconds")
        averaged = seen.lines[-1].get("averaged") if seen.lines else None
        speed = points[-1]["seconds"] / points[-1]["iteration"] if points else None
        record = {"points": points, "megabytes": seen.megabytes, "error": seen.error, "averaged": averaged}
        return {**record, "iterations": contestant.iterations, "iteration_seconds": speed}

    def _family(self, cell):
        run, seen, events = self._fit(cell, {"iterations": cell.contestant.iterations, **cell.contestant.options})
        points = _points(scored_events(_without_scoring(events)), "iteration", "elapsed")
        record = {"points": points, "iterations": points[-1]["iteration"] if points else None}
        record["saving_seconds"] = sum(event.get("saving_seconds", 0.0) for event in events)
        sweeps = [_work(event) for event in events if event["event"] == "iteration"]
        # the second half of the iterations, when responsibilities no longer resemble the first sweeps
        speed = statistics.median(sweeps[len(sweeps) // 2 :]) if sweeps else None
        shutil.rmtree(run, ignore_errors=True)
        return {**record, "iteration_seconds": speed, **_costs(seen, events)}

    def _ensemble(self, cell, records):
        contestant = cell.contestant

        def of(name):
            same = [record for record in records if record["contestant"] == name and not record["error"]]
            if not same:
                raise LeftOutError(f"needs the record of {name!r} for this corpus and number of topics")
            return same

        seconds = statistics.median(record["seconds"] for record in of(contestant.within))
        # the median fit of the rounds
        single = sorted(of(contestant.of), key=lambda record: record["seconds"])[(len(of(contestant.of)) - 1) // 2]
        points = [(point["iteration"], point["seconds"]) for point in single["points"]]
        members, iterations = PLAN.plan(seconds, points, single.get("saving_seconds", 0.0))
        limits = {"restarts": members, "iterations": iterations, "score_every": iterations}
        run, seen, events = self._fit(cell, {**limits, **contestant.options})
        ends = [event["elapsed"] for event in _lines(run / JOURNAL) if event["event"] == "end" and "members" in event]
        scoring = sum(_scoring(event) for event in events)
        record = {"points": [], "members": members, "iterations": iterations, "within_seconds": seconds}
        try:
            if not seen.error:
                heldout = part_of(self.corpora, cell.corpus, "test")
                result = json.loads(command("evaluate", run, "--heldout", heldout, "--json"))
                record["averaged"] = result["score"]
                record["points"] = [{"iteration": iterations, "seconds": sum(ends) - scoring, "score": result["score"]}]
        finally:
            shutil.rmtree(run, ignore_errors=True)
        return {**record, **_costs(seen, events)}

    def _fit(self, cell, options):
        """Run `collapsium fit`; return the run's folder, the measurements of the command, and its events."""
        run = self.place / "run"
        shutil.rmtree(run, ignore_errors=True)
        train, heldout = (part_of(self.corpora, cell.corpus, part) for part in ("train", "test"))
        words = [COMMAND, "fit", train, run, "--family", cell.contestant.family, "--heldout", heldout, "--quiet"]
        words += [f"--scheduler={self.scheduler}", *self._options(cell)]
        words += [f"--{name.replace('_', '-')}={flag_value(value)}" for name, value in options.items()]
        seen = watch(words, self.limit)
        return run, seen, events_of(run)


def events_of(run):
    """Return a run's events, or the events of an ensemble's members, without an incomplete last line."""
    paths = [Path(run) / EVENTS, *sorted((Path(run) / MEMBERS).glob(f"*/{EVENTS}"))]
    return [event for path in paths for event in _lines(path)]


def _lines(path):
    return list(filter(None, map(parsed, path.read_bytes().split(b"\n")))) if path.exists() else []


def _work(event):
    """Return the seconds of an iteration's sweeps, sums and updates, without its scoring."""
    seconds = event.get("seconds", {})
    return sum(value for name, value in seconds.items() if name != "score")


def _scoring(event):
    """Return the seconds in which an iteration was scored."""
    return event.get("seconds", {}).get("score", 0.0)


def scored_events(events):
    """Return the events of a fit that have a score of all documents.

    While a fit grows, scores are of the held-out tokens of a sample, by which no peer is scored.
    """
    scored = [event for event in events if event["event"] == "iteration" and "score" in event]
    return [event for event in scored if "documents_share" not in event]


def _without_scoring(events):
    """Return events whose elapsed seconds exclude scoring, as for other libraries."""
    scoring, result = 0.0, []
    for event in events:
        scoring += _scoring(event)
        result.append({**event, "elapsed": event["elapsed"] - scoring})
    return result


def _points(lines, iteration, seconds):
    """Return the iteration, seconds and score of each line, from either names of its fields."""
    return [{"iteration": line[iteration], "seconds": line[seconds], "score": line["score"]} for line in lines]


def _costs(seen, events):
    """Return the command's seconds and memory, and the estimate of the memory."""
    plans = [event["planned"] for event in events if "planned" in event]
    peaks = [
        (sum(event.get("worker_peak_bytes", ())) + event.get("driver_peak_bytes", 0)) / 2**20
        for event in events
        if event["event"] == "end"
    ]
    estimate = max((plan["needed"] * plan["place"]["processes"] + plan["driver"] for plan in plans), default=None)
    return {
        "command_seconds": seen.seconds,
        "megabytes": max([seen.megabytes, *peaks]),
        "estimated_megabytes": None if estimate is None else estimate / 2**20,
        "error": seen.error,
    }
