import subprocess
import sys

import pytest

from tests.deploy.reading import ROOT


@pytest.mark.long
def test_commands_that_are_killed_or_out_of_disk_space__succeed_when_repeated():
    # A separate process, because a fork of a process with threads may hang.
    words = [sys.executable, "-m", "tests.chaos.operations", "37", "append", "append-vectors", "ingest", "split"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" 0 failed") == 4
