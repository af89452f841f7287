"""Dask as executor: lost workers, remote schedulers, and a bounded load on the scheduler."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import distributed
import numpy as np
import psutil
import pytest

from collapsium.pipeline import Model, fit
from collapsium.pipeline.engine.checkpoints import RunCheckpointer
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.executors import dask_client
from collapsium.pipeline.executors.dask_client import gathered
from collapsium.pipeline.executors.open import open_executor
from collapsium.storage.errors import ClusterError, ClusterGoneError, OptionError
from collapsium.storage.runs.run import Run
from collapsium.workers import exchange
from tests.fits import problem_of, resumed
from tests.waiting import PATIENCE

pytestmark = pytest.mark.xdist_group("clusters")


def rows(model):
    return model.rows(0).word_topic


def two_workers():
    return distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
    )


def test_a_killed_worker__does_not_change_the_bits(small, tmp_path):
    expected = rows(fit(small[0], tmp_path / "calm", family="hdp", topics=5, iterations=12, scheduler="serial"))
    with two_workers() as cluster:
        killed = []

        def kill(event):
            if event["event"] == "iteration" and event["iteration"] == 5 and not killed:
                nanny = next(iter(cluster.workers.values()))
                killed.append(nanny.process.process.pid)
                nanny.process.process.kill()
                time.sleep(0.5)

        model = fit(
            small[0], tmp_path / "run", family="hdp", topics=5, iterations=12,
            scheduler=cluster.scheduler_address, sinks=[kill],
        )  # fmt: skip
    assert killed
    np.testing.assert_array_equal(rows(model), expected)


def _beside_the_loop():
    return threading.current_thread() is not threading.main_thread()


def test_functions_for_all_workers__run_outside_their_event_loop(clusters):
    """A worker that compiled kernels in its event loop would not respond meanwhile, and be given up."""
    executor = open_executor(clusters(2))
    try:
        assert executor.everywhere(_beside_the_loop) == [True, True]
        assert executor.moved() >= 0  # functions that take the worker receive it as argument
    finally:
        executor.close()


def test_a_closed_executor__sends_nothing_to_workers(clusters):
    """An exchange may be abandoned after its client was closed; messages that are never sent must not give warnings."""
    executor = open_executor(clusters(2))
    executor.close()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        executor.tell(os.getpid)
        gc.collect()
    assert not any("never awaited" in str(warning.message) for warning in seen)


def test_a_request_that_is_cancelled_at_any_moment__does_not_block_later_ones():
    """Dask's client merges requests, and would wait forever for one that was cancelled just before it was sent."""

    async def cancel_after(steps, client, future):
        request = asyncio.ensure_future(gathered(client, [future]))
        for _ in range(steps):
            await asyncio.sleep(0)
        request.cancel()
        return await asyncio.wait_for(gathered(client, [future]), PATIENCE)

    async def cancel_all():
        cluster = distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None, asynchronous=True)
        async with cluster, distributed.Client(cluster, asynchronous=True, set_as_default=False) as client:
            future = client.submit(abs, -1)
            await gathered(client, [future])
            return [await cancel_after(steps, client, future) for steps in range(20)]

    assert asyncio.run(cancel_all()) == [[1]] * 20


def test_concurrent_connections_between_hosts__are_limited():
    """If all connections were opened at the same time, all would take too long."""
    under_way, counts = [], []

    async def answer(fields):
        under_way.append(fields)
        counts.append(len(under_way))
        await asyncio.sleep(0.001)
        under_way.remove(fields)

    async def send_all():
        worker = SimpleNamespace(rpc=lambda address: SimpleNamespace(**{dask_client.OPERATION: answer}))
        transit = asyncio.Semaphore(dask_client.MAX_IN_TRANSIT)
        messages = (exchange.Message("token", host, 0, exchange.Kind.SUMS, 0, host, ()) for host in range(64))
        await asyncio.gather(
            *(dask_client._send(worker, str(message.receiver), message, transit) for message in messages)
        )

    asyncio.run(send_all())
    assert (len(counts), max(counts)) == (64, dask_client.MAX_IN_TRANSIT)


def _pid(seconds):
    time.sleep(seconds)
    return os.getpid()


