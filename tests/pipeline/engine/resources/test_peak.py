"""The estimated memory against the measured peak of fits in separate processes."""

import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from collapsium.pipeline import simulate, split
from collapsium.pipeline.engine.estimate import estimate
from collapsium.pipeline.engine.run import usage
from collapsium.storage.runs.run import Run

COMMAND = Path(sysconfig.get_path("scripts")) / "collapsium"
READING_SECONDS = 0.005
"""Seconds between readings of a peak."""

WITHIN = 0.15
"""Share of the measured peak by which the estimate may differ."""


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """Training and held-out tokens of enough short documents that their states exceed the memory of a process by
    itself."""
    place = tmp_path_factory.mktemp("peak")
    sizes = {"documents": 8000, "words": 6000, "tokens": 60, "topics": 40, "shard_tokens": 100_000}
    simulate(place / "corpus", family="lda", seed=1, **sizes)
    split(place / "corpus", place / "train", place / "heldout")
    return place / "train", place / "heldout"


def peak_of(command):
    """Run a command; return the peak resident memory of its first process in bytes.

    `wait4` is no alternative: it returns at least the memory of the parent, and includes children of the process.
    """
    peak, process = 0, subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL)
    while process.poll() is None:
        # The high-water mark only increases, so the last reading is the peak.
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        peak = max([peak, *(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))])
        time.sleep(READING_SECONDS)
    assert process.returncode == 0
    return peak


def fit_command(halves, run, family, topics, iterations):
    """Return the command of a fit in two threads."""
    words = [COMMAND, "fit", halves[0], run, "--heldout", halves[1], "--family", family, "--quiet", "--workers", 2]
    return [*words, "--iterations", iterations, "--grow", "never", *(["--topics", topics] if topics else [])]


@pytest.mark.long
@pytest.mark.parametrize(("family", "topics"), [("lda", 100), ("lda", 200), ("hdp", 200)])
def test_estimate__is_near_the_peak_of_a_fit(halves, tmp_path, family, topics):
    # The first fit compiles its kernels, which takes additional memory.
    peak_of(fit_command(halves, tmp_path / "compiled", family, 4, 1))
    peak = peak_of(fit_command(halves, tmp_path / "run", family, topics, 5))
    planned = estimate(halves[0], family=family, topics=topics, heldout=halves[1], workers=2)
    assert planned.needed == pytest.approx(peak, rel=WITHIN), planned.table()


@pytest.mark.long
def test_estimate__is_near_the_peak_of_a_local_cluster(halves, tmp_path):
    where = ["--scheduler", "local", "--grow", "never"]
    words = [COMMAND, "fit", halves[0], "--heldout", halves[1], "--family", "lda", "--quiet", "--workers", 2, *where]
    compiled, run = tmp_path / "compiled", tmp_path / "run"
    peak_of([*words[:3], compiled, *words[3:], "--topics", 4, "--iterations", 1])
    driver = peak_of([*words[:3], run, *words[3:], "--topics", 100, "--iterations", 5])
    end = Run(run).events()[-1]
    planned = estimate(halves[0], family="lda", topics=100, heldout=halves[1], workers=2, scheduler="local")
    assert [planned.needed] == pytest.approx(end["worker_peak_bytes"], rel=WITHIN), planned.table()
    assert planned.driver == pytest.approx(driver, rel=WITHIN)
    assert planned.driver == pytest.approx(end["driver_peak_bytes"], rel=WITHIN)


@pytest.mark.parametrize(("links", "is_separate"), [(None, False), (object(), True)])
def test_usage__has_the_memory_of_the_driver_besides_workers(links, is_separate):
    """This also holds without a dashboard, which a local cluster only has if Bokeh is installed."""
    executor = SimpleNamespace(everywhere=lambda peak: [peak()], moved=lambda: 0, links=lambda: links)
    found = usage(executor, 1)
    assert found["driver_peak_bytes"] == pytest.approx(is_separate * found["worker_peak_bytes"][0], rel=0.01)


def test_estimate__counts_held_out_tokens(halves):
    alone, scored = (
        estimate(halves[0], family="lda", topics=50, workers=2, heldout=held).memory for held in (None, halves[1])
    )
    assert scored["documents"] > alone["documents"]
    assert scored["scoring held-out tokens"] > alone["scoring held-out tokens"] == 0


def test_peaks__are_measured_for_the_process_and_not_its_parent():
    parent = bytearray(400 << 20)
    code = "from collapsium.pipeline.engine.run import _peak_memory; print(_peak_memory())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < len(parent)
