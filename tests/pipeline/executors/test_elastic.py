"""External clusters: cluster objects, scheduler files, workers that join, leave or differ, and concurrent fits."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter

import distributed
import numpy as np
import pytest
from distributed.versions import get_versions

from collapsium.pipeline import fit, resume
from collapsium.pipeline.executors import dask_client
from collapsium.pipeline.executors.open import open_executor
from collapsium.storage.errors import ClusterError, MismatchError, OptionError
from tests.conftest import mark_rest_long
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.xdist_group("clusters")

OPTIONS = {"family": "hdp", "topics": 5, "iterations": 9}


def rows(model):
    return model.rows(0).word_topic


@pytest.fixture(scope="module")
def expected(small, tmp_path_factory):
    return rows(fit(small[0], tmp_path_factory.mktemp("calm") / "run", scheduler="serial", **OPTIONS))


class Computed(distributed.SchedulerPlugin):
    """Counts how often each task was computed, and the hosts of each worker."""

    name = "computed"

    def __init__(self):
        self.times, self.workers = Counter(), Counter()

    def transition(self, key, start, finish, *args, **kwargs):
        if (start, finish) == ("processing", "memory"):
            self.times[str(key)] += 1
            if str(key).startswith("join-"):
                self.workers[kwargs["worker"]] += 1


def hosts_here():
    """Return the names of the threads of hosts that take part in an exchange."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("collapsium-host")]


@pytest.fixture
def cluster():
    """Two workers in this process, which start quickly and must hold no results after a fit."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as started:
        yield started
        wait_until(lambda: not hosts_here())


# commands accept files too
@pytest.mark.parametrize("kind", mark_rest_long(["client", "cluster", "file"], retained=(0, 1)))
def test_fit__accepts_a_client_a_cluster_or_a_scheduler_file_and_leaves_it_open(
    kind, small, tmp_path, cluster, expected
):
    (tmp_path / "scheduler.json").write_text(json.dumps({"address": cluster.scheduler_address}))
    with distributed.Client(cluster) as client:
        scheduler = {"client": client, "cluster": cluster, "file": tmp_path / "scheduler.json"}[kind]
        events = []
        model = fit(small[0], tmp_path / "run", scheduler=scheduler, sinks=[events.append], **OPTIONS)
        np.testing.assert_array_equal(rows(model), expected)
        assert client.submit(sum, [1, 2]).result() == 3
        assert cluster.status.name == "running"
    names = [event["scheduler"] for event in events if event["event"] == "cluster"]
    assert names == [str(scheduler) if kind == "file" else cluster.scheduler_address]


def test_a_driver_that_dies__leaves_nothing_in_the_workers(small, tmp_path):
    seen = []
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=None
    ) as cluster:
        program = f"""
import os
from collapsium.pipeline import fit, resume
def end(event):
    if event["event"] == "iteration" and event["iteration"] == 3:
        os._exit(1)
