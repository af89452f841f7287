"""Kernels are compiled in child processes, which an interrupt ends."""

import functools
import os
import signal
import subprocess
import sys

import pytest

from collapsium.pipeline.monitoring.console import show_compilation
from collapsium.workers.kernels import child_processes as compiling
from collapsium.workers.kernels import jit as compiler
from collapsium.workers.kernels.networks import updates
from collapsium.workers.kernels.trees import gaussian as components
from tests.conftest import INTERPRETED, write_corpus

pytestmark = pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Two small kernels, and an empty cache of machine code."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compiler, "_registered", [])
    folder = functools.cache(compiler.cache_folder.__wrapped__)
    monkeypatch.setattr(compiler, "cache_folder", folder)
    monkeypatch.setattr(compiling, "cache_folder", folder)
    return [compiler.Kernel(kernel.python) for kernel in (components.nearest, updates.count_responsibilities)]


@pytest.fixture
def children(monkeypatch):
    """The child processes that are started."""
    started, start = [], compiling._start_child
    monkeypatch.setattr(compiling, "_start_child", lambda: started.append(start()) or started[-1])
    return started


def test_fill_cache__compiles_each_missing_kernel_once_per_machine(fresh, children):
    reports = []
    compiling.fill_cache(fresh, lambda *counts: reports.append(counts))
    assert reports == [(0, 2), (1, 2), (2, 2)]
    assert compiling.missing_kernels(fresh) == []
    compiling.fill_cache(fresh, lambda *counts: reports.append(counts))
    assert len(reports) == 3
    assert all(child.poll() is not None for child in children)


def test_fill_cache__ends_the_child_processes_when_it_is_interrupted(fresh, children):
    def interrupt(compiled, total):
        if compiled:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compiling.fill_cache(fresh, interrupt)
    assert children
    assert all(child.poll() is not None for child in children)


def test_compile_kernels__compiles_in_this_process_if_child_processes_cannot(fresh, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    reports = []
    compiling.compile_kernels(fresh, lambda *counts: reports.append(counts))
    assert compiling.missing_kernels(fresh) == []
    assert reports[-1] == (2, 2)


def test_compile_kernels__works_without_a_cache_folder(fresh, monkeypatch):
    monkeypatch.setattr(compiler, "cache_folder", lambda: None)
    monkeypatch.setattr(compiling, "cache_folder", lambda: None)
    reports = []
    compiling.compile_kernels(fresh, lambda *counts: reports.append(counts))
    assert reports == [(0, 2), (1, 2), (2, 2)]
    assert compiling.missing_kernels(fresh) == []


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda kernel: kernel.name)
def test_a_fit__is_interrupted_while_kernels_are_compiled(number, tmp_path):
    corpus = write_corpus(tmp_path / "c", [{0: 1, 1: 2}], 2)
    words = ["fit", corpus, tmp_path / "run", "--family", "sequential-lda", "--topics", "2", "--scheduler", "serial"]
    script = "import sys; from collapsium.pipeline.cli.main import main; sys.exit(main(sys.argv[1:]))"
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", script, *map(str, words)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        for line in process.stderr:
            if "compiling kernels, once per machine: 0 of" in line:
                process.send_signal(number)
                break
        assert process.stderr.readlines() == ["collapsium: interrupted\n"]
    assert process.returncode == 130
    assert not (tmp_path / "run").exists()


def test_the_logger__shows_the_number_of_compiled_kernels(capsys):
    show_compilation()
    for compiled in range(4):
        compiling.log_compilation(compiled, 3)
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition(": ")[2] for line in lines] == ["0 of 3", "3 of 3"]
