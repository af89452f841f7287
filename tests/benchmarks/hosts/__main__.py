"""The benchmark of hosts: one fit in threads, and on clusters of simulated hosts, by the speed of their links.

    python -m tests.benchmarks.hosts build/bench-hosts

simulates a corpus, fits it in each cell, and writes `table.md` and a record of each cell under `cells/`. Cells that
have a record with the same settings are not run again, so an interrupted benchmark can be continued. Seconds are means
over all iterations but the first, including the score of each. The last cell loses a host during the fit. If fits
differ in their bits, the exit code is 1.

Hosts are network namespaces with a share of a processor, and a switch in user space counts the bytes of their links.
This needs root, gcc and iproute2; if they are missing, one line gives the reason.
"""

import argparse
import fcntl
import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from collapsium.storage.runs.run import EVENTS
from tests.benchmarks.hosts import network, records
from tests.benchmarks.hosts.network import Network, address
from tests.benchmarks.hosts.records import Cell
from tests.benchmarks.machine import machine

REPOSITORY = Path(__file__).parents[3]
SCRIPTS = Path(sysconfig.get_path("scripts"))
SCHEDULER, DRIVER = "scheduler", "driver"
PORT = 8786
DOCUMENT_TOKENS = 100
"""Mean tokens of a document of the drawn corpus."""
LATENCY = 0.5
"""Milliseconds from one host to another and back."""
SAMPLED = 0.05
"""Seconds between two looks at the events of a fit, whose iterations take longer."""
FIGURES = ("iteration", "score", "change", "inverse_temperature", "objective", "sizes")
"""Fields of an iteration's event that must not depend on where a fit ran."""
LOST_AFTER = 30
"""Seconds after which an unresponsive host counts as lost."""


@dataclass(frozen=True)
class Settings:
    """Settings of all cells."""

    tokens: int
    words: int
    topics: int
    shards: int
    iterations: int
    start: str
    """Options of the fit that say how it begins."""
    limit: float
    """Seconds that a fit may take."""
    revision: str
    """Commit of the repository, as fits of different code are not compared."""


def cells_of(arguments):
    """Return the cells: first one thread with a core to itself, which compiles the kernels, and last the lost host."""
    clusters = [Cell(hosts, share, megabits) for megabits in arguments.links for hosts, share in arguments.hosts]
    threads = [Cell(0, share) for share in dict.fromkeys((1.0, *(share for _, share in arguments.hosts)))]
    several = [cell for cell in clusters if cell.hosts > 2]
    lost = [Cell(several[0].hosts, several[0].share, several[0].megabits, loses=True)] if several else []
    return [*threads, *clusters, *lost]


