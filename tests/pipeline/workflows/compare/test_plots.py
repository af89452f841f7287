"""Plots of comparisons."""

import importlib.util
from pathlib import Path

import pytest

from collapsium.pipeline import compare
from tests.pipeline.workflows.compare.conftest import GRID, WITH_BETA

pytestmark = pytest.mark.xdist_group("comparing")  # compared models are fitted once


def test_plots__are_made_if_matplotlib_is_installed(compared):
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed")
    assert compared.plots == ("score-by-topics",)
    place = Path(compared.folder) / "plots"
    assert (place / "score-by-topics.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (place / "score-by-topics.svg").read_text()


def test_without_matplotlib__everything_but_the_plots_is_written(small, compared):
    events = []
    options = {"heldout": small[1], "samples": 2, "sample_every": 1, "settings": WITH_BETA, **GRID}
    found = compare(small[0], compared.folder, sinks=[events.append], **options)
    assert (found.plots, found.rows) == ((), compared.rows)
    (notice,) = [event["text"] for event in events if event["event"] == "notice"]
    assert notice == "no plots: matplotlib is not installed (pip install 'collapsium[plots]')"
