"""Tasks of executors with several processes: rows come to all of them ahead, and each scores and ranks its part."""

from collections import Counter

import pytest

from collapsium.pipeline import Model, fit
from collapsium.pipeline.engine import topic_snapshots
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.storage.runs.run import Run
from tests.fits import bits

OPTIONS = {"family": "lda", "topics": 5, "iterations": 6, "scheduler": "serial"}


class Submitted:
    """The tasks that a fit submits, by name and process, in their order."""

    def __init__(self, monkeypatch, processes, workers):
        self.tasks, submit = [], SerialExecutor.submit

        def noted(executor, function, *args, process=None):
            self.tasks.append((function.__name__, process))
            return submit(executor, function, *args, process=process)

        monkeypatch.setattr(SerialExecutor, "processes", processes)
        monkeypatch.setattr(SerialExecutor, "workers", workers)
        monkeypatch.setattr(SerialExecutor, "submit", noted)
        # Small blocks are ranked by several processes too.
        monkeypatch.setattr(topic_snapshots, "TASK_CELLS", 1)

    def homes_of(self, name):
        return Counter(process for task, process in self.tasks if task == name)

    def between(self, first, last):
        """Names of the tasks after the last `first` that a `last` follows, up to it."""
        names = [name for name, _ in self.tasks]
        end = len(names) - names[::-1].index(last) - 1
        return names[end - names[:end][::-1].index(first) : end]


def reports(place):
    names = ("score", "sizes", "moved", "top_words")
    events = [event for event in Run(place).events() if event["event"] == "iteration"]
    return [{name: event.get(name) for name in names} for event in events]


@pytest.mark.parametrize(("processes", "workers"), [(2, 2), (3, 6)])
def test_processes__change_no_bit_and_no_report(small, tmp_path, monkeypatch, processes, workers):
    fit(small[0], tmp_path / "one", heldout=small[1], **OPTIONS)
    Submitted(monkeypatch, processes, workers)
    fit(small[0], tmp_path / "more", heldout=small[1], **OPTIONS)
    assert bits(Model(tmp_path / "more"), 5) == bits(Model(tmp_path / "one"), 5)
    assert reports(tmp_path / "more") == reports(tmp_path / "one")
    assert all(report["top_words"] for report in reports(tmp_path / "more")[1:])


def test_scores__take_a_task_for_each_thread_of_a_process(small, tmp_path, monkeypatch):
    tasks = Submitted(monkeypatch, processes=2, workers=4)
    fit(small[0], tmp_path / "run", heldout=small[1], **OPTIONS)
    # Three of five shards are in the first process and two in the second.
    assert tasks.homes_of("score") == {0: 2 * 6, 1: 2 * 6}
    assert tasks.homes_of("sweep") == {0: 3 * 6, 1: 2 * 6}


def test_words__are_ranked_by_all_homes_where_tokens_are_scored(small, tmp_path, monkeypatch):
    tasks = Submitted(monkeypatch, processes=2, workers=2)
    fit(small[0], tmp_path / "run", heldout=small[1], **OPTIONS)
    assert tasks.homes_of("top_words") == {0: 6, 1: 6}
    tasks.tasks.clear()
    fit(small[0], tmp_path / "unscored", **OPTIONS)
    assert tasks.homes_of("top_words") == {1: 6}


def test_rows__are_fetched_by_other_homes_before_the_global_state_is_updated(small, tmp_path, monkeypatch):
    tasks = Submitted(monkeypatch, processes=2, workers=2)
    fit(small[0], tmp_path / "run", heldout=small[1], **OPTIONS)
    # The block is in the second process.
    assert set(tasks.homes_of("prefetch")) == {0}
    assert Counter(tasks.between("fold", "score"))["prefetch"] == 1  # after the last sweep, of the rows that score
    assert Counter(tasks.between("fold", "sweep"))["prefetch"] == 2
