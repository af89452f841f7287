"""The container file: its steps run in empty virtual environments, and what they make starts, is healthy and ends."""

import os
import re
import signal
import subprocess
import time

import pytest

from tests.deploy.containerfile import build, instructions
from tests.deploy.reading import BIN, DEPLOY, ROOT, environment, free_port, tool, wait_until

FILE = DEPLOY / "Containerfile"


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The last stage."""
    return build(FILE, ROOT, tmp_path_factory.mktemp("image"))


def test_image__is_built_and_runs_the_command(image):
    done = image.run([*image.entrypoint, *image.command])
    assert done.returncode == 0, done.stderr
    assert "usage: collapsium" in done.stdout


def test_image__has_the_packages_that_are_pinned(image):
    canonical = lambda name: re.sub(r"[-_.]+", "-", name).lower()  # noqa: E731
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {canonical(line.partition("==")[0]): line.partition("==")[2] for line in lines if "==" in line}
    listed = image.run(["python", "-m", "pip", "list", "--format=freeze"]).stdout.split()
    found = {canonical(line.partition("==")[0]): line.partition("==")[2] for line in listed}
    for package in ("pip", "setuptools", "collapsium"):
        found.pop(package, None)
    assert found.items() <= pinned.items(), found.items() - pinned.items()
    assert {"dask", "distributed", "numba", "s3fs", "dumb-init"} <= set(found)


def test_image__runs_as_no_root(image):
    noted = image.noted.read_text()
    assert f"useradd --uid {image.user} " in noted
    assert "install --directory --owner collapsium /data" in noted
    assert "install --directory --owner collapsium --mode 0700 /tls" in noted
    assert image.user != "0"


def test_base__names_no_registry():
    bases = [argument.partition(" AS ")[0] for name, argument in instructions(FILE) if name == "FROM"]
    assert set(bases) == {"python:3.11.14-slim-bookworm"}


def test_scheduler__is_healthy_and_ends_on_a_signal(image):
    port = free_port()
    words = [*image.entrypoint, "dask", "scheduler", "--host", "127.0.0.1", "--port", "0"]
    variables = {**image.environment(), "HEALTH_PORT": str(port), "HEALTH_HOST": "127.0.0.1"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    ill = subprocess.run(image.health, cwd=image.folder, env=variables, **quiet)
    running = subprocess.Popen(
        [*words, "--dashboard-address", f"127.0.0.1:{port}"], cwd=image.folder, env=variables, **quiet
    )
    try:
        wait_until(lambda: subprocess.run(image.health, cwd=image.folder, env=variables, **quiet).returncode == 0)
        running.terminate()
        assert running.wait(timeout=60) == 0
    finally:
        running.kill()
    assert ill.returncode != 0
    assert image.run(image.health).returncode == 0  # a driver's


def test_driver__keeps_a_checkpoint_when_the_container_is_stopped(image, tmp_path):
    tool("dumb-init")
    variables = environment(PYTHONPATH=os.environ.get("PYTHONPATH", ""))
    draw = [
        "simulate",
        "corpus",
        "--family",
        "lda",
        "--topics",
        "3",
        "--documents",
        "60",
        "--words",
        "50",
        "--tokens",
        "40",
    ]
    subprocess.run([str(BIN / "collapsium"), *draw], cwd=tmp_path, env=variables, check=True, stdout=subprocess.DEVNULL)
    fit = [
        "collapsium",
        "fit",
        "corpus",
        "run",
        "--family",
        "lda",
        "--topics",
        "3",
        "--iterations",
        "1000000",
        "--quiet",
    ]
    running = subprocess.Popen(
        [*image.entrypoint, *fit], cwd=tmp_path, env=variables, stderr=subprocess.PIPE, text=True
    )
    events = tmp_path / "run" / "events.jsonl"
    try:
        wait_until(
            lambda: (events.exists() and events.read_text().count('"iteration"') > 5) or running.poll() is not None
        )
        time.sleep(0.2)
        running.send_signal(signal.SIGTERM)
        _, output = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130, output
    assert "is saved" in output
    assert (tmp_path / "run" / "checkpoints" / "latest.json").exists()
