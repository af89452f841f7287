"""Interrupted commands: signals, closed pipes, and another process that takes over."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from collapsium import pipeline
from collapsium.pipeline import fit, verify
from collapsium.pipeline.cli import main as cli
from collapsium.pipeline.cli.main import main
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.runs.run import Run
from tests.pipeline.cli.commands import command, fitted
from tests.waiting import PATIENCE, wait_until

# The tests themselves may run under `nohup`, whose processes ignore SIGHUP.
IN_A_TERMINAL = """
import signal, sys
from collapsium.pipeline.cli import start
signal.signal(signal.SIGHUP, signal.SIG_DFL)
sys.exit(start())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.xdist_group("clusters")
def test_interrupt__keeps_the_last_complete_iteration(small, tmp_path, number):
    run = tmp_path / "run"
    words = ["fit", small[0], run, "--family", "hdp", "--iterations", 1_000_000, "--workers", 2, "--topics", 5]
    process = subprocess.Popen(
        [sys.executable, "-c", IN_A_TERMINAL, *map(str, words)],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONWARNINGS": "default"}, start_new_session=True,
    )  # fmt: skip
    wait_until(lambda: any(event["event"] == "iteration" for event in Run(run).events()))
    os.killpg(process.pid, number)  # workers get the signal too, as from a terminal or a batch system
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "Traceback" not in err, err
    end = Run(run).events()[-1]
    assert end["reason"] == "interrupt"
    assert main(["topics", str(run)]) == 0
    assert f"iteration {end['iteration']} is saved; continue with `collapsium fit --resume {run}`" in err
    assert Corpus(small[0]).manifest.documents == 60


LOST = """
import signal, time
from collapsium.pipeline.cli import main as cli

class Finalised:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)

cli._catch_signals()
try:
    Finalised()
    time.sleep(20)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_while_an_object_is_finalised__is_not_lost():
    """Python ignores the errors of finalisers, and the fit would go on."""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
    assert time.monotonic() - began < 15


TAKING = """
import functools, signal, threading, time
from collapsium.pipeline.cli import main as cli

class Lock:
    acquire = release = __exit__ = lambda *error: None
    __enter__ = functools.partial(signal.raise_signal, signal.SIGTERM)

