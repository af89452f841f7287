"""Clusters under TLS whose scheduler is suspended, and workers that are killed for their memory."""

import contextlib
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import distributed
import numpy as np
import pytest

from collapsium.pipeline import TLS, fit, simulate
from collapsium.pipeline.executors import dask, dask_cluster
from collapsium.pipeline.executors.dask_cluster import _security
from collapsium.pipeline.executors.open import open_executor
from collapsium.storage.errors import ClusterError
from tests.chaos.kills import QUIET, free_port
from tests.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("clusters")]
CERTIFICATES = Path(__file__).parents[2] / "deploy/make-test-certificates"
OPTIONS = {"family": "lda", "topics": 5, "iterations": 30}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    place = tmp_path_factory.mktemp("chaos") / "corpus"
    simulate(place, family="lda", documents=300, words=200, tokens=60, topics=5, shard_tokens=3000)
    return place


@contextlib.contextmanager
def encrypted_cluster(place):
    """Start a scheduler and two workers that require certificates; yield the scheduler's process, its address and the
    TLS files."""
    subprocess.run([CERTIFICATES, place / "tls", "127.0.0.1"], check=True, capture_output=True)
    tls = TLS(*(str(place / f"tls/{name}.pem") for name in ("ca", "cert", "key")))
    files = ["--tls-ca-file", tls.ca, "--tls-cert", tls.cert, "--tls-key", tls.key]
    address = f"tls://127.0.0.1:{free_port()}"
    start = [sys.executable, "-m", "dask"]
    words = ["scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2], "--protocol", "tls"]
    processes = [subprocess.Popen([*start, *words, "--no-dashboard", *files], **QUIET)]
    try:
        for number in range(2):
            words = [
                "worker",
                address,
                "--host",
                "127.0.0.1",
                "--nthreads",
                "1",
                "--no-dashboard",
                "--no-nanny",
                *files,
            ]
            folder = ["--local-directory", str(place / f"scratch{number}")]
            processes.append(subprocess.Popen([*start, *words, *folder], **QUIET))
        with distributed.Client(address, security=_security(tls), timeout=PATIENCE, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=PATIENCE)
        yield processes[0], address, tls
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


@pytest.mark.parametrize("difference", [0.3, -0.3], ids=["poll above the timeout", "poll below the timeout"])
def test_a_suspended_scheduler__is_waited_for_whichever_timeout_ends_first(corpus, tmp_path, monkeypatch, difference):
    """With a poll interval above or below Dask's connection timeout, the wait ends with `OSError` or with
    `TimeoutError`."""
    monkeypatch.setitem(dask_cluster.SETTINGS, "distributed.comm.timeouts.connect", "1s")
    for module in (dask, dask_cluster):
        monkeypatch.setattr(module, "CLUSTER_POLL", 1.0 + difference)
    events, frozen = [], []

    def freeze(event):
        events.append(event)
        if event["event"] == "iteration" and event["iteration"] == 5 and not frozen:
            scheduler.send_signal(signal.SIGSTOP)
            frozen.append(threading.Timer(6.0, scheduler.send_signal, [signal.SIGCONT]))
            frozen[0].start()

    with encrypted_cluster(tmp_path) as (scheduler, address, tls):
        model = fit(
            corpus, tmp_path / "run", scheduler=address, workers=2, tls=tls, cluster_timeout=60.0, sinks=[freeze],
            **OPTIONS,
        )  # fmt: skip
        frozen[0].join()
    texts = [event["text"] for event in events if event["event"] == "notice"]
    assert any("the scheduler does not answer" in text for text in texts)
    assert not [event for event in events if event["event"] == "back"]
    undisturbed = fit(corpus, tmp_path / "undisturbed", scheduler="serial", **OPTIONS)
    np.testing.assert_array_equal(model.rows(0).word_topic, undisturbed.rows(0).word_topic)


def grow(flag):
    """Allocate memory without end; with the path of a flag, only in the first call."""
    if flag is not None:
        if Path(flag).exists():
            return 2.0
        Path(flag).touch()
    held = []
    while len(held) < 100:
        held.append(np.ones(2_000_000))
        time.sleep(0.05)
    return 1.0


def test_a_worker_killed_for_its_memory__is_named_with_its_limit_and_advice(tmp_path):
    notices = []
    executor = open_executor("local", 1, 600_000_000, notice=notices.append)
    try:
        assert executor.collect([executor.submit(grow, str(tmp_path / "grown"))]) == [2.0]
    finally:
        executor.close()
    assert len(notices) == 1
    assert notices[0].startswith("worker tls://127.0.0.1:")
    assert (
        "was restarted because it exceeded its memory limit of 600 MB; give each worker more memory, or set"
        in notices[0]
    )


def test_a_worker_killed_repeatedly_for_its_memory__ends_the_fit_with_the_reason():
    notices = []
    executor = open_executor("local", 1, 600_000_000, notice=notices.append)
    try:
        with pytest.raises(ClusterError, match=r"died while running it.* it exceeded its memory limit of 600 MB; give"):
            executor.collect([executor.submit(grow, None)])
        # The last notice may come after the error.
        wait_until(lambda: executor.collect([executor.submit(abs, -1)]) == [1] and len(notices) >= 4)
    finally:
        executor.close()
    assert len(notices) == 4
