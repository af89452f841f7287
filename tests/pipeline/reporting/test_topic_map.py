"""Maps of topics: similar topics have neighbouring circles, and texts do not overlap."""

import json
import shutil
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from collapsium.pipeline import Model, fit, report, topics
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.formatting import shortened
from collapsium.pipeline.models.topics import Topic
from collapsium.pipeline.reporting import embedding
from collapsium.pipeline.reporting.embedding import (
    MDS,
    TSNE,
    circle_texts,
    classical_scaling,
    map_of_distances,
    measure,
)
from collapsium.pipeline.reporting.plots.run import MapPanel
from collapsium.pipeline.reporting.text_layout import Placement, Point, place_texts, text_width


def hellinger(rows):
    root = np.sqrt(rows)
    return cdist(root, root) / np.sqrt(2.0)


def grouped(groups, size, seed=0, words=200):
    """Return topics in several groups that share words."""
    generator = np.random.default_rng(seed)
    common = generator.dirichlet([0.05] * words, size=groups)
    separate = generator.dirichlet([0.05] * words, size=groups * size)
    return 0.45 * np.repeat(common, size, axis=0) + 0.55 * separate


def overlapping(boxes):
    boxes = np.array(boxes).reshape(-1, 4)
    wide = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:]) - np.maximum(boxes[:, None, :2], boxes[None, :, :2])
    return int((np.triu((wide > 1e-6).all(axis=2), 1)).sum())


@given(st.integers(0, 1000), st.sampled_from([*range(1, 12), 29, 30, 45]), st.sampled_from([1, 2, 40]))
@settings(max_examples=30)
def test_map__has_circles_that_fill_it_without_overlap(seed, count, different):
    generator = np.random.default_rng(seed)
    rows = generator.dirichlet([0.1] * 30, size=different)[generator.integers(0, different, size=count)]
    share = generator.dirichlet([0.3] * count)
    found = map_of_distances(hellinger(rows), share)
    x, y, radius = found.x, found.y, found.radius
    gaps = np.hypot(x[:, None] - x, y[:, None] - y) - radius[:, None] - radius
    assert (gaps[np.triu_indices(count, 1)] > -1e-4).all()
    edges = [(x - radius).min(), (y - radius).min(), 1 - (x + radius).max(), found.height - (y + radius).max()]
    assert min(edges) > 0
    if count > 1:
        assert max(edges) < 0.01
    large = radius > 1.01 * radius.min()
    if large.any():
        area = radius[large] ** 2 / share[large]
        assert area.max() <= 1.02 * area.min()
    assert found.quality.method == (TSNE if count >= 30 else MDS)
    again = map_of_distances(hellinger(rows), share)
    assert np.array_equal(x, again.x)
    assert np.array_equal(y, again.y)


