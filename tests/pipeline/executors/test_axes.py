"""Axes of counts, iterations and ranks have integer ticks with thousands separators."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from collapsium.pipeline.reporting.charts import charts_of
from collapsium.pipeline.reporting.plots.comparison import comparison_figure
from collapsium.pipeline.reporting.plots.run import _curve
from collapsium.pipeline.reporting.plots.style import drawn, integer_ticks
from collapsium.pipeline.svg import ticks
from collapsium.storage.io.folder import Folder
from tests.benchmarks.comparison.plots import Results, draw_plots

WHOLE = re.compile(r"\N{MINUS SIGN}?(\d{1,3})(,\d{3})*")


def labels_of(axis):
    """Return the labels of the visible ticks."""
    low, high = sorted(axis.get_view_interval())
    places = [place for place in axis.get_majorticklocs() if low <= place <= high]
    return places, axis.get_major_formatter().format_ticks(places)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_axis_of_counts__has_integer_ticks_for_any_range(first, spread):
    axes = Figure().subplots()
    axes.plot([first, first + spread], [first, first + spread])
    integer_ticks(axes.yaxis)
    places, texts = labels_of(axes.yaxis)
    assert places
    assert all(place == round(place) for place in places)
    assert len(set(texts)) == len(texts)
    assert all(WHOLE.fullmatch(text) for text in texts)


@given(st.integers(-5, 10**7), st.integers(0, 10**7), st.integers(4, 9))
def test_ticks_of_counts__are_integers_in_range(low, spread, count):
    found = ticks(low - 0.06 * spread, low + 1.06 * spread, count, integer=True)
    assert found
    assert all(tick == round(tick) for tick in found)
    assert len(found) <= 2 * count + 2


def test_plot_of_the_number_of_topics__has_no_fractions():
    axes = Figure().subplots()
    _curve([("", [(1.0, 2.0), (2.0, 3.0)])], "topics", counted=True)(axes)
    for axis, expected in ((axes.xaxis, ["1", "2"]), (axes.yaxis, ["2", "3"])):
        assert labels_of(axis)[1] == expected


def tick_texts(chart, place):
    """Return the tick labels of a chart: `up` on the vertical axis, or `across` on the horizontal one."""
    return re.findall(rf'<text class="{place}"[^>]*>([^<]*)</text>', chart.svg)


def test_charts_of_tree_moves__have_integer_numbers_of_nodes():
    events = [
        {"event": "iteration", "iteration": iteration, "grown": iteration % 4, "gamma": iteration / 4}
        for iteration in range(1, 5)
    ]
    grown, gamma = charts_of([("", events)], {"grown": 0.0, "gamma": 1.0})[0]
    assert tick_texts(grown, "up") == ["0", "1", "2", "3"]
    assert any("." in text for text in tick_texts(gamma, "up"))


def test_chart_of_the_number_of_topics__has_no_fractions():
    events = [
        {"event": "iteration", "iteration": number, "score": -7.0 - number, "topics": topics}
        for number, topics in enumerate((1180, 1200, 1201, 1202), start=1)
    ]
    charts, _ = charts_of([("", events)], {"topics": 1202.0})
    score, topics = charts
    assert tick_texts(topics, "up") == ["1,200", "1,201", "1,202"]
    assert tick_texts(topics, "across") == tick_texts(score, "across") == ["1", "2", "3", "4"]


def test_iterations_of_a_comparison__are_integers(tmp_path):
    row = {"family": "lda", "start": "random", "cell": "a", "topics": 1000, "score": -7.0, "score_error": None}
    rows = [{**row, "objective": None, "objective_error": None}]
    course = {"cell": "a", "seconds": 1.0, "objective": None, "topics_99": None}
    series = [{**course, "iteration": n, "steps": 1000 * n, "score": -7.0 - 1 / n} for n in (1, 2, 3)]
    (tmp_path / "out").mkdir()
    draw_plots(Results({"unseen": None}, rows, [], series), Folder(tmp_path / "out"))
    (tmp_path / "out/score-by-topics.svg").write_bytes(drawn(lambda: comparison_figure(rows, None), "svg"))
    # one plot has texts as paths, each with a comment, and the other as text
    for name, text in (("score-by-steps", "<!-- 2,000 -->"), ("score-by-topics", ">1,000<")):
        assert text in (tmp_path / f"out/{name}.svg").read_text()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_few_ranks__are_distinguished(ranks):
    axes = Figure().subplots()
    axes.bar(range(1, ranks + 1), [1.0] * ranks)
    integer_ticks(axes.xaxis)
    assert [text for text in labels_of(axes.xaxis)[1] if text != "0"][:ranks] == [str(n + 1) for n in range(ranks)]
