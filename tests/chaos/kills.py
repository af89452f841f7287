"""Kills on a real cluster: a fit whose workers, scheduler and driver are killed at random, and restarted.

``python -m tests.chaos.kills 100`` kills 100 processes; each run must end with the bits of an undisturbed one.
"""

import contextlib
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from collapsium.pipeline import Model, fit, simulate
from collapsium.storage.runs.members import restarts_of
from collapsium.storage.runs.run import Run
from tests.fits import bits

SECONDS_BEFORE_HANG = 240  # a run that takes longer than this has hung
FITS = (
    {"family": "lda", "topics": 5, "iterations": 60},
    {"family": "hdp", "topics": 8, "iterations": 60},
    {"family": "lda", "topics": 5, "iterations": 20, "restarts": 2, "combine": "consensus", "init": "documents"},
)
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Supervised:
    """A cluster of processes that are restarted when they die, as a service manager would do."""

    def __init__(self, workers, folder):
        self.address, self.folder = f"tcp://127.0.0.1:{free_port()}", folder
        self.scheduler, self.workers = None, [None] * workers
        self.start_missing()

    def start_missing(self):
        """Start the processes that are not running."""
        port = self.address.rpartition(":")[2]
        if self.scheduler is None or self.scheduler.poll() is not None:
            words = ["scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"]
            self.scheduler = self._start(words)
        for number, worker in enumerate(self.workers):
            if worker is None or worker.poll() is not None:
                words = ["worker", self.address, "--nthreads", "1", "--no-dashboard", "--death-timeout", "20"]
                self.workers[number] = self._start([*words, "--local-directory", str(self.folder)])

    def _start(self, words):
        # In a session of their own, a process and its children can be found and ended together.
        return subprocess.Popen([sys.executable, "-m", "dask", *words], start_new_session=True, **QUIET)

    def victims(self):
        """Return (kind, process id) of the scheduler, the nannies and their workers."""
        found = [("scheduler", self.scheduler.pid)]
        for nanny in self.workers:
            found.append(("nanny", nanny.pid))
            with contextlib.suppress(psutil.NoSuchProcess):
                children = psutil.Process(nanny.pid).children(recursive=True)
                found += [("worker", child.pid) for child in children if "spawn_main" in " ".join(child.cmdline())]
        return found

    def close(self):
        for process in [*self.workers, self.scheduler]:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
            process.wait()


def runs_of(run):
    """Return a run and its restarts, as far as they exist already."""
    return [Run(run), *(member for _, member in restarts_of(run) if member.exists())]


def before_checkpoint(run):
    """Return the events that a run keeps when it is resumed from its last checkpoint."""
    reached, *_ = *run.checkpoints.candidates()[0], 0
    return [*itertools.takewhile(lambda event: event.get("iteration", -1) < reached, run.events())] if reached else []


class Driver:
    """The command of a fit, which is repeated with --resume as long as it ends before the run does."""

    def __init__(self, corpus, run, scheduler, options):
        self.run, self.where = (
            run,
            ["--scheduler", scheduler, "--checkpoint-every", "4", "--cluster-timeout", "30", "--quiet"],
        )
        self.first = ["fit", str(corpus), str(run)]
        for name, value in options.items():
            self.first += [f"--{name}", str(value)]
        self.process, self.starts, self.errors = None, 0, []
        self.kept = {}  # for each run, the events before the checkpoint from which it was last resumed

    def start_or_resume(self):
        """Start the command if it is not running; return whether it has ended successfully."""
        if self.process is not None:
            code = self.process.poll()
            if code is None:
                return False
            self.errors.append(f"{code}: {self.process.stderr.read().decode().strip()[-300:]}")
            assert not self.restarted_from_scratch(), (
                f"started anew despite a checkpoint: {self.restarted_from_scratch()}; {self.errors}"
            )
            if code == 0:
                return True
        words = ["fit", "--resume", str(self.run)] if (self.run / "run.json").exists() else self.first
        if words is self.first and self.run.exists():
            shutil.rmtree(self.run)  # the command was killed before it wrote the run's record
        if words is not self.first:
            self.kept = {run.folder.url: before_checkpoint(run) for run in runs_of(self.run)}
        self.starts += 1
        self.process = subprocess.Popen(
            [sys.executable, "-m", "collapsium.pipeline", *words, *self.where],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        return False

    def restarted_from_scratch(self):
        """Return the runs that were started anew although they had a checkpoint."""
        return [url for url, events in self.kept.items() if Run(url).events()[: len(events)] != events]

    def close(self):
        if self.process is not None and self.process.poll() is None:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                child.kill()
            self.process.kill()
            self.process.wait()


def run_under_fire(corpus, place, options, generator, kills, local):
    """Run a fit and kill its processes at random; return the number of kills by kind, and the model's bits."""
    cluster = None if local else Supervised(2, place)
    driver = Driver(corpus, place / "run", "local" if local else cluster.address, options)
    killed, began = {}, time.monotonic()
    following = began + 4 + generator.random() * 4
    try:
        while not driver.start_or_resume():
            if cluster is not None:
                cluster.start_missing()
            now = time.monotonic()
            if now - began > SECONDS_BEFORE_HANG:
                raise AssertionError(f"the run hangs; {driver.starts} starts, {killed}; {driver.errors}")
            if now >= following and sum(killed.values()) < kills:
                kind, process = generator.choice(victims(cluster, driver))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                    killed[kind] = killed.get(kind, 0) + 1
                following = now + generator.random() * (3 if kind != "driver" else 6)
            time.sleep(0.05)
    finally:
        driver.close()
        if cluster is not None:
            cluster.close()
    model = Model(place / "run")
    return killed, bits(model, len(model.record.shards)), driver


def victims(cluster, driver):
    """Return the processes to kill; the driver is as likely as all others together."""
    found = [] if cluster is None else cluster.victims()
    if driver.process is not None and driver.process.poll() is None:
        children = psutil.Process(driver.process.pid).children(recursive=True) if cluster is None else []
        found += [("worker", process.pid) for process in children if "spawn_main" in " ".join(process.cmdline())]
        found += [("driver", driver.process.pid)] * max(len(found) // 4, 1)
    return found or [("driver", driver.process.pid)]


def main(words):
    """Run fits until the number of kills is reached."""
    wanted, seed = int(words[0]), int(words[1]) if len(words) > 1 else 0
    place = Path(tempfile.mkdtemp(prefix="collapsium-kills-"))
    generator, counted, different, runs = random.Random(seed), {}, 0, 0
    try:
        corpus = place / "corpus"
        simulate(corpus, family="lda", documents=300, words=200, tokens=60, topics=5, shard_tokens=3000)
        expected = [bits(fit(corpus, place / f"calm{n}", **options), 6) for n, options in enumerate(FITS)]
        while sum(counted.values()) < wanted:
            number = runs % len(FITS)
            folder = place / f"{runs}"
            folder.mkdir()
            left = wanted - sum(counted.values())
            killed, found, driver = run_under_fire(corpus, folder, FITS[number], generator, min(left, 6), runs % 4 == 3)
            runs += 1
            different += found != expected[number]
            for kind, times in killed.items():
                counted[kind] = counted.get(kind, 0) + times
            print(
                f"run {runs}: {killed}, {driver.starts} starts, {'same' if found == expected[number] else 'OTHER'} bits",
                flush=True,
            )
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print(f"{sum(counted.values())} killed ({counted}) in {runs} runs; 0 lost, 0 hung, {different} different")
    print(f"{runs - different} passed, {different} failed")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