@pytest.mark.parametrize(("groups", "size"), [(4, 5), (10, 6), (20, 10)])
def test_map__keeps_more_neighbours_than_classical_scaling(groups, size):
    apart = hellinger(grouped(groups, size))
    found = map_of_distances(apart, np.full(groups * size, 1.0 / (groups * size)))
    before = measure(apart, classical_scaling(apart), "")
    assert found.quality.preserved > 0.7
    assert found.quality.preserved >= before.preserved
    nearest = np.argsort(np.hypot(found.x[:, None] - found.x, found.y[:, None] - found.y), axis=1)[:, 1]
    assert np.mean(nearest // size == np.arange(groups * size) // size) > 0.9


def test_quality__is_computed_from_neighbours_and_distances():
    places = np.random.default_rng(1).normal(size=(30, 2))
    whole = measure(cdist(places, places), places, TSNE)
    assert (whole.near, whole.among, whole.preserved) == (5, 10, 1.0)
    assert whole.stress == pytest.approx(0.0, abs=1e-7)
    assert whole.chance == pytest.approx(10 / 29)
    assert "stress 0.00" in whole.describe("topics")
    arbitrary = measure(cdist(places, places), np.random.default_rng(2).normal(size=(30, 2)), TSNE)
    assert arbitrary.preserved == pytest.approx(whole.chance, abs=0.15)
    assert measure(np.ones((3, 3)), places[:3], MDS).near == 0
    assert measure(np.zeros((0, 0)), places[:0], MDS).near == 0
    assert "nearest" not in measure(np.ones((3, 3)), places[:3], MDS).describe("topics")


@given(st.integers(0, 1000), st.integers(1, 60), st.sampled_from([(0.0,), (0.0, 20.0, 60.0)]))
def test_texts__do_not_overlap_and_stay_within_the_plane(seed, count, distances):
    generator = np.random.default_rng(seed)
    letters = [generator.choice(list("aiWm 很é"), size=generator.integers(0, 14)) for _ in range(count)]
    points = [
        Point(float(x), float(y), float(r), "".join(text), 12.0, bool(text.size % 2))
        for x, y, r, text in zip(
            *generator.uniform(3, 297, size=(2, count)), *[generator.uniform(0, 20, count)], letters, strict=True
        )
    ]
    taken = [(10.0, 10.0, 60.0, 40.0)]
    placed = place_texts(points, range(count), Placement(300.0, 200.0, distances), taken)
    boxes = [label.box for label in placed if label is not None]
    assert overlapping([*boxes, *taken]) == 0
    assert all(min(box[0], box[1], 300 - box[2], 200 - box[3]) > 0 for box in boxes)
    for point, label in zip(points, placed, strict=True):
        if label is not None:
            assert label.width == pytest.approx(text_width(point.text, 12.0, bold=point.bold), abs=0.06)
            assert label.left <= label.anchor_x <= label.left + label.width + 0.1


def test_names__are_short_and_without_control_characters():
    assert shortened("a\x1bb", 9) == "a\N{REPLACEMENT CHARACTER}b"
    assert shortened("abcdef", 4) == "abc…"
    assert [shortened("one two three", letters) for letters in (13, 12, 8, 7, 5)] == [
        "one two three", "one two…", "one two…", "one tw…", "one…"
    ]  # fmt: skip


@pytest.mark.parametrize(("count", "size"), [(1, 12), (10, 12), (80, 12), (80, 22)])
def test_ids_and_names__do_not_overlap(count, size):
    generator = np.random.default_rng(3)
    share = generator.dirichlet([0.5] * count)
    found = map_of_distances(hellinger(generator.dirichlet([0.1] * 50, size=count)), share)
    shown = [Topic(n, float(weight), [("word", 0.5)]) for n, weight in enumerate(share)]
    texts = circle_texts(found, shown, ["some words"] * count, 640.0, size)
    boxes = [text.outside.box for text in texts if text.outside is not None]
    for place, label in enumerate(texts):
        if label.inside:
            x, y, half = 640 * found.x[place], 640 * found.y[place], text_width(str(place), size) / 2
            boxes.append((x - half, y - size / 2, x + half, y + size / 2))
    assert overlapping(boxes) == 0
    assert len(boxes) >= min(count, 10)
    # an id that does not fit into its circle precedes the name
    assert all(label.inside or label.text.startswith(f"{place} ") for place, label in enumerate(texts))


@pytest.fixture(scope="module")
def run(small, tmp_path_factory):
    place = tmp_path_factory.mktemp("map")
    fit(small[0], place / "run", family="lda", topics=12, iterations=4, scheduler="serial")
    return place / "run"


def test_plot__has_texts_that_do_not_overlap(run):
    figures = pytest.importorskip("matplotlib.figure")
    panel = MapPanel(Model(run), topics(run, 3))
    figure = figures.Figure(figsize=(5, 4))
    axes = figure.subplots()
    panel(axes)
    figure.draw_without_rendering()
    panel.finish(axes)
    figure.draw_without_rendering()
    extents = [text.get_window_extent().extents for text in axes.texts]
    assert len(extents) > 12
    assert overlapping(extents) == 0
    box = axes.get_window_extent()
    assert all(box.x0 <= x0 and box.y0 <= y0 and x1 <= box.x1 and y1 <= box.y1 for x0, y0, x1, y1 in extents)


def test_report__explains_the_map(run, tmp_path, capsys):
    assert main(["report", str(run), str(tmp_path / "out.html"), "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["topics"] == 12
    assert output["map"]["method"] == MDS
    assert (output["map"]["near"], output["map"]["among"]) == (2, 4)
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert f"stress {output['map']['stress']:.2f}" in page
    assert f"{output['map']['preserved']:.0%} of the 2 nearest topics of each are among its 4 nearest" in " ".join(
        page.split()
    )
    shutil.copytree(run, tmp_path / "again")
    assert report(tmp_path / "again", tmp_path / "again.html").map.preserved == output["map"]["preserved"]


def test_a_map_of_topics_without_tokens__has_equal_circles():
    found = map_of_distances(hellinger(grouped(3, 2)), np.zeros(6))
    assert np.ptp(found.radius) == 0
    assert np.isfinite([found.x, found.y, found.radius]).all()


def test_a_map__does_not_need_scikit_learn(monkeypatch):
    monkeypatch.setattr(embedding, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "sklearn", None)  # makes the import fail
    places = np.random.default_rng(0).normal(size=(40, 2))
    on_map, method = embedding.embed(cdist(places, places))
    assert (method, on_map.shape) == (embedding.CLASSICAL, (40, 2))
    assert measure(cdist(places, places), on_map, method).preserved > 0.8
