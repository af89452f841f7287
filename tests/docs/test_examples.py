"""The shell and Python blocks of the README, of Start and of the how-to guides are run as printed."""

import os
import shlex
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from collapsium.pipeline.engine.setup import limits
from collapsium.pipeline.workflows import sample_texts as sample
from tests.docs.pages import OTHERS, PAGES, ROOT, RUNNABLE, blocks_of, name_of

BIN = Path(sys.executable).parent


def run_shell(block, folder):
    """Run a block in bash; a command that fails ends it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DASK_", "COLLAPSIUM_"))}
    environment = kept | {"PATH": f"{BIN}{os.pathsep}{kept['PATH']}", "PROJECT": str(ROOT)}
    command = ["bash", "-euo", "pipefail", "-c", block.text]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"line {block.line}: {block.text}\n{done.stdout}\n{done.stderr}"


def run_in_process(block, folder):
    """Run the commands of a block in this process."""
    for line in block.text.splitlines():
        program, *words = shlex.split(line)
        [script] = entry_points(group="console_scripts", name=program)
        assert script.load()(words) == 0, f"line {block.line}: {line}"


def run_blocks(page, folder, monkeypatch, run):
    """Run the blocks of a page in a folder, shell blocks by a function."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names, ran = {"__name__": "__main__"}, []
    for block in blocks_of(page):
        if block.reason is not None:
            continue
        if block.language == "sh":
            run(block, folder)
        elif block.language == "python":
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
        ran.append(block.line)
    return ran


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks__run_as_printed(page, tmp_path, monkeypatch):
    ran = run_blocks(page, tmp_path, monkeypatch, run_shell)
    assert ran == [block.line for block in blocks_of(page) if block.reason is None]


def test_the_readme__runs_on_fewer_texts_in_fewer_iterations(tmp_path, monkeypatch):
    sampled = sample.sample_texts()[::4]
    monkeypatch.setattr(limits, "ITERATIONS", 5)
    for module in ("collapsium.pipeline", "collapsium.pipeline.workflows.sample_texts"):
        monkeypatch.setattr(f"{module}.sample_texts", lambda: sampled)
    run_blocks(ROOT / "README.md", tmp_path, monkeypatch, run_in_process)
    assert {"union.png", "union.html", "report.html"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks__name_their_language_or_say_why_they_are_not_run(page):
    for block in blocks_of(page):
        assert block.language in (*RUNNABLE, *OTHERS) or block.language.startswith("{"), f"line {block.line}"
        assert block.reason is None or len(block.reason) > 10, f"line {block.line}"
    assert not [line for line in page.read_text().splitlines() if line.startswith("    collapsium ")]


def test_readme__links_to_existing_files():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [part.partition(")")[0] for part in text.split("](")[1:]]
    local = [link.partition("#")[0] for link in links if "://" not in link]
    assert len(local) > 10
    assert [link for link in local if not (ROOT / link).exists()] == []
