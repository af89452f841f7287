import subprocess
import sys

import pytest

from tests.deploy.reading import ROOT


@pytest.mark.long
def test_commands__that_are_killed_or_out_of_disk_end_well_when_they_are_given_again():
    # A process of its own, as forks of one with threads may hang.
    words = [sys.executable, "-m", "tests.chaos.operations", "37", "append", "append-vectors", "ingest", "split"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" 0 failed") == 4
