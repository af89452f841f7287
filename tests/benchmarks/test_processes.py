"""The measurement of commands: memory, lines, errors, and timeouts."""

import subprocess
import sys

from tests.benchmarks import processes

NOISY = """
import json, time
hold = bytearray(1)
print("a library greets", flush=True)
print(json.dumps({"state": "fitting"}), flush=True)
time.sleep(0.2)
print(json.dumps({"state": "fitted"}), flush=True)
hold = bytearray(200_000_000)
time.sleep(0.3)
print(json.dumps({"score": -1.0}), flush=True)
"""


def test_watch__measures_memory_always_or_only_while_requested():
    while_fitting = processes.watch([sys.executable, "-c", NOISY], 60, always=False)
    always = processes.watch([sys.executable, "-c", NOISY], 60)
    assert while_fitting.lines == [{"score": -1.0}]
    assert not while_fitting.error
    assert 0 < while_fitting.megabytes < 150 < always.megabytes


def test_watch__returns_the_error_of_a_failed_command():
    seen = processes.watch([sys.executable, "-c", "print('{\"score\": -2.0}'); raise ValueError('no such luck')"], 60)
    assert seen.error == "ValueError: no such luck"
    assert seen.lines == [{"score": -2.0}]
    assert processes.watch([sys.executable, "-c", "import sys; sys.exit(3)"], 60).error == "ended with code 3"


def test_peak_megabytes__begins_anew_in_a_child():
    held = b"\1" * 300_000_000
    command = "from tests.benchmarks.processes import peak_megabytes; print(peak_megabytes())"
    child = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert 5 < float(child.stdout) < 200 < len(held) / 2**20 < processes.peak_megabytes()


def test_watch__ends_a_command_after_its_limit():
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    assert "more than 0.5 s" in processes.watch([sys.executable, "-c", child], 0.5).error
