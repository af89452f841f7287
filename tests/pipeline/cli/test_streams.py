"""Commands with closed, full or unread standard streams work as usual, or fail in one line."""

import subprocess
import sys

import pytest

from collapsium.pipeline.cli.main import main
from collapsium.pipeline.monitoring.console import LogLines
from collapsium.storage.runs.run import Run
from tests.pipeline.cli.commands import fitted
from tests.waiting import PATIENCE

COMMAND = f"{sys.executable} -m collapsium.pipeline"
FULL = "collapsium: error: standard output: No space left on device\n"


def shell(text, place):
    return subprocess.run(["bash", "-c", text], cwd=place, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize("streams", ["<&- >&- 2>&-", pytest.param("2>/dev/full", marks=pytest.mark.long)])
def test_a_fit__needs_no_standard_streams(small, tmp_path, streams):
    words = f"{COMMAND} fit {small[0]} run --family lda --topics 3 --iterations 2 --scheduler serial"
    done = shell(f"{words} {streams}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [event["iteration"] for event in Run(tmp_path / "run").events() if event["event"] == "iteration"][-1] == 2
    assert (tmp_path / "run/model/model.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_a_fit_whose_output_pipe_is_closed__continues(small, tmp_path):
    words = f"{COMMAND} fit {small[0]} run --family lda --topics 3 --iterations 2 --scheduler serial"
    done = shell(f"{words} 2>&1 | head -1; echo ${{PIPESTATUS[0]}}", tmp_path)
    assert done.stderr == ""
    # The last line, on standard output, may still reach the pipe before its reader has ended.
    assert done.stdout.split()[-1] in ("0", "141")
    assert (tmp_path / "run/model/model.json").exists()


@pytest.mark.parametrize("words", ["--help", "info run", pytest.param("--version", marks=pytest.mark.long)])
def test_output_to_a_full_device__is_an_error_of_one_line(small, tmp_path, words):
    fitted(tmp_path, small, "--iterations", 1)
    done = shell(f"{COMMAND} {words} >/dev/full", tmp_path)
    assert (done.returncode, done.stderr) == (1, FULL)


def test_an_error_that_cannot_be_printed__keeps_its_exit_code(tmp_path):
    assert shell(f"{COMMAND} info none 2>/dev/full", tmp_path).returncode == 1
    assert shell(f"{COMMAND} info none 2>&-", tmp_path).returncode == 1


def test_a_process_without_standard_error__prints_no_lines(monkeypatch, small, tmp_path):
    monkeypatch.setattr(sys, "stderr", None)
    LogLines().write("lost")
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["info", small[0]]) == 0