def prepare(folder, settings):
    """Simulate the corpus and hold out a tenth of its tokens, unless the files exist; return both parts."""
    train, heldout, drawn = folder / "train", folder / "heldout", folder / "drawn"
    wanted = {name: asdict(settings)[name] for name in ("tokens", "words", "topics", "shards")}
    note = folder / "corpus.json"
    if note.exists() and json.loads(note.read_text()) == wanted:
        return train, heldout
    for path in (train, heldout, drawn):
        shutil.rmtree(path, ignore_errors=True)
    note.unlink(missing_ok=True)
    print(f"drawing {settings.tokens} tokens", flush=True)
    documents = ["--documents", settings.tokens // DOCUMENT_TOKENS, "--tokens", DOCUMENT_TOKENS]
    sizes = ["--words", settings.words, "--topics", settings.topics]
    shards = ["--shard-tokens", -(-settings.tokens // settings.shards)]
    for words in (
        ["simulate", drawn, "--family", "lda", *documents, *sizes, *shards],
        ["split", drawn, train, heldout],
    ):
        subprocess.run([SCRIPTS / "collapsium", *map(str, words)], check=True)
    shutil.rmtree(drawn)
    note.write_text(json.dumps(wanted))
    return train, heldout


def revision():
    """Return the commit of the repository, with a mark if files have changed since; empty outside a repository."""
    command = ["git", "-C", REPOSITORY, "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def events_of(run):
    """Return the events of a run so far, without an incomplete last line."""
    path = run / EVENTS
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


def iterations_of(events):
    """Return the last event of each iteration, because a fit that lost a host runs some of them twice; 0 is the start."""
    return {event["iteration"]: event for event in events if event["event"] in ("started", "iteration")}


def bits_of(run):
    """Return the digest of a run's model and of the metrics of its iterations."""
    parts = json.loads((run / "model" / "model.json").read_text())["parts"]
    figures = [[event.get(name) for name in FIGURES] for event in iterations_of(events_of(run)).values()]
    return hashlib.sha256(json.dumps([parts, figures], sort_keys=True).encode()).hexdigest()


def processor_seconds(processes):
    """Return the processor seconds of some processes so far."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


class Bench:
    """The cells of a benchmark, and the folder of their runs."""

    def __init__(self, folder, settings):
        """Simulate the corpus unless it exists."""
        self.folder, self.settings = folder, settings
        self.train, self.heldout = prepare(folder, settings)

    def run(self, cell):
        """Run a cell; return its metrics, or an error."""
        names = [f"w{number}" for number in range(1, cell.hosts + 1)]
        hosts = [DRIVER, *([SCHEDULER, *names] if names else ["other"])]
        run = self.folder / "runs" / cell.name
        shutil.rmtree(run, ignore_errors=True)
        with Network(self.folder / "network", hosts) as net:
            if names:
                net.shape(cell.megabits, LATENCY)
                scheduler = self._start_cluster(net, names)
                options = ["--scheduler", f"tls://{address(SCHEDULER)}:{PORT}", "--workers", len(names)]
                options += self._certificates("--tls-ca", "--tls-cert", "--tls-key")
                options += ["--cluster-timeout", LOST_AFTER] if cell.loses else []
            else:
                scheduler, options = None, ["--scheduler", "threads", "--workers", 1]
            limits = ["--iterations", self.settings.iterations, "--heldout", self.heldout, "--quiet"]
            family = ["--family", "lda", "--topics", self.settings.topics, *self.settings.start.split()]
            command = [SCRIPTS / "collapsium", "fit", self.train, run, *family, *limits, *options]
            driver = net.start(DRIVER, command, "fit", self._environment())
            return self._followed(cell, net, run, driver, scheduler)

    def _certificates(self, *flags):
        place = self.folder / "tls"
        return [
            word
            for flag, name in zip(flags, ("ca", "cert", "key"), strict=True)
            for word in (flag, place / f"{name}.pem")
        ]

    def _environment(self):
        return {"DASK_CONFIG": REPOSITORY / "deploy" / "dask.yaml"}

    def _start_cluster(self, net, names):
        """Start scheduler and workers; return the scheduler's process."""
        tls = self._certificates("--tls-ca-file", "--tls-cert", "--tls-key")
        if not (self.folder / "tls").exists():
            make = [REPOSITORY / "deploy" / "make-test-certificates", self.folder / "tls", address(SCHEDULER)]
            subprocess.run(make, check=True)
        dask, pages, environment = SCRIPTS / "dask", ["--dashboard-address", "127.0.0.1:0"], self._environment()
        place = ["--host", address(SCHEDULER), "--port", PORT, "--protocol", "tls"]
        scheduler = net.start(SCHEDULER, [dask, "scheduler", *place, *pages, *tls], SCHEDULER, environment)
        for name in names:
            place = [f"tls://{address(SCHEDULER)}:{PORT}", "--host", address(name), "--name", name]
            size = ["--nworkers", 1, "--nthreads", 1, "--local-directory", self.folder / "scratch" / name]
            net.start(name, [dask, "worker", *place, *size, *pages, *tls], name, environment)
        return scheduler

    def _followed(self, cell, net, run, driver, scheduler):
        """Follow a fit until it ends; return its iterations with the traffic of each, and its bits."""
        watched = [psutil.Process(process.pid) for process in (driver, scheduler) if process is not None]
        seen, spent, lost, limited = {}, {}, False, False
        before, deadline = net.traffic(), time.monotonic() + self.settings.limit
        while True:
            ended = driver.poll() is not None
            events = events_of(run)
            if events and not limited:
                # Processes start, and kernels are compiled, at full speed.
                for host in [name for name in net.names if name.startswith("w")] or [DRIVER]:
                    net.limit(host, cell.share)
                limited = True
            for number, event in iterations_of(events).items():
                if number in seen:
                    continue
                now = net.traffic()
                moved = records.busiest(before, now) if cell.hosts else {}
                before = now
                seen[number] = {"iteration": number, "elapsed": event["elapsed"], "score": event.get("score"), **moved}
                if not ended:
                    spent[number] = processor_seconds(watched)
                if cell.loses and not lost and number >= self.settings.iterations // 2:
                    net.lose("w2")
                    lost = True
            if ended:
                break
            if time.monotonic() > deadline:
                return {"error": f"took more than {self.settings.limit:g} s", "bits": ""}
            time.sleep(SAMPLED)
        if driver.returncode or not seen:
            log_lines = [line.strip() for line in net.log("fit").splitlines() if line.strip()]
            return {"error": log_lines[-1] if log_lines else f"ended with code {driver.returncode}", "bits": ""}
        driving = (max(spent.values()) - min(spent.values())) / max(len(spent) - 1, 1) if cell.hosts and spent else None
        seen.pop(0, None)  # the start, with the traffic before the first iteration
        return {"iterations": list(seen.values()), "driving": driving, "bits": bits_of(run)}


def hosts_of(text):
    """Read `8x0.2,16x0.1`: numbers of hosts, and the share of a processor of each."""
    if not all(re.fullmatch(r"[1-9]\d*x\d*\.?\d+", part) for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"expected HOSTSxCORES with commas between, such as 8x0.2, found {text!r}")
    return [(int(number), float(share)) for number, share in (part.split("x") for part in text.split(","))]


def numbers_of(text):
    """Read numbers with commas between them."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers with commas between, found {text!r}") from None


def parser_of():
    """Return the parser of the command line."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.hosts", description=__doc__, formatter_class=formatter
    )
    parser.add_argument("folder", type=Path, help="folder of the corpus, the runs, the records and the table")
    parser.add_argument(
        "--hosts", type=hosts_of, default="1x0.2,2x0.2,4x0.2,8x0.2,16x0.1", metavar="HOSTSxCORES,...",
        help="numbers of hosts, and the share of a processor of each (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--links", type=numbers_of, default="1000,100", metavar="MBIT,...", help="rates of links (default: %(default)s)"
    )
    for name, value, text in (
        ("tokens", 4_000_000, "tokens of the drawn corpus"),
        ("words", 30_000, "words of its vocabulary"),
        ("topics", 100, "topics of the corpus and of the fits"),
        ("shards", 16, "shards of the corpus, at least as many as hosts"),
        ("iterations", 40, "iterations of each fit"),
    ):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{text} (default: %(default)s)")
    parser.add_argument(
        "--start", default="--init random --grow never", metavar="OPTIONS",
        help="options of the fits that say how they begin (default: '%(default)s')",
    )  # fmt: skip
    parser.add_argument("--limit", type=float, default=3600, help="seconds of one fit (default: %(default)s)")
    return parser


def main(arguments=None):
    """Read the command line, run the cells that have no record, and write the table."""
    parser = parser_of()
    arguments = parser.parse_args(arguments)
    most = max(hosts for hosts, _ in arguments.hosts)
    if arguments.shards < most:
        parser.error(f"argument --shards: expected at least {most}, one for each host, found {arguments.shards}")
    reason = network.missing()
    if reason:
        print(f"bench-hosts is skipped: {reason}")
        return 0
    options = {name: value for name, value in vars(arguments).items() if name in Settings.__dataclass_fields__}
    settings = Settings(**options, revision=revision())
    # The benchmark removes its hosts even if a signal ends it.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    with (Path(tempfile.gettempdir()) / "collapsium-bench-hosts.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("error: another bench of hosts runs on this machine", file=sys.stderr)
            return 2
        return run(arguments, settings)


def run(arguments, settings):
    """Run the cells that have no record; return 1 if a fit failed or fits differ in their bits."""
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    bench, results, cells = Bench(folder, settings), folder / "cells", cells_of(arguments)
    done = {name: record for name, record in records.read(results).items() if record["settings"] == asdict(settings)}
    for number, cell in enumerate(cells, 1):
        if cell.name not in done or "error" in done[cell.name]:
            done[cell.name] = records.write(results, cell, asdict(settings), bench.run(cell))
        record = done[cell.name]
        outcome = record.get("error") or f"{records.seconds_per_iteration(record):.3f} s per iteration"
        print(f"{number}/{len(cells)} {cell.name}: {outcome}", flush=True)
    shown = {cell.name: done[cell.name] for cell in cells}
    text, same = records.table(shown)
    at = machine(())
    where = f"{settings.tokens} tokens, {settings.words} words, K = {settings.topics}, {settings.iterations} iterations"
    title = f"{where}; {at['cores']} cores of {at['cpu']}; commit {settings.revision}"
    (folder / "table.md").write_text(f"{title}\n\n{text}")
    print(f"\n{title}\n\n{text}")
    return 0 if same and not any("error" in record for record in shown.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
