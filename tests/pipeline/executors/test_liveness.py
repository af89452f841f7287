"""How the driver interprets the workers' signs of activity while it waits."""

import pytest

from collapsium.pipeline.executors import liveness as watching
from collapsium.pipeline.executors.liveness import Watch, WorkerSign
from collapsium.storage.errors import ClusterError

BUSY = WorkerSign(0.5, 99.0, False, ("sweep-1",))
IDLE = WorkerSign(0.5, 1.0, False, ())
STUCK = WorkerSign(0.5, 0.0, False, ("sweep-2",))
HOST = WorkerSign(0.5, 99.0, False, (), exchanging=True)
PAUSED = WorkerSign(0.5, 90.0, True, ("sweep-3",))


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [1000.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def watch(clock):
    notices = []
    found = Watch(100.0, notices.append)
    found.notices = notices
    found.begin()
    return found


def look(watch, clock, seconds, workers, counter=7, every=10.0):
    """Call `look` at intervals for some seconds; return all workers that were given up."""
    given_up = []
    end = clock[0] + seconds
    while clock[0] < end:
        clock[0] += every
        given_up += watch.look(counter, workers)
    return given_up


@pytest.mark.parametrize("sign", [BUSY, HOST], ids=["task", "host"])
def test_a_computing_worker__may_take_any_time(watch, clock, sign):
    assert look(watch, clock, 10_000, {"a": sign, "b": IDLE}) == []
    assert watch.notices == []


@pytest.mark.parametrize(("sign", "text"), [(STUCK, "is unresponsive at sweep-2"), (PAUSED, "has paused")])
def test_an_inactive_worker__is_reported_and_then_given_up(watch, clock, sign, text):
    watch.look(1, {"a": BUSY, "b": IDLE})
    assert look(watch, clock, 90, {"a": BUSY, "b": sign}) == []
    assert len(watch.notices) == 1
    assert text in watch.notices[0]
    assert "it counts as lost after 100 s" in watch.notices[0]
    assert "b" in look(watch, clock, 20, {"a": BUSY, "b": sign})


def test_an_unresponsive_worker__is_given_up(watch, clock):
    for age in range(0, 110, 10):
        assert watch.look(1, {"a": BUSY, "b": WorkerSign(float(age), 99.0, False, ("sweep-1",))}) == [] or age > 100
        clock[0] += 10
    assert watch.look(1, {"b": WorkerSign(120.0, 99.0, False, ("sweep-1",))}) in (["b"], [])
    assert watch.look(1, {"b": WorkerSign(130.0, 0.0, False, ("sweep-1",))}) == ["b"]


def test_a_worker_that_recovers__is_kept(watch, clock):
    look(watch, clock, 60, {"a": STUCK})
    look(watch, clock, 10, {"a": BUSY}, counter=8)
    assert look(watch, clock, 90, {"a": STUCK}, counter=8) == []


def test_a_worker_shared_with_other_drivers__is_given_up_only_if_unresponsive(watch, clock):
    """Its task may be waiting for a task of another driver; removing the worker would end that task."""
    shared = WorkerSign(0.5, 0.0, False, ("sweep-1",), shared=True)
    assert look(watch, clock, 10_000, {"a": shared}) == []
    assert watch.notices == []
    watch.begin()
    silent = WorkerSign(1000.0, 0.0, False, ("sweep-1",), shared=True)
    watch.look(1, {"a": shared})
    assert "a" in look(watch, clock, 130, {"a": silent})


def test_missing_workers__are_reported_and_then_count_as_lost_work(watch, clock):
    look(watch, clock, 90, {})
    assert watch.notices == ["the cluster has no workers; waiting for some (100 s at most)"]
    with pytest.raises(ClusterError, match="nothing has moved for 110 s with 0 workers"):
        look(watch, clock, 30, {})


def test_tasks_without_a_worker_although_workers_exist__count_as_lost_work(watch, clock):
    watch.look(1, {}, 3)
    watch.look(2, {"a": IDLE}, 3)
    with pytest.raises(ClusterError, match="all workers were lost"):
        watch.look(3, {"a": IDLE}, 3)


def test_idle_workers_without_progress__count_as_lost_work(watch, clock):
    with pytest.raises(ClusterError, match="nothing has moved for 110 s with 1 workers"):
        look(watch, clock, 1000, {"a": IDLE})


def test_idle_workers_with_progress__are_not_reported(watch, clock):
    for counter in range(50):
        assert look(watch, clock, 50, {"a": IDLE}, counter=counter) == []
    assert watch.notices == []


def test_an_unresponsive_scheduler__is_reported_and_then_lost(watch, clock):
    for _ in range(9):
        clock[0] += 10
        watch.silent("timed out")
    assert watch.notices == ["the scheduler does not answer (timed out); waiting 100 s at most"]
    clock[0] += 20
    with pytest.raises(ClusterError, match="the scheduler has not answered for 110 s"):
        watch.silent("timed out")


def test_a_scheduler_that_stops_answering_again__is_reported_again(watch, clock):
    for _ in range(2):
        watch.silent("timed out")
        clock[0] += 10
        watch.look(1, {"a": BUSY})
    assert watch.notices == ["the scheduler does not answer (timed out); waiting 100 s at most"] * 2
