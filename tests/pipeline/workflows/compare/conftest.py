"""Comparisons that the tests of this package share: each is fitted once."""

import pytest

from collapsium.pipeline import compare

GRID = {"families": ("lda", "gibbs-lda"), "topics": (2, 3), "restarts": 2, "iterations": 4, "seed": 3}
WITH_BETA = {"lda": {"beta": 3.0}, "gibbs-lda": {"beta": 3.0}}
TIMES = ("seconds", "cell_seconds")


@pytest.fixture(scope="package")
def compared(small, tmp_path_factory):
    """A comparison of two families with two numbers of topics, two restarts, and samples of the sampler."""
    out = tmp_path_factory.mktemp("compared") / "out"
    return compare(small[0], out, heldout=small[1], samples=2, sample_every=1, settings=WITH_BETA, **GRID)


@pytest.fixture(autouse=True)
def without_plots(monkeypatch):
    """Skip plots, which take longer than the fits here, except for comparisons that all tests share."""
    monkeypatch.setattr("collapsium.pipeline.workflows.compare.can_draw", lambda: False)


def without_times(rows):
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def stopping(cell, iteration):
    """Return a sink that stops a comparison during a cell."""

    def sink(event):
        if (event.get("cell"), event["event"], event.get("iteration")) == (cell, "iteration", iteration):
            raise KeyboardInterrupt

    return sink
