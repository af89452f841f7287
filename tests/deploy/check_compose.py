"""compose.yaml, Prometheus and Grafana: schemas, and that they name one another rightly."""

import subprocess

import pytest

from tests.deploy.reading import BIN, DEPLOY, document, tool

COMPOSE = DEPLOY / "compose.yaml"
SERVICES = document(COMPOSE)["services"]


def test_compose__fits_its_schema():
    words = [str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_compose__is_read_by_docker():
    docker = tool("docker")
    if subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        pytest.skip("not run: docker compose absent")
    done = subprocess.run(
        [docker, "compose", "--file", str(COMPOSE), "config", "--quiet"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_compose__mounts_files_that_are_there():
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / source).exists(), source
    assert (DEPLOY / SERVICES["scheduler"]["build"]["dockerfile"].removeprefix("deploy/")).exists()


def test_ports__are_open_to_this_machine_only():
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_prometheus__asks_services_that_are_there():
    jobs = document(DEPLOY / "prometheus.yaml")["scrape_configs"]
    asked = {target for job in jobs for part in job.get("static_configs", []) for target in part["targets"]}
    asked |= {
        f"{name}:{part['port']}" for job in jobs for part in job.get("dns_sd_configs", []) for name in part["names"]
    }
    listens = {
        f"{name}:{one['environment']['HEALTH_PORT']}" for name, one in SERVICES.items() if "HEALTH_PORT" in str(one)
    }
    assert asked == listens


def test_prometheus__is_read_by_promtool():
    done = subprocess.run(
        [tool("promtool"), "check", "config", str(DEPLOY / "prometheus.yaml")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_grafana__is_given_the_boards_and_the_source():
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = document(provisioning / "datasources" / "prometheus.yaml")["datasources"]
    (provider,) = document(provisioning / "dashboards" / "collapsar.yaml")["providers"]
    assert source["url"] == "http://prometheus:9090"
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in SERVICES["grafana"]["volumes"]
    assert "./grafana/provisioning:/etc/grafana/provisioning:ro" in SERVICES["grafana"]["volumes"]
