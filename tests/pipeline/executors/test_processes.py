"""Environments in which a fit starts: scripts with and without a guard, daemonic processes, and tasks of Dask workers."""

import logging
import multiprocessing
import runpy
import subprocess
import sys
import warnings

import distributed
import numpy as np
import pytest

from collapsium.pipeline import fit
from collapsium.pipeline.executors import dask_cluster
from collapsium.pipeline.executors import open as opening
from collapsium.pipeline.executors.dask_client import ignore_large_graphs
from collapsium.pipeline.executors.open import open_executor
from collapsium.storage.errors import ClusterError, OptionError
from tests.waiting import PATIENCE

pytestmark = pytest.mark.xdist_group("clusters")
OPTIONS = {"family": "lda", "topics": 3, "iterations": 3}
CALL = "open_executor('local', 1).close()"
OPEN = "from collapsium.pipeline.executors.open import open_executor\n"
GUARD = 'if __name__ == "__main__":\n'
REFUSED = {
    "at the top": f"{OPEN}{CALL}\n",
    "in a function": f"{OPEN}def main():\n    {CALL}\nlog = __name__\nmain()\n",
    "under another condition": f"{OPEN}if True:\n    {CALL}\n",
}
ACCEPTED = {
    "under the guard": f"{OPEN}{GUARD}    {CALL}\n",
    "in a function": f"{OPEN}def main():\n    {CALL}\n{GUARD}    main()\n",
    "after a guard that ends": f"import sys\n{OPEN}if __name__ != '__main__':\n    sys.exit()\n{CALL}\n",
    "for the first process": f"import multiprocessing\n{OPEN}if multiprocessing.parent_process() is None:\n    {CALL}\n",
}


class StartedError(Exception):
    """Raised in place of starting a cluster."""


@pytest.fixture
def run_script(tmp_path, monkeypatch):
    """Run a script as the main one of this process, where no cluster is started."""

    def start(**options):
        raise StartedError

    monkeypatch.setattr(dask_cluster.distributed, "LocalCluster", start)

    def run(text):
        (tmp_path / "script.py").write_text(text)
        runpy.run_path(str(tmp_path / "script.py"), run_name="__main__")

    return run


def refusal(place, text):
    """Return the message that refuses a script."""
    number = text.splitlines().index("main()" if "def main" in text else text.splitlines()[-1]) + 1
    return (
        f"scheduler: local starts a process that imports {place}/script.py, line {number}, again, and so "
        'would begin this fit anew; put it under `if __name__ == "__main__":`, or use threads'
    )


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_a_script_without_a_guard__is_refused_before_a_process_starts(tmp_path, run_script, text):
    with pytest.raises(OptionError) as refused:
        run_script(text)
    assert str(refused.value) == refusal(tmp_path, text)


def test_a_script_without_a_guard__ends_in_one_error(tmp_path):
    text = REFUSED["in a function"]
    (tmp_path / "script.py").write_text(text)
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(f"OptionError: {refusal(tmp_path, text)}")
    assert done.stderr.count("Traceback") == 1


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED)
def test_a_script_with_a_guard__starts_processes(run_script, text):
    with pytest.raises(StartedError):
        run_script(text)


def test_a_daemonic_process__is_refused(monkeypatch):
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    with pytest.raises(OptionError, match=r"^scheduler: local starts a process, which a daemonic process, such as a"):
        open_executor("local", 1)


def test_processes_that_cannot_start__are_an_error_of_one_line(monkeypatch):
    def fail(**options):
        raise RuntimeError("Nanny failed to start.") from RuntimeError("Nanny failed to start worker process")

    monkeypatch.setattr(dask_cluster.distributed, "LocalCluster", fail)
    with pytest.raises(
        ClusterError, match=r"could not be started \(Nanny failed to start worker process\): it imports"
    ):
        open_executor("local", 1)


@pytest.mark.parametrize("scheduler", ["threads", "same"])
def test_a_fit_in_a_task_of_a_worker__ends(small, tmp_path, scheduler):
    """This includes fits on the worker's cluster itself, whose only thread the task occupies."""
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        options = {**OPTIONS, "scheduler": cluster.scheduler_address if scheduler == "same" else scheduler}
        future = client.submit(lambda: fit(small[0], tmp_path / "run", **options).rows(0).word_topic, pure=False)
        found = future.result(timeout=PATIENCE)
    calm = fit(small[0], tmp_path / "calm", scheduler="serial", **OPTIONS)
    np.testing.assert_array_equal(found, calm.rows(0).word_topic)


def test_a_warning_about_large_graphs__does_not_reach_users():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ignore_large_graphs()
        warnings.warn(
            "Sending large graph of size 22.89 MiB.\nThis may cause some slowdown.", UserWarning, stacklevel=1
        )
        warnings.warn("Sending another", UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in caught] == ["Sending another"]


def test_levels_of_dasks_loggers__are_restored_after_a_command():
    code = (
        "import logging; logging.getLogger('distributed').setLevel(logging.CRITICAL)\n"
        "from collapsium.pipeline.executors.open import _same_log_level\n"
        "with _same_log_level():\n    import distributed\n"
        "print(*(logging.getLogger(name).level for name in ('distributed', 'distributed.client')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.split() == [str(logging.CRITICAL)] * 2
    assert opening.DASK_LOGGERS == ("distributed", "distributed.client")
