"""Several fits at once: lost work, and interrupts."""

import threading
import time

import pytest

from collapsium.pipeline import Corpus
from collapsium.pipeline.engine.checkpoints import RunCheckpointer
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.plan import Scratch
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.engine.setup.loading import LoadedCorpus
from collapsium.pipeline.engine.setup.request import Request
from collapsium.pipeline.executors.base import HaltedError, SerialExecutor
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.models.registry import make_options
from collapsium.storage.errors import ClusterError
from collapsium.storage.runs.run import Run
from tests.fits import problem_of
from tests.waiting import PATIENCE


def test_lost_shards__are_loaded_again_by_the_first_fit_that_misses_them(small):
    request = Request(Corpus(small[0]), None, "lda", make_options("lda", {"topics": 2}), Limits(), 0)
    loaded = LoadedCorpus(request, [], SerialExecutor(), Scratch())
    problem, second = loaded.problem(1), loaded.problem(2)
    assert problem.shards == second.shards
    first = list(problem.shards)
    problem.reload()
    assert all(after is not before for after, before in zip(problem.shards, first, strict=True))
    assert all(kept is before for kept, before in zip(second.shards, first, strict=True))
    second.reload()
    assert all(
        second_shard is first_shard for second_shard, first_shard in zip(second.shards, problem.shards, strict=True)
    )
    second.reload()  # shards that were already passed to a fit are lost too
    assert not any(
        second_shard is first_shard for second_shard, first_shard in zip(second.shards, problem.shards, strict=True)
    )


def test_a_loss_while_the_last_iteration_is_saved__repeats_the_iteration(small, tmp_path, monkeypatch):
    problem = problem_of(small[0], "lda", {"topics": 3})
    checkpointer = RunCheckpointer(Run(tmp_path / "run"), problem)
    save_last, losses = checkpointer.save_last, [ClusterError("a worker was lost")]

    def lose_once():
        if losses:
            raise losses.pop()
        return save_last()

    monkeypatch.setattr(checkpointer, "save_last", lose_once)
    course = [(progress.iteration, progress.lost) for _, progress in Fit(problem, Limits(iterations=2), checkpointer)]
    assert course == [(0, ""), (1, ""), (2, ""), (1, "a worker was lost"), (1, ""), (2, "")]
    assert checkpointer.saved_iteration == 2


@pytest.mark.xdist_group("clusters")
def test_a_loss_in_one_thread__is_a_loss_in_all_and_recovered_once(clusters):
    executor = open_executor(clusters(2))
    waiting, met = threading.Event(), []

    def wait():
        executor.collect([executor.submit(int)])
        slow = executor.submit(time.sleep, 30)
        waiting.set()
        try:
            executor.collect([slow])
        except ClusterError as error:
            executor.recover(error)
            met.append(str(error))
        met.append(executor.collect([executor.submit(int)]))

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(PATIENCE)
    executor.recover(ClusterError("on purpose"))
    assert executor.collect([executor.submit(int)]) == [0]
    thread.join(timeout=PATIENCE)
    assert met == ["work was lost, as another thread has found", [0]]
    executor.recover(ClusterError("again"))
    assert executor.collect([executor.submit(int)]) == [0]
    executor.close()


def test_waiting_threads__are_interrupted_once():
    executor = open_executor("threads", 1)
    gate, met = threading.Event(), []

    def wait():
        blocked = executor.submit(gate.wait)
        try:
            executor.collect([blocked])
        except KeyboardInterrupt:
            met.append("interrupted")
        gate.set()
        met.append(executor.collect([blocked])[0])

    thread = threading.Thread(target=wait)
    thread.start()
    executor.halt()
    thread.join(timeout=PATIENCE)
    assert met == ["interrupted", True]
    assert executor.collect([executor.submit(int)]) == [0]  # the interrupting thread itself is not interrupted
    executor.close()
    SerialExecutor().halt()


def test_threads_that_wait_while_another_fails__are_not_interrupted():
    executor = open_executor("threads", 1)
    gate, met = threading.Event(), []

    def wait():
        try:
            executor.collect([executor.submit(gate.wait)])
        except HaltedError:
            met.append("halted")
        gate.set()

    thread = threading.Thread(target=wait)
    thread.start()
    executor.halt(failed=True)
    thread.join(timeout=PATIENCE)
    assert met == ["halted"]
    executor.close()