def test_strict_tasks__stay_on_their_worker_despite_work_stealing(clusters):
    """The other worker is idle, and would otherwise steal most of the tasks."""
    executor = open_executor(clusters(2))
    try:
        first = executor.collect([executor.submit(_pid, 0.0, process=1)])
        tasks = [executor.submit(_pid, 0.02, process=1, strict=True) for _ in range(40)]
        assert set(executor.collect(tasks)) == set(first)
    finally:
        executor.close()


def test_checkpoints_with_work_stealing__find_each_local_state(small, tmp_path, clusters):
    """A stolen task would leave a copy of a host's states on another worker, which is never used again."""
    executor = open_executor(clusters(2))
    try:
        problem = problem_of(small[0], "lda", {"topics": 3}, executor=executor)
        checkpointer = RunCheckpointer(Run(tmp_path / "c"), problem, min_seconds=0.0, max_time_share=1e9)
        losses = [progress.lost for _, progress in Fit(problem, Limits(iterations=12), checkpointer)]
        copies = executor._client.who_has(checkpointer.last.state.blocks.exchange._held)
        assert not any(losses)
        assert [len(workers) for workers in copies.values()] == [1, 1]
    finally:
        executor.close()


@pytest.mark.long
def test_checkpoints__cut_the_lineage_of_tasks(small, tmp_path, clusters):
    """Without releases, the scheduler would remember every sweep."""
    executor = open_executor(clusters(2))
    try:
        problem = problem_of(small[0], "lda", {"topics": 3}, executor=executor)
        checkpointer = RunCheckpointer(Run(tmp_path / "c"), problem, min_seconds=0.0, max_time_share=1e9)
        held = []
        for state, _ in Fit(problem, Limits(iterations=20), checkpointer):
            if state.iteration in (5, 20):
                held.append(executor._client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))
    finally:
        executor.close()
    # futures are released with a delay; without the cut, 15 iterations would add more than 200 tasks
    assert held[1] < held[0] + 75


@pytest.mark.long
def test_errors_in_tasks__are_raised_unchanged(clusters):
    def fail():
        raise OptionError("on purpose")

    executor = open_executor(clusters(1))
    try:
        with pytest.raises(OptionError, match="on purpose"):
            executor.collect([executor.submit(fail)])
    finally:
        executor.close()


def test_a_scheduler_without_workers__is_a_clear_error(monkeypatch, caplog):
    with distributed.LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=None) as cluster:
        monkeypatch.setattr("collapsium.pipeline.executors.dask_cluster.QUIET_START", 0.2)
        with pytest.raises(ClusterError, match="has 0 of 2 workers after 0.5 s; start more with `dask worker"):
            open_executor(cluster.scheduler_address, workers=2, cluster_timeout=0.5)
    log_messages = [record.getMessage() for record in caplog.records if record.name == "collapsium"]
    assert len(log_messages) == 1
    assert log_messages[0].endswith("has 0 of 2 workers; waiting for more (0 s at most)")


@pytest.mark.long
def test_a_worker_that_runs_in_another_folder__finds_and_writes_the_same_files(small, tmp_path, monkeypatch, clusters):
    address = clusters(1)
    monkeypatch.chdir(tmp_path)
    Path("train").symlink_to(small[0])
    fit("train", "run", family="lda", topics=2, iterations=2, scheduler=address, heldout=small[1])
    assert sorted(path.name for path in Path("run/model").iterdir()) == [
        "documents", "global_state", "model.json", "rows", "summary.json", "vocabulary.parquet",
    ]  # fmt: skip
    assert Path(Run("run").record()["corpus"]["url"]).is_absolute()


def test_workers_with_another_file_system__are_detected(small, tmp_path, monkeypatch):
    from collapsium.storage.runs.model import ModelWriter

    monkeypatch.setattr(ModelWriter, "write_block", lambda self, number, rows: (f"rows/{number:05d}", "0" * 64))
    with pytest.raises(ClusterError, match="expected a folder that the driver and all workers share"):
        fit(small[0], tmp_path / "run", family="lda", topics=2, iterations=2, scheduler="serial")
    assert not (tmp_path / "run/model").exists()


