import pytest

from collapsium.pipeline.reporting.plots.run import steps_note


@pytest.mark.parametrize(
    ("segments", "steps", "note"),
    [
        (5, 5, ""),
        (10, 5, " (a step is the mean of 2)"),
        (6, 5, " (a step is the mean of 1 or 2)"),
        (1000, 300, " (a step is the mean of 3 or 4)"),
    ],
)
def test_bins_of_segment_plots__show_how_many_segments_they_average(segments, steps, note):
    assert steps_note(segments, steps) == note
