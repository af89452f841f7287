"""Sweeps that free each local state as soon as its successor exists: memory, results, and interrupts."""

import threading
import weakref
from dataclasses import replace

import pytest

from collapsium.pipeline import fit, resume
from collapsium.pipeline.engine import estimate
from collapsium.pipeline.engine.checkpoints import Checkpointer, RunCheckpointer
from collapsium.pipeline.engine.loop import Fit
from collapsium.pipeline.engine.setup.limits import Limits
from collapsium.pipeline.executors.base import HaltedError
from collapsium.pipeline.executors.threads import ThreadExecutor
from collapsium.storage.runs.run import Run
from collapsium.workers import tasks
from tests.fits import bits, problem_of, state_bits


@pytest.fixture
def executor():
    opened = ThreadExecutor(2)
    yield opened
    opened.close()


def replacing(problem):
    return replace(problem, scratch=replace(problem.scratch, replaced=True))


def course_of(problem, limits):
    """Return the progress of a fit's iterations, and the bits of its last state."""
    last = Checkpointer()
    reports = [(p.iteration, p.change, p.metrics, p.stop_reason) for _, p in Fit(problem, limits, last)]
    return reports, state_bits(last.last.state)


LIMITS = {
    "all iterations": {"iterations": 5},
    "until the counts hardly change": {"iterations": 40, "tolerance": 0.2},
    "with samples": {"iterations": 6, "samples": 2, "sample_every": 2},
}


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("family", ["lda", "hdp", "gibbs-lda", "ncrp"])
def test_results__do_not_depend_on_whether_states_are_replaced(small, executor, family, limits):
    problem = problem_of(small[0], family, {} if family == "ncrp" else {"topics": 4}, executor=executor)
    given = Limits(**LIMITS[limits])
    assert course_of(replacing(problem), given) == course_of(problem, given)


def test_a_labelled_fit_that_cannot_change_any_more__ends_with_its_local_states(labelled_small, executor):
    problem = problem_of(labelled_small[0], "labeled-lda", {}, executor=executor)
    given = Limits(iterations=30)
    assert course_of(replacing(problem), given) == course_of(problem, given)


@pytest.mark.parametrize("tolerance", [0.0, 1e-9])
def test_replaced_states__exist_once_except_for_one_per_worker(small, executor, monkeypatch, tolerance):
    problem = problem_of(small[0], "lda", {"topics": 4}, executor=executor)
    lock, alive, counted, sweep = threading.RLock(), [0], [], tasks.sweep

    def count(change):
        with lock:
            alive[0] += change
            counted.append(alive[0])

    def counting(*arguments, **options):
        swept = sweep(*arguments, **options)
        count(1)
        weakref.finalize(swept.local, count, -1)
        return swept

    monkeypatch.setattr(tasks, "sweep", counting)
    most = {}
    for name, of_name in (("held", problem), ("replaced", replacing(problem))):
        counted.clear()
        for state, _ in Fit(of_name, Limits(iterations=6, tolerance=tolerance)):
            del state
        most[name] = max(counted)
    shards = len(problem.shards)
    assert shards < most["replaced"] + executor.workers <= shards + 2 * executor.workers
    assert most["held"] == 2 * shards


class InterruptedExecutor(ThreadExecutor):
    """Raises an error in some of the waits for results."""

    def __init__(self, waits, error=KeyboardInterrupt):
        self.waits, self.waited, self.error = waits, 0, error
        super().__init__(2)

    def collect(self, futures, links=None):
        self.waited += 1
        if self.waited in self.waits:
            raise self.error
        return super().collect(futures, links)


def fit_until_interrupt(small, folder, waits, notices, error=KeyboardInterrupt):
    """Fit until an interrupt, with a checkpoint after each iteration; return the run's checkpointer."""
    executor = InterruptedExecutor(waits, error)
    problem = replacing(problem_of(small[0], "lda", {"topics": 4}, executor=executor))
    checkpointer = RunCheckpointer(Run(folder), problem, every=1, notice=notices.append)
    try:
        with pytest.raises(error):
            list(Fit(problem, Limits(iterations=8), checkpointer))
        checkpointer.save_last()
    finally:
        executor.close()
    return checkpointer


@pytest.mark.parametrize("wait", range(6, 16))
def test_an_interrupt_while_states_are_replaced__takes_effect_after_the_iteration(small, tmp_path, executor, wait):
    notices = []
    checkpointer = fit_until_interrupt(small, tmp_path / "run", {wait}, notices)
    reached = checkpointer.saved_iteration
    assert reached >= 1
    assert all(text.startswith(f"interrupted: iteration {reached} is finished first") for text in notices)
    problem = problem_of(small[0], "lda", {"topics": 4}, executor=executor)
    resumed = RunCheckpointer(Run(tmp_path / "run"), problem)
    assert resumed.restore().state.iteration == reached
    states = [state_bits(state) for state, _ in Fit(problem, Limits(iterations=8), resumed)]
    assert states[-1] == course_of(problem, Limits(iterations=8))[1]


@pytest.mark.parametrize("wait", range(6, 16))
def test_a_second_interrupt__stops_at_once_with_the_checkpoint_that_was_being_written(small, tmp_path, wait):
    notices = []
    checkpointer = fit_until_interrupt(small, tmp_path / "run", {wait, wait + 1}, notices)
    first = fit_until_interrupt(small, tmp_path / "first", {wait}, [])
    assert first.saved_iteration - 1 <= checkpointer.saved_iteration <= first.saved_iteration
    assert Run(tmp_path / "run").checkpoints.latest() == checkpointer.saved_iteration
    assert len(notices) <= 1


def test_a_fit_that_ends_because_another_failed__does_not_finish_its_iteration(small, tmp_path):
    notices = []
    checkpointer = fit_until_interrupt(small, tmp_path / "run", {10}, notices, HaltedError)
    assert checkpointer.saved_iteration >= 1
    assert notices == []


def test_an_interrupt_while_an_iteration_is_reported__leaves_no_gap(small, tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "REPLACED_BYTES", 0)
    options = {"family": "lda", "topics": 4, "iterations": 6, "scheduler": "threads", "workers": 2}

    def interrupt(event):
        if event["event"] == "iteration" and event["iteration"] == 3:
            raise KeyboardInterrupt

    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fit(small[0], run, sinks=[interrupt], **options)
    assert Run(run).checkpoints.latest() == 4
    whole = fit(small[0], tmp_path / "whole", **options)
    resumed = resume(run, scheduler="threads")
    assert bits(resumed) == bits(whole)
    iterations = [event["iteration"] for event in Run(run).events() if event["event"] == "iteration"]
    assert iterations == list(range(1, 7))
