"""Tasks of executors with several processes: rows are fetched in advance, and each process scores and ranks its share."""

from collections import Counter

import pytest

from collapsium.pipeline import Model, fit
from collapsium.pipeline.engine import topic_snapshots
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.storage.runs.run import Run
from tests.fits import bits

OPTIONS = {"family": "lda", "topics": 5, "iterations": 6, "scheduler": "serial"}


class SubmittedTasks:
    """Records the tasks that a fit submits, as (name, process) in order of submission."""

    def __init__(self, monkeypatch, processes, workers):
        self.tasks, submit = [], SerialExecutor.submit

        def noted(executor, function, *args, process=None):
            self.tasks.append((function.__name__, process))
            return submit(executor, function, *args, process=process)

        monkeypatch.setattr(SerialExecutor, "processes", processes)
        monkeypatch.setattr(SerialExecutor, "workers", workers)
        monkeypatch.setattr(SerialExecutor, "submit", noted)
        # lets several processes rank even small blocks
        monkeypatch.setattr(topic_snapshots, "TASK_CELLS", 1)

    def homes_of(self, name):
        return Counter(process for task, process in self.tasks if task == name)

    def between(self, first, last):
        """Return the names of tasks from the last `first` before the last `last` up to it."""
        names = [name for name, _ in self.tasks]
        end = len(names) - names[::-1].index(last) - 1
        return names[end - names[:end][::-1].index(first) : end]


def reports(place):
    names = ("score", "sizes", "moved", "top_words")
    events = [event for event in Run(place).events() if event["event"] == "iteration"]
    return [{name: event.get(name) for name in names} for event in events]


@pytest.mark.parametrize(("processes", "workers"), [(2, 2), (3, 6)])
def test_the_number_of_processes__changes_neither_bits_nor_reports(
    five_shards, tmp_path, monkeypatch, processes, workers
):
    fit(five_shards[0], tmp_path / "one", heldout=five_shards[1], **OPTIONS)
    SubmittedTasks(monkeypatch, processes, workers)
    fit(five_shards[0], tmp_path / "more", heldout=five_shards[1], **OPTIONS)
    assert bits(Model(tmp_path / "more")) == bits(Model(tmp_path / "one"))
    assert reports(tmp_path / "more") == reports(tmp_path / "one")
    assert all(report["top_words"] for report in reports(tmp_path / "more")[1:])


def test_scoring__has_a_task_for_each_thread_of_a_process(five_shards, tmp_path, monkeypatch):
    tasks = SubmittedTasks(monkeypatch, processes=2, workers=4)
    fit(five_shards[0], tmp_path / "run", heldout=five_shards[1], **OPTIONS)
    # three of the five shards belong to the first process and two to the second
    assert tasks.homes_of("score") == {0: 2 * 6, 1: 2 * 6}
    assert tasks.homes_of("sweep") == {0: 3 * 6, 1: 2 * 6}


def test_words__are_ranked_by_all_processes_if_tokens_are_scored(five_shards, tmp_path, monkeypatch):
    tasks = SubmittedTasks(monkeypatch, processes=2, workers=2)
    fit(five_shards[0], tmp_path / "run", heldout=five_shards[1], **OPTIONS)
    assert tasks.homes_of("top_words") == {0: 6, 1: 6}
    tasks.tasks.clear()
    fit(five_shards[0], tmp_path / "unscored", **OPTIONS)
    assert tasks.homes_of("top_words") == {1: 6}


def test_rows__are_fetched_by_other_processes_before_the_global_state_is_updated(five_shards, tmp_path, monkeypatch):
    tasks = SubmittedTasks(monkeypatch, processes=2, workers=2)
    fit(five_shards[0], tmp_path / "run", heldout=five_shards[1], **OPTIONS)
    # the block belongs to the second process
    assert set(tasks.homes_of("prefetch")) == {0}
    assert Counter(tasks.between("fold", "score"))["prefetch"] == 1  # after the last sweep, for scoring
    assert Counter(tasks.between("fold", "sweep"))["prefetch"] == 2
