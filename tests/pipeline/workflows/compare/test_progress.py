"""The progress of a comparison."""

import io

from collapsium.pipeline.monitoring.console import LogLines
from collapsium.pipeline.workflows.compare import GridView, duration_text


def test_the_view__counts_cells_and_shows_the_remaining_time(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("collapsium.pipeline.workflows.compare.time.monotonic", lambda: clock[0])
    stream = io.StringIO()
    view = GridView(log=LogLines(stream))
    view({"event": "grid", "cells": 3, "done": 1, "work": 300.0, "work_done": 100.0})
    view({"event": "cell_begins", "cell": "lda-40", "fits": 2, "iterations": 10, "work": 100.0})
    for iteration in (1, 2, 3, 4, 5):
        clock[0] += 10.0
        for member in (0, 1):
            view({"event": "iteration", "iteration": iteration, "member": member, "cell": "lda-40"})
    view({"event": "cell_done", "cell": "lda-40", "work": 100.0, "elapsed": 50.0, "score": -7.25, "score_error": 0.01})
    view({"event": "compared", "rows": 3, "plots": 0})
    lines = [line.partition(" ")[2] for line in stream.getvalue().splitlines()]  # after the time of the line
    assert lines[:2] == ["3 cells, 1 done before", "lda-40 (2 of 3): 2 fits of 10 iterations"]
    assert lines[-2] == "lda-40 (2 of 3): 9 of 20 iterations; 44% of all, about 4 min left"
    assert lines[-1] == "lda-40: 50 s  score -7.2500 ± 0.0100  (2 of 3 done, about 50 s left)"
    assert [duration_text(seconds) for seconds in (3.4, 300, 7500)] == ["3 s", "5 min", "2 h 05 min"]
