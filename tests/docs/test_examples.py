"""The shell and Python blocks of the README, of Start and of the how-to guides are run as printed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import OTHERS, PAGES, QUICK, ROOT, RUNNABLE, blocks_of, name_of

BIN = Path(sys.executable).parent


def run_shell(block, folder):
    """Run a block in bash; a command that fails ends it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DASK_", "COLLAPSIUM_"))}
    environment = kept | {"PATH": f"{BIN}{os.pathsep}{kept['PATH']}", "PROJECT": str(ROOT)}
    command = ["bash", "-euo", "pipefail", "-c", block.text]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"line {block.line}: {block.text}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=name_of(page), marks=[] if name_of(page) in QUICK else pytest.mark.long) for page in PAGES],
)
def test_blocks__run_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = {"__name__": "__main__"}
    for block in blocks_of(page):
        if block.reason is not None:
            continue
        if block.language == "sh":
            run_shell(block, tmp_path)
        elif block.language == "python":
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks__name_their_language_or_say_why_they_are_not_run(page):
    for block in blocks_of(page):
        assert block.language in (*RUNNABLE, *OTHERS) or block.language.startswith("{"), f"line {block.line}"
        assert block.reason is None or len(block.reason) > 10, f"line {block.line}"
    assert not [line for line in page.read_text().splitlines() if line.startswith("    collapsium ")]


def test_readme__links_to_what_is_there():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [part.partition(")")[0] for part in text.split("](")[1:]]
    local = [link.partition("#")[0] for link in links if "://" not in link]
    assert len(local) > 10
    assert [link for link in local if not (ROOT / link).exists()] == []
