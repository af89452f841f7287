"""Helpers of the checks of deploy/: its place, its YAML, tools that may be absent, and processes to wait for."""

import os
import re
import shutil
import socket
import sys
import time
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
GUIDES = [
    ROOT / "docs" / "howto" / f"{name}.md" for name in ("clusters", "containers", "kubernetes", "systemd", "slurm")
]


def documents(path):
    """The documents of a YAML file."""
    return [part for part in yaml.safe_load_all(path.read_text(encoding="utf-8")) if part is not None]


def document(path):
    """The one document of a YAML file."""
    (only,) = documents(path)
    return only


def keys(tree, before=""):
    """The dotted names of a nested dictionary's leaves; an empty dictionary is one."""
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from keys(value, f"{before}{name}.")
        else:
            yield f"{before}{name}"


def tool(name):
    """The path of a tool of this environment or machine; where there is none, the check is not run."""
    installed = BIN / name
    found = str(installed) if installed.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"not run: {name} absent")
    return found


def environment(**more):
    """This process's environment, with this interpreter's programs first and without settings of the cluster's parts."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("DASK_", "SLURM_", "COLLAPSIUM_"))
    }
    return {**kept, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **more}


def free_port():
    """A free port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_until(happened, seconds=120):
    """Wait for something; return what it came to, or fail."""
    deadline = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < deadline, f"still waiting after {seconds} s for {happened}"
        time.sleep(0.1)
    return found


def blocks(language):
    """The code blocks of the guides to deployment in a language."""
    text = "\n".join(guide.read_text(encoding="utf-8") for guide in GUIDES)
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