@pytest.mark.long
def test_one_shard_and_more_workers__can_be_fitted(tmp_path, small, clusters):
    from tests.conftest import write_corpus

    corpus = write_corpus(tmp_path / "c", [{0: 2, 1: 1}, {1: 4}], 2)
    model = fit(corpus, tmp_path / "run", family="lda", topics=2, iterations=3, scheduler=clusters(3))
    assert rows(model).sum() == pytest.approx(7, rel=1e-6)
    assert rows(Model(tmp_path / "run")).shape == (2, 2)


def eat(flag):
    """Allocate more memory than a worker may, the first time."""
    if not Path(flag).exists():
        Path(flag).touch()
        eaten = np.ones(150_000_000)
        time.sleep(20)
        return float(eaten[0])
    return 2.0


@pytest.mark.long
def test_a_worker_that_runs_out_of_memory__is_restarted_and_its_task_repeated(tmp_path):
    executor = open_executor("local", 1, 500_000_000)
    try:
        assert executor.collect([executor.submit(eat, str(tmp_path / "eaten"))]) == [2.0]
    finally:
        executor.close()
    assert (tmp_path / "eaten").exists()


def workers_of_ours():
    return [
        child.pid
        for child in psutil.Process().children(recursive=True)
        if "spawn_main" in " ".join(child.cmdline()) and "collapsium" not in " ".join(child.cmdline())
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    "number", [signal.SIGSTOP, signal.SIGKILL], ids=["one of two hangs", "the local one is killed"]
)
def test_workers_that_hang_or_are_missing__are_replaced_without_changing_the_bits(small, tmp_path, number):
    options = {"family": "hdp", "topics": 5, "iterations": 12}
    expected = rows(fit(small[0], tmp_path / "calm", **options))
    before, events, done = set(workers_of_ours()), [], []
    hangs = number == signal.SIGSTOP

    def disturb(event):
        events.append(event)
        if event["event"] == "iteration" and event["iteration"] == 5 and not done:
            done.append(1)
            started = sorted(set(workers_of_ours()) - before)
            assert len(started) == 1 + hangs
            os.kill(started[0], number)

    with contextlib.ExitStack() as stack:
        scheduler = stack.enter_context(two_workers()) if hangs else "local"
        model = fit(
            small[0],
            tmp_path / "run",
            scheduler=scheduler,
            workers=2,
            cluster_timeout=8.0 if hangs else 40.0,
            sinks=[disturb],
            **options,
        )
    np.testing.assert_array_equal(rows(model), expected)
    notices = [event["text"] for event in events if event["event"] == "notice"]
    assert any("is unresponsive" in text for text in notices) == hangs
    assert any("is lost; others do its work" in text for text in notices) == hangs


@pytest.mark.long
def test_a_scheduler_that_is_lost_for_good__is_a_clear_error_within_the_timeout(small, tmp_path):
    script = "import distributed, time\n" + textwrap.dedent("""
        if __name__ == "__main__":
            cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None)
            print(cluster.scheduler_address, flush=True)
            time.sleep(300)
    """)
    (tmp_path / "cluster.py").write_text(script)
    process = subprocess.Popen([sys.executable, tmp_path / "cluster.py"], stdout=subprocess.PIPE, text=True)
    address = process.stdout.readline().strip()

    def kill(event):
        if event["event"] == "iteration" and event["iteration"] == 3:
            process.kill()

    try:
        with pytest.raises(ClusterGoneError, match="the cluster cannot be reached again within 12 s"):
            fit(
                small[0], tmp_path / "run", family="lda", topics=3, iterations=500, scheduler=address, cluster_timeout=12.0,
                sinks=[kill], checkpoint_every=2,
            )  # fmt: skip
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert Run(tmp_path / "run").checkpoints.latest() >= 2
    resumed(tmp_path / "run", iterations=10)
    np.testing.assert_array_equal(
        rows(Model(tmp_path / "run")), rows(fit(small[0], tmp_path / "calm", family="lda", topics=3, iterations=10))
    )


@pytest.mark.parametrize(("host", "exposed"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_cluster_that_listens_on_all_interfaces__gives_one_notice(host, exposed):
    notices = []
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://", host=host, dashboard_address=None
    ) as cluster:
        port = cluster.scheduler.listeners[0].get_host_port()[1]
        executor = open_executor(f"tcp://127.0.0.1:{port}", notice=notices.append)
        executor.close()
    assert len(notices) == exposed
    assert all("listens on all interfaces without TLS" in line and "--host" in line for line in notices)
