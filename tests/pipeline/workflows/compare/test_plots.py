"""Plots of comparisons."""

import importlib.util
from pathlib import Path

import pytest

from collapsium.pipeline import compare
from tests.pipeline.workflows.compare.conftest import GRID, WITH_BETA

pytestmark = pytest.mark.xdist_group("comparing")  # what it compares is fitted once


def test_plots__are_there_where_matplotlib_is(compared, started):
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed")
    assert compared.plots == started.plots == ("score-by-topics",)
    for found in (compared, started):
        place = Path(found.folder) / "plots"
        assert {path.name for path in place.iterdir()} == {
            f"{n}.{kind}" for n in found.plots for kind in ("png", "svg")
        }
        assert all((place / f"{name}.png").read_bytes().startswith(b"\x89PNG") for name in found.plots)
        assert all("<svg" in (place / f"{name}.svg").read_text() for name in found.plots)


def test_without_matplotlib__all_but_the_plots_is_there(small, compared):
    events = []
    options = {"heldout": small[1], "samples": 2, "sample_every": 1, "settings": WITH_BETA, **GRID}
    found = compare(small[0], compared.folder, sinks=[events.append], **options)
    assert (found.plots, found.rows) == ((), compared.rows)
    (notice,) = [event["text"] for event in events if event["event"] == "notice"]
    assert notice == "no plots: matplotlib is not installed (pip install 'collapsium[plots]')"
