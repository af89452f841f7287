"""A scheduler that does not answer is waited for as long as was said, not longer."""

import socket
import time

import pytest

from collapsar.pipeline import clusters, watching
from collapsar.pipeline.watching import Watch, WorkerSign
from collapsar.storage.errors import ClusterError


def test_a_scheduler_that_takes_connections_and_says_nothing__is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        before = time.monotonic()
        with pytest.raises(ClusterError, match=f"{address}: the scheduler cannot be reached .no answer within 0.3 s"):
            clusters.reach_cluster(address, 1, watch=Watch(0.3, print))
    assert time.monotonic() - before < 10


def test_waiting_in_vain__counts_when_a_cluster_is_looked_for_again(monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: clock[0])
    watch = Watch(300.0, lambda text: None)
    assert watch.deadline() == 1300.0  # it was lost at once
    watch.begin()
    watch.look(1, {})
    clock[0] += 301.0
    with pytest.raises(ClusterError, match="nothing has moved for 301 s"):
        watch.look(1, {})
    assert watch.deadline() == 1301.0 + watching.MIN_RECOVERY
    assert watch.deadline() == 1601.0  # the next loss is another one
    watch.begin()
    with pytest.raises(ClusterError, match="all workers were lost"):
        for _ in range(2):
            watch.look(2, {"a": WorkerSign(0.0, 0.0, False, ())}, stranded=1)
    assert watch.deadline() == 1601.0
