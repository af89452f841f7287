"""Settings of fits in Dask's configuration: the resources of workers that take part, and the number of workers."""

import os

import dask
import distributed
import pytest

from collapsium.pipeline.executors.dask_client import required_resources, required_workers
from collapsium.pipeline.executors.dask_cluster import reach_cluster
from collapsium.pipeline.executors.liveness import Watch
from collapsium.pipeline.executors.schedulers import ClientOrCluster
from collapsium.storage.errors import ClusterError, OptionError


@pytest.fixture(scope="module")
def cluster():
    """A worker with the resource ``topics`` and one without."""
    options = {"nthreads": 1, "protocol": "tcp://"}
    resources = [{"topics": 1.0}, {}]
    workers = {
        number: {"cls": distributed.Worker, "options": {**options, "resources": worker_resources, "name": number}}
        for number, worker_resources in enumerate(resources)
    }
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard": False, "protocol": "tcp://", "port": 0}}
    with distributed.SpecCluster(workers=workers, scheduler=scheduler) as started:
        yield started


def worker_name(_):
    return distributed.get_worker().name


def pid_of(_):
    return os.getpid()


def test_tasks__run_only_on_workers_with_the_required_resources(cluster):
    with dask.config.set({"collapsium.resources": {"topics": 1}, "collapsium.workers": 1}):
        executor = reach_cluster(ClientOrCluster(cluster), None)
        try:
            assert executor.processes == 1
            assert executor.collect([executor.submit(worker_name, n, process=n) for n in range(4)]) == [0] * 4
            assert executor.everywhere(pid_of, None) == [os.getpid()]
        finally:
            executor.close()


def test_workers_without_the_resources__do_not_count(cluster):
    with (
        dask.config.set({"collapsium.resources": {"topics": 1}, "collapsium.workers": 2}),
        pytest.raises(ClusterError, match="1 of 2 workers with topics=1 after"),
    ):
        reach_cluster(ClientOrCluster(cluster), None, watch=Watch(0.5, print))


def test_settings__have_defaults_and_are_checked():
    assert (required_resources(), required_workers()) == ({}, 1)
    for name, value in (("resources", {"topics": -1}), ("resources", "topics"), ("workers", 0)):
        with dask.config.set({f"collapsium.{name}": value}), pytest.raises(OptionError, match=f"collapsium.{name}: "):
            required_resources(), required_workers()
