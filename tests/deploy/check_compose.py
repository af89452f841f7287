"""compose.yaml, Prometheus and Grafana: schemas, and that they name one another rightly."""

import json
import re
import subprocess
import sys

import pytest

from tests.deploy.reading import BIN, DEPLOY, ROOT, document, tool

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


def test_compose__mounts_existing_files():
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


def test_dask__has_certificates_and_boards_have_no_password():
    for name in ("scheduler", "worker", "driver"):
        variables = SERVICES[name]["environment"]
        assert variables["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "true"
        assert variables["DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT"] == "/tls/cert.pem"
        assert "tls:/tls" in SERVICES[name]["volumes"]
    assert SERVICES["grafana"]["environment"]["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"


def test_certificates__are_made_once_and_for_their_owner_alone(tmp_path):
    program = SERVICES["certificates"]["command"][2].replace("/tls", str(tmp_path))
    names = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program], check=True)
        names.append({path.name: (path.stat().st_mode & 0o777, path.read_text()) for path in tmp_path.iterdir()})
    assert names[0] == names[1]
    assert {name: mode for name, (mode, _) in names[0].items()} == dict.fromkeys(
        ("ca.pem", "cert.pem", "key.pem"), 0o600
    )
    assert "PRIVATE KEY" in names[0]["key.pem"][1]


def test_prometheus__scrapes_existing_services():
    jobs = document(DEPLOY / "prometheus.yaml")["scrape_configs"]
    asked = {target for job in jobs for part in job.get("static_configs", []) for target in part["targets"]}
    asked |= {
        f"{name}:{part['port']}" for job in jobs for part in job.get("dns_sd_configs", []) for name in part["names"]
    }
    listens = {
        f"{name}:{service['environment']['HEALTH_PORT']}"
        for name, service in SERVICES.items()
        if "HEALTH_PORT" in str(service)
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
    (provider,) = document(provisioning / "dashboards" / "collapsium.yaml")["providers"]
    assert source["url"] == "http://prometheus:9090"
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in SERVICES["grafana"]["volumes"]
    assert "./grafana/provisioning:/etc/grafana/provisioning:ro" in SERVICES["grafana"]["volumes"]


def expressions(tree):
    """The queries of a board, wherever they stand."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            if name in ("expr", "definition") and isinstance(value, str):
                yield value
            yield from expressions(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from expressions(value)


def test_boards__name_metrics_that_exist():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "pipeline").rglob("*.py")]
    exported = {name for text in sources for name in re.findall(r'"(?:collapsium_)?([a-z][a-z_]*)"', text)}
    for path in (DEPLOY / "grafana" / "dashboards").glob("*.json"):
        board = json.loads(path.read_text(encoding="utf-8"))
        named = {name for expression in expressions(board) for name in re.findall(r"\bcollapsium_(\w+)", expression)}
        plain = {re.sub(r"_(total|sum|count|created)$", "", name) for name in named}
        assert board["uid"] == "collapsium"
        assert plain
        assert plain <= exported, plain - exported
