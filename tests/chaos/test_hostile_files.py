"""Hostile replacements of some files of a run and a corpus; `make fuzz` tries all."""

import subprocess
import sys

import pytest

from tests.deploy.reading import ROOT


@pytest.mark.long
def test_hostile_replacements_of_files__end_every_command_with_a_result_or_a_clear_error():
    # A separate process, because a fork of a process with threads may hang.
    words = [sys.executable, "-m", "tests.chaos.hostile_files", "0.03", "corpus", "mean"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 faults" in done.stdout
