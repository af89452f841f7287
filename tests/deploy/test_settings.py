"""deploy/dask.yaml: it says what the clusters of our own are set to, in names that Dask knows."""

from pathlib import Path

import dask
import distributed
import yaml

from collapsium.pipeline.executors.dask_cluster import SETTINGS
from tests.deploy.reading import DEPLOY, document, keys

OWN = {"distributed.scheduler.preload"}  # what clusters of our own get otherwise


def settings():
    return document(DEPLOY / "dask.yaml")


def test_settings__match_the_settings_of_local_clusters():
    configured = {name: dask.config.get(name, config=settings()) for name in keys(settings())}
    assert {name: value for name, value in configured.items() if name not in OWN} == SETTINGS
    assert configured["distributed.scheduler.preload"] == ["collapsium.pipeline.monitoring.dask_dashboard.plugin"]


def test_settings__are_names_that_dask_knows():
    known = set()
    for package in (dask, distributed):
        for path in Path(package.__file__).parent.glob("*.yaml"):
            if "schema" not in path.name:
                known |= set(keys(yaml.safe_load(path.read_text(encoding="utf-8")) or {}))
    assert set(keys(settings())) <= known


def test_settings__each_tell_why():
    lines = (DEPLOY / "dask.yaml").read_text(encoding="utf-8").splitlines()
    for name in ("work-stealing", "worker-ttl", "target", "pause", "terminate", "interval", "connect", "limit"):
        places = [number for number, line in enumerate(lines) if line.strip().startswith(f"{name}:")]
        assert places, name
        assert all(lines[place - 1].strip().startswith("# ") for place in places), name