cli._catch_signals()
try:
    with threading.Condition(Lock()):
        print("taken")
        time.sleep(20)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_while_a_lock_is_taken__comes_when_the_lock_will_be_released():
    """A lock that stays taken would let all threads wait for ever."""
    done = subprocess.run([sys.executable, "-c", TAKING], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert (done.stdout, done.stderr) == ("taken\ninterrupted\n", "")


def test_output_to_a_closed_pipe__is_no_error(small, tmp_path):
    run = fitted(tmp_path, small, "--iterations", 1)
    command_ = f"{sys.executable} -m collapsium.pipeline topics {run} --words 30 | head -c 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command_], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stderr == ""
    assert done.stdout.split()[-1][-3:] in ("141", "0")


def test_a_command__keeps_the_signal_of_broken_pipes_ignored(capsys):
    """Otherwise, a driver that writes to the closed socket of a dead scheduler would die without a message."""
    assert command(capsys, "info", "none")[0] == 1
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN


@pytest.mark.long
@pytest.mark.xdist_group("clusters")
def test_a_second_interrupt__stops_at_once_and_damages_nothing(small, tmp_path):
    run = tmp_path / "run"
    words = [
        "fit",
        small[0],
        run,
        "--family",
        "lda",
        "--topics",
        200,
        "--iterations",
        1_000_000,
        "--checkpoint-every",
        1,
    ]
    for pause in (0.0, 0.02, 0.1):
        process = subprocess.Popen(
            [sys.executable, "-m", "collapsium.pipeline", *map(str, words)], stderr=subprocess.PIPE, text=True
        )
        before = Run(run).checkpoints.latest() or 0
        wait_until(lambda before=before: (Run(run).checkpoints.latest() or 0) >= before + 3)
        process.send_signal(signal.SIGINT)
        time.sleep(pause)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130, err
        assert time.monotonic() - began < 60
        found = verify(run)
        assert found.broken == []
        words = ["fit", "--resume", run, "--checkpoint-every", 1]
    assert main(["fit", "--resume", str(run), "--iterations", str(Run(run).checkpoints.latest() + 1), "--quiet"]) == 0


def test_exit__waits_for_zarr_without_a_traceback(tmp_path):
    """Zarr's event loop is busy for longer at exit than Zarr itself waits."""
    program = f"""
import time
from zarr.core.sync import _get_loop
from collapsium.pipeline.cli.main import main
_get_loop().call_soon_threadsafe(time.sleep, 0.5)
main(["info", {str(tmp_path / "nothing")!r}])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stderr.count("\n") == 1
    assert "no such folder" in done.stderr


@pytest.mark.parametrize(("gap", "ends"), [(0.1, False), (0.9, False), (1.1, True)])
def test_signals_in_quick_succession__count_as_one_signal(monkeypatch, gap, ends):
    from collapsium.pipeline.cli import main as module

    clock, ended = [1000.0], []
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(module.os, "_exit", ended.append)
    monkeypatch.setattr(module, "_interrupts", [])
    with pytest.raises(KeyboardInterrupt):
        module._interrupted(signal.SIGINT, None)
    clock[0] += gap
    with pytest.raises(KeyboardInterrupt) if ends else contextlib.nullcontext():
        module._interrupted(signal.SIGINT, None)
    assert ended == ([130] if ends else [])


def test_an_interrupt_while_options_are_parsed__is_reported_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr("collapsium.pipeline.cli.main.parse", lambda words: signal.raise_signal(signal.SIGINT))
    assert main(["fit", "corpus", "run"]) == 130
    assert capsys.readouterr().err == "collapsium: interrupted\n"


def test_a_command_whose_run_was_taken_over__has_a_separate_exit_code(capsys, small, tmp_path, monkeypatch):
    from collapsium.storage.errors import TakenOverError
    from collapsium.storage.runs.run import Run

    def taken_over(run, event):
        raise TakenOverError("another process has taken over")

    monkeypatch.setattr(Run, "append_event", taken_over)
    words = ["fit", small[0], tmp_path / "run", "--family", "lda", "--topics", 3, "--scheduler", "serial", "--quiet"]
    code, _, err = command(capsys, *words)
    assert code == 5
    assert "another process has taken over" in err


def test_exit__closes_clusters_that_an_interrupt_left_half_started_without_a_traceback():
    program = """
import atexit, sys, types
from collapsium.pipeline.cli.main import main
module = types.ModuleType("distributed.deploy.spec")
def close_clusters():
    print("closed")
    raise AssertionError("Status.init")
module.close_clusters = atexit.register(close_clusters)
sys.modules["distributed.deploy.spec"] = module
main(["info", "none"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout == "closed\n"
    assert "Traceback" not in done.stderr


def test_nohup__keeps_the_signal_of_closed_terminals_ignored(capsys):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert command(capsys, "info", "none")[0] == 1
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    assert command(capsys, "info", "none")[0] == 1
    assert signal.getsignal(signal.SIGHUP) == signal.getsignal(signal.SIGTERM)


def test_an_interrupt_while_modules_are_imported__is_reported_in_one_line():
    program = """
import signal, sys
class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "cyclopts":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from collapsium.pipeline.cli import start
sys.exit(start())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (130, "collapsium: interrupted\n")


def interrupted_twice_closed(event=None):
    """Be interrupted as `shutil.rmtree` can be, which then closes a folder for a second time."""
    if event is None or (event["event"], event.get("iteration")) == ("iteration", 2):
        cli._interrupts.append(time.monotonic())
        try:
            raise KeyboardInterrupt
        finally:
            os.close(-1)


def test_an_error_in_place_of_an_interrupt__is_reported_as_the_interrupt(small, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    with pytest.raises(OSError, match="Bad file descriptor"):
        fit(small[0], run, family="lda", topics=3, scheduler="serial", sinks=[interrupted_twice_closed])
    assert Run(run).events()[-1]["reason"] == "interrupt"
    monkeypatch.setattr(pipeline, "info", lambda *paths, **options: interrupted_twice_closed())
    assert main(["info", str(run)]) == 130
    assert capsys.readouterr().err.endswith("collapsium: interrupted\n")
