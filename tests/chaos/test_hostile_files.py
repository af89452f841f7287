"""Something else in the place of some files of a run and a corpus; `make fuzz` tries all."""

import subprocess
import sys

import pytest

from tests.deploy.reading import ROOT


@pytest.mark.long
def test_anything_in_place_of_a_file__ends_every_command_with_a_line_or_a_result():
    # A process of its own, as forks of one with threads may hang.
    words = [sys.executable, "-m", "tests.chaos.hostile_files", "0.03", "corpus", "mean"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 faults" in done.stdout
