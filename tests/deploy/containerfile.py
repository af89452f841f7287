"""Runs the steps of a Containerfile without containers: each stage an empty virtual environment and an empty tree."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pip

KNOWN = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


def instructions(path):
    """The instructions of a Containerfile and what they say, their lines joined."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, argument = line.partition(" ")
            assert name in KNOWN, f"a step that is not known here: {line}"
            yield name, argument.strip()


class Stage:
    """A stage of the image: a tree in place of the root, and a virtual environment in place of the base image's Python."""

    def __init__(self, folder, base):
        self.base, self.root, self.venv = base, folder / "root", folder / "venv"
        self.env, self.user = {}, "root"
        self.entrypoint, self.command, self.health = [], [], []
        self.root.mkdir(parents=True)
        venv.create(self.venv, symlinks=True)
        site = self.venv / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        (site / "pip").symlink_to(Path(pip.__file__).parent)  # sooner there than installed
        self.folder = self.root
        for name in ("useradd", "install"):  # what only root may do is noted
            path = self.venv / "bin" / name
            path.write_text(f'#!/bin/sh\necho "{name} $*" >>"{folder / "noted"}"\n')
            path.chmod(0o755)
        self.noted = folder / "noted"

    def at(self, path):
        """The local path of a path in the image."""
        return self.root / path.lstrip("/") if path.startswith("/") else self.folder / path

    def environment(self):
        """The environment of the image's processes; packages come out of this machine's cache, and are not compiled."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("DASK_", "PYTHON", "VIRTUAL"))
        }
        declared = {name: self._placed(value) for name, value in self.env.items() if not name.startswith("PIP_")}
        return {
            **kept,
            "PIP_NO_COMPILE": "0",
            **declared,
            "PATH": f"{self.venv / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }

    def _placed(self, value):
        return str(self.at(value)) if value.startswith("/") else value

    def run(self, words, **more):
        """Run a program of the image; return what it did."""
        return subprocess.run(words, cwd=self.folder, env=self.environment(), capture_output=True, text=True, **more)


def build(path, context, folder):
    """Run all steps; return the last stage."""
    stages, names = [], {}
    for name, argument in instructions(path):
        if name == "FROM":
            base, _, title = argument.partition(" AS ")
            stages.append(Stage(folder / f"stage-{len(stages)}", base))
            names[title] = stages[-1]
            continue
        stage = stages[-1]
        if name == "WORKDIR":
            stage.folder = stage.at(argument)
            stage.folder.mkdir(parents=True, exist_ok=True)
        elif name == "COPY":
            _copy(argument, stage, context, names)
        elif name == "RUN":
            done = stage.run(["sh", "-ec", argument])
            assert done.returncode == 0, f"RUN {argument}\n{done.stdout}{done.stderr}"
        elif name == "ENV":
            stage.env |= dict(word.split("=", 1) for word in shlex.split(argument))
        elif name == "USER":
            stage.user = argument
        elif name == "HEALTHCHECK":
            stage.health = json.loads(argument.partition(" CMD ")[2])
        else:
            setattr(stage, {"ENTRYPOINT": "entrypoint", "CMD": "command"}[name], json.loads(argument))
    return stages[-1]


def _copy(argument, stage, context, names):
    *sources, target = argument.split()
    origin = None
    if sources[0].startswith("--from="):
        origin = names[sources.pop(0).removeprefix("--from=")]
    for source in sources:
        found = context / source if origin is None else origin.at(source)
        place = stage.at(target)
        if found.is_dir():
            shutil.copytree(found, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(found, place / Path(source).name if target.endswith("/") else place)
