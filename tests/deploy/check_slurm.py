"""The SLURM script with a stand-in for SLURM: scheduler, workers and a small job really run, to the end and to a signal."""

import contextlib
import json
import os
import re
import signal
import subprocess

import pytest

from collapsium.pipeline import simulate
from tests.deploy.reading import DEPLOY, environment, wait_until

SCRIPT = DEPLOY / "slurm" / "collapsium.sbatch"
FIT = ["collapsium", "fit", "corpus", "run", "--family", "lda", "--topics", "3"]
FIT += ["--scheduler", "$DASK_SCHEDULER_ADDRESS"]

# As SLURM does: the script's own options, then the command line's, name nodes and tasks; the script runs in the
# folder where it was submitted.
SBATCH = """#!/usr/bin/env python3
import os, re, shlex, sys
words, options = sys.argv[1:], {}
def take(word, value):
    if word.startswith("--"):
        options[word.partition("=")[0]] = word.partition("=")[2] or value
while words[0].startswith("--"):
    take(words[0], words[1])
    words = words[1 if "=" in words[0] else 2:]
script, words = words[0], words[1:]
for line in open(script):
    if line.startswith("#SBATCH "):
        word = shlex.split(line)[1]
        if word.partition("=")[0] not in options:
            take(word, "")
nodes, tasks = int(options["--nodes"]), int(options["--ntasks-per-node"])
os.environ.update(SLURM_JOB_ID="17", SLURM_NTASKS=str(nodes * tasks), SLURM_CPUS_PER_TASK="1", SLURM_SUBMIT_DIR=os.getcwd())
os.environ.update(SLURM_MEM_PER_NODE=str(int(options["--mem"].removesuffix("G")) * 1024))
os.execvp("bash", ["bash", script, *words])
"""

# Runs the tasks here, and ends them when it is ended.
SRUN = """#!/usr/bin/env python3
import os, signal, subprocess, sys
def end(*arguments):
    for task in tasks:
        task.terminate()
tasks, words, options = [], sys.argv[1:], {}
signal.signal(signal.SIGTERM, end)
while words[0].startswith("--"):
    options[words[0]], words = words[1], words[2:]
for number in range(int(options["--ntasks"])):
    tasks.append(subprocess.Popen(words, env={**os.environ, "SLURM_PROCID": str(number)}))
sys.exit(max(abs(task.wait()) for task in tasks))
"""

SCONTROL = """#!/bin/sh
echo "$@" >>scontrol.log
"""


@pytest.fixture
def site(tmp_path):
    """A folder with a corpus, and SLURM's commands on the path."""
    (tmp_path / "bin").mkdir()
    for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("scontrol", SCONTROL)):
        path = tmp_path / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
    simulate(str(tmp_path / "corpus"), family="lda", topics=3, documents=60, words=50, tokens=40, shard_tokens=600)
    return tmp_path


def submitted(site, *words, nodes=1):
    """Submit a job of a task a node."""
    variables = environment()
    variables["PATH"] = f"{site / 'bin'}{os.pathsep}{variables['PATH']}"
    variables |= {"DASK_CONFIG": str(DEPLOY / "dask.yaml"), "COLLAPSIUM_INTERFACE": "lo"}
    submit = ["sbatch", "--nodes", str(nodes), "--mem=1G", str(SCRIPT), *words]
    with (site / "slurm-17.out").open("w") as out:
        return subprocess.Popen(submit, cwd=site, env=variables, stdout=out, stderr=out, start_new_session=True)


def ended(site, job):
    """Wait for a job's end; return its status and its output."""
    try:
        status = job.wait(timeout=200)
    finally:
        end_rest(job)
    return status, (site / "slurm-17.out").read_text()


def events(run):
    """The kinds of events that a run has reported so far."""
    path = run / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["event"] for line in lines]


def end_rest(job):
    """End a job's remaining processes, as SLURM does; workers end by themselves once their scheduler is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)


def test_job__runs_to_its_end(site):
    job = submitted(site, *FIT, "--iterations", "4", nodes=2)
    status, output = ended(site, job)
    assert status == 0, output
    assert "2 workers" in output
    assert (site / "run" / "model" / "model.json").exists()
    journal = (site / "collapsium-17" / "workers.log").read_text()
    assert journal.count("Start worker at") == 2, journal
    assert re.findall(r"\w+://\S+", journal)
    assert not re.findall(r"tcp://|0\.0\.0\.0", journal), journal
    assert {path.stat().st_mode & 0o777 for path in (site / "collapsium-17" / "tls").iterdir()} == {0o600}


def test_job__keeps_a_checkpoint_when_its_time_is_over_and_is_queued_again(site):
    job = submitted(site, *FIT, "--iterations", "1000000")
    wait_until(lambda: events(site / "run").count("iteration") > 2 or job.poll() is not None)
    os.kill(job.pid, signal.SIGTERM)  # to the script alone, as --signal=B: says
    status, output = ended(site, job)
    assert status == 130, output
    assert (site / "scontrol.log").read_text() == "requeue 17\n"
    assert (site / "run" / "checkpoints" / "latest.json").exists()


def test_job__says_how_it_is_used(site):
    job = submitted(site)
    status, output = ended(site, job)
    assert (status, output.split()[0]) == (2, "usage:")


def test_job__fails_with_its_command(site):
    status, output = ended(site, submitted(site, "sh", "-c", "echo $DASK_SCHEDULER_ADDRESS; exit 3"))
    assert status == 3, output
    assert output.split()[-1].startswith("tls://127.0.0.1:")
