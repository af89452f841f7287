"""The forms of the option `scheduler`, including Dask's objects, which are recognised without importing Dask."""

import json
import pickle
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from sklearn.base import clone

from collapsium.pipeline.estimators import CollapsedLDA
from collapsium.pipeline.executors import schedulers
from collapsium.pipeline.executors.schedulers import (
    ClientOrCluster,
    SchedulerOptions,
    address_of,
    as_scheduler,
    check_scheduler,
    is_elsewhere,
)
from collapsium.storage.errors import OptionError

ADDRESS = "tcp://127.0.0.1:8786"


@pytest.fixture
def cluster():
    """A cluster of another library, of which Dask requires only an address."""
    return SimpleNamespace(scheduler_address=ADDRESS, status="running", security="theirs")


def wait_for_files(monkeypatch, appear, complete):
    monkeypatch.setattr(schedulers, "MAX_SECONDS_TO_APPEAR", appear)
    monkeypatch.setattr(schedulers, "MAX_SECONDS_TO_COMPLETE", complete)
    monkeypatch.setattr(schedulers, "POLL_SECONDS", 0.02)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    wait_for_files(monkeypatch, 0.3, 0.2)


@pytest.mark.parametrize("name", ["threads", "serial", "local"])
def test_executors_of_this_machine__are_named(name):
    assert SchedulerOptions(scheduler=name).scheduler == name
    assert not is_elsewhere(name)
    check_scheduler(name, 2)


def test_a_cluster_object__is_identified_by_its_address_and_not_changed(cluster):
    scheduler = SchedulerOptions(scheduler=cluster).scheduler
    assert isinstance(scheduler, ClientOrCluster)
    assert scheduler.source is cluster
    assert (str(scheduler), address_of(scheduler), scheduler.security) == (ADDRESS, ADDRESS, "theirs")
    assert is_elsewhere(cluster)
    check_scheduler(cluster, None)
    assert as_scheduler(scheduler) is scheduler


@pytest.mark.parametrize("status", ["closed", SimpleNamespace(name="closing")])
def test_a_cluster_that_is_closed__is_refused(cluster, status):
    cluster.status = status
    with pytest.raises(OptionError, match="scheduler: expected a connected SimpleNamespace, found one that is clos"):
        address_of(as_scheduler(cluster))


def test_a_cluster_without_a_connection__is_refused(cluster):
    cluster.scheduler_address, cluster.status = "<Not Connected>", None
    with pytest.raises(OptionError, match="found one that is not connected"):
        address_of(as_scheduler(cluster))


@pytest.mark.parametrize("value", [3, object(), ["threads"]])
def test_other_objects__are_refused(value):
    with pytest.raises(OptionError, match="or a Dask client or cluster, found "):
        SchedulerOptions(scheduler=value)


def test_a_misspelled_name__is_refused_with_the_nearest_one():
    with pytest.raises(OptionError, match="or a scheduler file, found 'thread' .did you mean 'threads'"):
        check_scheduler("thread", None)


def test_a_scheduler_file__is_read_each_time(tmp_path):
    path = tmp_path / "scheduler.json"
    path.write_text(json.dumps({"type": "Scheduler", "address": ADDRESS, "workers": {}}))
    scheduler = as_scheduler(path)
    check_scheduler(scheduler, None)
    assert address_of(scheduler) == ADDRESS
    path.write_text(json.dumps({"address": "tls://10.0.0.1:1"}))
    assert address_of(scheduler) == "tls://10.0.0.1:1"


def test_a_scheduler_file_that_is_written_later__is_awaited(tmp_path, monkeypatch):
    wait_for_files(monkeypatch, 30.0, 30.0)
    path = tmp_path / "scheduler.json"

    def write():
        time.sleep(0.1)
        path.write_text('{"addr')
        time.sleep(0.1)
        path.write_text(json.dumps({"address": ADDRESS}))

    writer = threading.Thread(target=write)
    writer.start()
    assert address_of(str(path)) == ADDRESS
    writer.join()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "no such file"),
        (b"", "it is not JSON"),
        (b"\xff\xfe", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"{}", "it has no address of a scheduler"),
        (b'{"address": 3}', "it has no address of a scheduler"),
        (b'["tcp://127.0.0.1:8786"]', "it has no address of a scheduler"),
        ("folder", "it cannot be read"),
    ],
)
def test_an_invalid_scheduler_file__is_a_clear_error(tmp_path, content, fault):
    path = Path(tmp_path / "scheduler.json")
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(OptionError, match=f"expected a file that `dask scheduler --scheduler-file` writes; {fault}"):
        address_of(str(path))


class Unpicklable:
    """Like a client with its threads and sockets, this object cannot be copied."""

    scheduler_address, status = ADDRESS, "running"

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot pickle a socket")


def test_estimators__are_cloned_and_pickled_though_a_client_cannot_be():
    client = Unpicklable()
    estimator = CollapsedLDA(scheduler=client, alpha=0.3)
    cloned = clone(estimator)
    assert cloned.scheduler is client
    assert estimator.scheduler is client
    assert cloned.alpha == 0.3
    assert pickle.loads(pickle.dumps(estimator)).scheduler == ADDRESS
