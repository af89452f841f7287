"""A scheduler that does not answer is waited for during the cluster timeout, and no longer."""

import socket
import threading
import time
from types import SimpleNamespace

import pytest

from collapsium.pipeline.executors import dask_cluster as clusters
from collapsium.pipeline.executors import liveness as watching
from collapsium.pipeline.executors.dask_client import close_client, within
from collapsium.pipeline.executors.liveness import Watch, WorkerSign
from collapsium.storage.errors import ClusterError
from tests.waiting import PATIENCE


def test_a_scheduler_that_accepts_connections_but_does_not_answer__is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        before = time.monotonic()
        with pytest.raises(ClusterError, match=f"{address}: the scheduler cannot be reached .no answer within 0.3 s"):
            clusters.reach_cluster(address, 1, watch=Watch(0.3, print))
    assert time.monotonic() - before < 60  # not the minutes for which the start of a cluster is awaited


def test_time_waited_without_an_answer__counts_when_reconnecting(monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: clock[0])
    watch = Watch(300.0, lambda text: None)
    assert watch.deadline() == 1300.0  # the connection was lost at once
    watch.begin()
    watch.look(1, {})
    clock[0] += 301.0
    with pytest.raises(ClusterError, match="nothing has moved for 301 s"):
        watch.look(1, {})
    assert watch.deadline() == 1301.0 + watching.MIN_RECOVERY
    assert watch.deadline() == 1601.0  # a later loss starts a new wait
    watch.begin()
    with pytest.raises(ClusterError, match="all workers were lost"):
        for _ in range(2):
            watch.look(2, {"a": WorkerSign(0.0, 0.0, False, ())}, stranded=1)
    assert watch.deadline() == 1601.0


def test_a_call_that_never_returns__is_abandoned_after_its_timeout():
    never = threading.Event()
    with pytest.raises(TimeoutError, match="no answer within 0.01 s"):
        within(0.01, never.wait)
    never.set()
    assert within(PATIENCE, lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        within(PATIENCE, lambda: 1 // 0)


def test_a_client_that_does_not_close__does_not_block():
    never, timeouts = threading.Event(), []

    def close(timeout):
        timeouts.append(timeout)
        never.wait()

    close_client(SimpleNamespace(close=close), 0.01)
    assert timeouts == [1.0]
    never.set()


def test_a_worker_that_does_not_answer_a_request_to_all__is_an_error(monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: clock[0])
    watch = Watch(30.0, lambda text: None)
    watch.begin()
    watch.answered({"a": WorkerSign(29.0, 0.0, False, ())})
    clock[0] += 29.0
    watch.silent("no answer")
    with pytest.raises(ClusterError, match="worker a has been unresponsive for 31 s"):
        watch.answered({"a": WorkerSign(31.0, 0.0, False, ())})
    clock[0] += 31.0
    with pytest.raises(ClusterError, match="the scheduler has not answered for 31 s"):
        watch.silent("no answer")
