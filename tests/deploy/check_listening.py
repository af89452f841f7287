"""Schedulers and workers are started as each example prints them, and what they listen on is looked at."""

import os
import re
import subprocess

import psutil
import pytest

from tests.deploy.reading import BIN, DEPLOY, blocks, document, documents, environment, free_port, wait_until

HERE = "127.0.0.1"
PART = re.compile(r"dask (?:scheduler|worker) (?:[^\n]*\\\n)*[^\n]*")
PLACES = r"\b(?:scheduler|worker)\.example\.org\b|(?<=//)scheduler(?=:)|(?<==)scheduler\b"
OWN = dict.fromkeys(("HOSTNAME", "HOST", "POD_IP"), HERE)
OWN |= {"n": "1", "DASK_WORKER_NAME": "one", "THREADS": "1", "MEMORY": "2GB"}


def printed():
    """Return pairs of commands of the guides that start a scheduler and a worker, without redirections."""
    text = "\n".join(blocks("sh"))
    commands = [re.split(r"\s+(?:\d?>|&$)", found.replace("\\\n", " "))[0] for found in PART.findall(text)]
    return zip(commands[::2], commands[1::2], strict=True)


def unit(name):
    """Return the command of a unit, with the program named without its folder."""
    (line,) = re.findall(r"^ExecStart=\S*/(.*)$", (DEPLOY / "systemd" / name).read_text(), re.MULTILINE)
    return line.replace("%H-%i", "one")


def pods(manifest):
    """The commands of a manifest's scheduler and worker, as a shell has them."""
    spec = manifest["spec"].get("cluster", manifest)["spec"]
    containers = [spec[part]["spec"]["containers"][0] for part in ("scheduler", "worker")]
    return [re.sub(r"\$\((\w+)\)", r"${\1}", " ".join(container["args"])) for container in containers]


def examples():
    """Pairs of commands, a scheduler and a worker, wherever one is printed or set."""
    for number, pair in enumerate(printed()):
        yield pytest.param(*pair, id=f"guide-{number}")
    yield pytest.param(unit("collapsium-scheduler.service"), unit("collapsium-worker@.service"), id="systemd")
    services = document(DEPLOY / "compose.yaml")["services"]
    scheduler, (_, _, line, _, *options) = (services[part]["command"] for part in ("scheduler", "worker"))
    worker = line.removeprefix("exec ").replace("$$", "$").replace('"$@"', " ".join(options))
    yield pytest.param(" ".join(scheduler), worker, id="compose")
    for path in ("cluster.yaml", "job.yaml"):
        (manifest,) = documents(DEPLOY / "kubernetes" / path)
        yield pytest.param(*pods(manifest), id=f"kubernetes-{manifest['kind']}")


EXAMPLES = list(examples())


def placed(command, ports, folder):
    """The command with this machine's address, ports that are free and certificates that are there."""
    command = re.sub(PLACES, HERE, command)
    command = re.sub(r"\b878[678]\b", lambda found: ports[found[0]], command)
    if "dask scheduler" in command and "--port" not in command:
        command += f" --port {ports['8786']}"
    return re.sub(r"(?<= )tls/", f"{folder}/", command)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run([DEPLOY / "make-test-certificates", folder], check=True, capture_output=True)
    return folder


def settings(folder):
    """The environment of tls.env, with its certificates in a folder."""
    lines = [line for line in (DEPLOY / "tls.env").read_text().splitlines() if not line.startswith("#")]
    return dict(line.replace("/etc/collapsium/tls", str(folder)).split("=", 1) for line in lines)


def listening(process):
    """The addresses and ports that a process and those that it has started listen on."""
    first = psutil.Process(process.pid)
    places = [
        place for process in (first, *first.children(recursive=True)) for place in process.net_connections("inet")
    ]
    return {tuple(place.laddr) for place in places if place.status == "LISTEN"}


def test_examples__are_found():
    assert len(EXAMPLES) >= 6
    for scheduler, worker in (example.values for example in EXAMPLES):
        assert "dask scheduler " in scheduler
        assert "dask worker " in worker


@pytest.mark.parametrize(("scheduler", "worker"), EXAMPLES)
def test_scheduler_and_worker__listen_at_the_given_addresses(scheduler, worker, certificates, tmp_path):
    ports = {port: str(free_port()) for port in ("8786", "8787", "8788")}
    protocol, log = "tls" if "tls" in scheduler else "tcp", tmp_path / "log"
    variables = environment(**OWN, **(settings(certificates) if protocol == "tls" else {}))
    variables |= {
        "DASK_CONFIG": str(DEPLOY / "dask.yaml"),
        "DASK_SCHEDULER_ADDRESS": f"{protocol}://{HERE}:{ports['8786']}",
    }
    running = []
    try:
        with log.open("wb") as out:
            for command in (scheduler, worker):
                words = ["bash", "-c", f"exec {placed(command, ports, certificates)}"]
                running.append(subprocess.Popen(words, cwd=tmp_path, env=variables, stdout=out, stderr=out))
        wait_until(
            lambda: "Register worker" in log.read_text() or any(process.poll() is not None for process in running)
        )
        assert [process.poll() for process in running] == [None, None], log.read_text()
        assert f"{protocol}://{HERE}:" in log.read_text()
        wait_until(lambda: len(listening(running[1])) >= 3)  # worker, its page, and its nanny
        assert {ip for process in running for ip, _ in listening(process)} == {HERE}, log.read_text()
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(timeout=60)


def test_what_is_open_to_all__is_found(tmp_path):
    port = free_port()
    variables = environment(DASK_CONFIG=os.devnull)
    command = [str(BIN / "dask"), "scheduler", "--port", str(port), "--no-dashboard"]
    exposed = subprocess.Popen(
        command, cwd=tmp_path, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: listening(exposed))
        assert {ip for ip, _ in listening(exposed)} & {"0.0.0.0", "::"}
    finally:
        exposed.terminate()
        exposed.wait(timeout=60)