fit({str(small[0])!r}, {str(tmp_path / "run")!r}, scheduler={cluster.scheduler_address!r}, sinks=[end], **{OPTIONS})
"""
        with subprocess.Popen([sys.executable, "-c", program]) as driver:
            try:
                deadline = time.monotonic() + PATIENCE
                while driver.poll() is None and time.monotonic() < deadline:
                    seen += hosts_here()
                    time.sleep(0.005)
            finally:
                driver.kill()
        assert driver.returncode == 1
        assert set(seen) == {"collapsium-host-0", "collapsium-host-1"}
        wait_until(lambda: not hosts_here())


def test_a_resumed_run_with_an_exchange__lets_the_hosts_read_the_rows_themselves(small, tmp_path, expected, cluster):
    fit(small[0], tmp_path / "run", scheduler="serial", **{**OPTIONS, "iterations": 3}, heldout=small[1])
    computed = Computed()
    cluster.scheduler.add_plugin(computed)
    model = resume(tmp_path / "run", scheduler=cluster, workers=2, iterations=OPTIONS["iterations"])
    np.testing.assert_array_equal(rows(model), expected)
    names = Counter(key.rpartition("-")[0].rpartition("-")[0] for key in computed.times)
    assert {"join", "turn"} <= names.keys()
    assert "swept-rows" not in names
    assert names["read-block"] == names["join"] == 2


def test_a_client_that_was_closed__is_refused(small, tmp_path, cluster):
    client = distributed.Client(cluster)
    client.close()
    with pytest.raises(OptionError, match="scheduler: expected a connected Client, found one that is closed"):
        fit(small[0], tmp_path / "run", scheduler=client, **OPTIONS)
    assert not (tmp_path / "run").exists()


def test_a_scheduler_file_of_a_closed_scheduler__is_a_clear_error(tmp_path, cluster):
    path = tmp_path / "scheduler.json"
    path.write_text(json.dumps({"address": "tcp://127.0.0.1:1"}))
    with pytest.raises(ClusterError, match=f"{path}: tcp://127.0.0.1:1: the scheduler cannot be reached"):
        open_executor(path, cluster_timeout=0.5)


def test_certificates__match_the_object(cluster):
    with pytest.raises(OptionError, match="tls_ca: expected none with a Dask client or cluster object"):
        open_executor(cluster, tls=object())


def test_workers_of_other_versions__are_refused_before_anything_runs(small, tmp_path, cluster, monkeypatch):
    monkeypatch.setattr(
        dask_client, "get_versions", lambda packages: {"packages": {"numpy": "0.9", "collapsium": "0.1.0"}}
    )
    with pytest.raises(MismatchError, match=r"worker \S+ has .*numpy \S+, the driver 0.9 .*and 1 more workers differ"):
        fit(small[0], tmp_path / "run", scheduler=cluster, **OPTIONS)
    assert not (tmp_path / "run").exists()


def wait_for_workers(cluster, workers):
    """Wait until a cluster has this number of workers."""
    wait_until(lambda: len(cluster.scheduler.workers) == workers)


def with_another_numba(packages=None):
    found = get_versions(packages)
    found["packages"]["numba"] = "0.9"
    return found


def test_a_worker_that_joins_with_other_versions__ends_the_fit(small, tmp_path, monkeypatch):
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:

        def slow_and_grow(event):
            if event["event"] == "iteration" and event["iteration"] == 2:
                monkeypatch.setattr("distributed.node.get_versions", with_another_numba)
                cluster.scale(2)
                wait_for_workers(cluster, 2)
            time.sleep(0.2)

        with pytest.raises(MismatchError, match="has numba 0.9, the driver"):
            fit(
                small[0],
                tmp_path / "run",
                scheduler=cluster,
                sinks=[slow_and_grow],
                family="lda",
                topics=2,
                iterations=500,
            )
    assert (tmp_path / "run/checkpoints").exists()


@pytest.mark.long
def test_an_adaptive_cluster__may_scale_while_a_fit_runs(small, tmp_path):
    """The cluster scales from 1 to 4 workers and back: all of them sweep, the bits are the same, and no task runs
    twice."""
    computed, sizes, pauses, last = Computed(), [], [], [time.monotonic()]
    options = {**OPTIONS, "iterations": 60}
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        cluster.scheduler.add_plugin(computed)
        cluster.adapt(minimum=1, maximum=1, interval="100ms", wait_count=1)

        def scale(event):
            if event["event"] != "iteration":
                return
            pauses.append(time.monotonic() - last[0])
            grown = max(sizes, default=1) == 4
            workers = 4 if event["iteration"] == 3 else 1 if grown and len(computed.workers) == 4 else None
            if workers is not None:
                cluster.adapt(minimum=workers, maximum=workers, interval="100ms", wait_count=1)
                wait_for_workers(cluster, workers)
            sizes.append(len(cluster.scheduler.workers))
            # new workers are detected and prepared between iterations
            time.sleep(0.5 if sizes[-1] == 4 else 0.0)
            last[0] = time.monotonic()

        model = fit(small[0], tmp_path / "run", scheduler=cluster, sinks=[scale], **options)
    assert (sizes[0], max(sizes), sizes[-1]) == (1, 4, 1)
    alone = fit(small[0], tmp_path / "alone", scheduler="serial", **options)
    np.testing.assert_array_equal(rows(model), rows(alone))
    assert [key for key, times in computed.times.items() if times > 1] == []
    assert max(pauses[1:]) < 60


def test_retired_workers__hand_over_their_data(small, tmp_path, expected, cluster):
    computed, retired, losses = Computed(), [], []
    cluster.scheduler.add_plugin(computed)
    with distributed.Client(cluster) as client:

        def retire(event):
            if event["event"] == "iteration" and event["iteration"] == 6:
                address = min(cluster.scheduler.workers)
                # during an iteration, after its sweeps were submitted
                thread = threading.Thread(target=lambda: retired.append(client.retire_workers([address])))
                thread.start()
                time.sleep(0.05)
            losses.extend([event] if event["event"] == "back" else [])

        model = fit(small[0], tmp_path / "run", scheduler=client, sinks=[retire], **OPTIONS)
    assert len(retired) == 1
    assert len(retired[0]) == 1
    np.testing.assert_array_equal(rows(model), expected)
    assert losses == []
    assert [key for key, times in computed.times.items() if times > 1] == []


def test_fits_that_share_a_scheduler__do_not_disturb_one_another(small, tmp_path, expected, cluster):
    """They must not share tasks even if they differ in their seed only, so that their tasks might have the same names."""
    computed, found = Computed(), {}
    cluster.scheduler.add_plugin(computed)

    def run(place, seed):
        found[place] = rows(fit(small[0], tmp_path / place / "run", scheduler=cluster, seed=seed, **OPTIONS))

    threads = [threading.Thread(target=run, args=arguments) for arguments in (("one", 0), ("same", 0), ("other", 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = rows(fit(small[0], tmp_path / "alone", scheduler="serial", seed=1, **OPTIONS))
    assert not np.array_equal(alone, expected)
    np.testing.assert_array_equal(found["one"], expected)
    np.testing.assert_array_equal(found["same"], expected)
    np.testing.assert_array_equal(found["other"], alone)
    assert [key for key, times in computed.times.items() if times > 1] == []


def test_a_stopped_fit__cancels_no_tasks_of_another(small, tmp_path, expected, cluster):
    computed, found, stopped = Computed(), [], threading.Event()
    cluster.scheduler.add_plugin(computed)

    def stop(event):
        if event["event"] == "iteration" and event["iteration"] == 4:
            raise KeyboardInterrupt

    def wait(event):
        # this fit has iterations before and after the end of the other
        if event["event"] == "iteration" and event["iteration"] == 2:
            assert stopped.wait(PATIENCE)

    def run():
        found.append(rows(fit(small[0], tmp_path / "whole", scheduler=cluster, sinks=[wait], **OPTIONS)))

    thread = threading.Thread(target=run)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        fit(small[0], tmp_path / "stopped", scheduler=cluster, sinks=[stop], **OPTIONS)
    stopped.set()
    thread.join()
    np.testing.assert_array_equal(found[0], expected)
    assert [key for key, times in computed.times.items() if times > 1] == []


def test_a_cluster_without_workers__starts_one_for_a_fit(small, tmp_path, expected):
    with distributed.LocalCluster(
        n_workers=0, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        cluster.adapt(minimum=0, maximum=2, interval="100ms")
        model = fit(small[0], tmp_path / "run", scheduler=cluster, **OPTIONS)
    np.testing.assert_array_equal(rows(model), expected)


def waited(seconds):
    time.sleep(seconds)


def added(left, right):
    return left + right


def divided(left, right):
    return left // right


def test_functions_for_all_workers__skip_workers_that_leave(cluster):
    executor = open_executor(cluster)
    try:
        with distributed.Client(cluster) as client:
            threading.Timer(0.2, lambda: client.retire_workers([min(cluster.scheduler.workers)])).start()
            assert executor.everywhere(waited, 1.0) in ([None], [None, None])
        assert executor.everywhere(added, 1, 2) == [3]
        with pytest.raises(ZeroDivisionError):
            executor.everywhere(divided, 1, 0)
    finally:
        executor.close()
