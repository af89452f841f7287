"""The map of labels and topics."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import table_effects
from collapsium.pipeline.analysis.expected_topics import LabelTopics
from collapsium.pipeline.models.topics import Topic
from collapsium.pipeline.reporting.label_map import PLANE, label_map, unclear_labels
from collapsium.storage.corpus.labels import LabelTable


@given(st.integers(0, 1000), st.integers(1, 60), st.integers(1, 50))
def test_label_map__has_texts_that_fill_the_plane_without_overlap(seed, labels, topics):
    generator = np.random.default_rng(seed)
    shown = [Topic(n, float(share), [("word", 0.5)] * 3) for n, share in enumerate(generator.dirichlet([1.0] * topics))]
    titles = [f"label {n}" for n in range(labels)]
    counts = generator.integers(1, 9, size=labels).tolist()
    table = LabelTopics(titles, counts, shown, generator.normal(size=(labels, topics)))
    found = label_map(table)
    assert len(found.marks) == min(labels, 40) + min(topics, 40)
    assert (found.labels_left, found.topics_left) == (max(labels - 40, 0), max(topics - 40, 0))
    assert found == label_map(table)
    boxes = [mark.text.box for mark in found.marks if mark.text is not None]
    assert len(boxes) >= 0.95 * len(found.marks)
    assert all(mark.text is not None for mark in found.marks if mark.topic is None)
    drawn = [
        (mark.x - mark.radius, mark.y - mark.radius, mark.x + mark.radius, mark.y + mark.radius) for mark in found.marks
    ]
    edges = np.array(boxes + drawn)
    assert np.abs(edges.min(axis=0)[:2] - 6).max() < 0.2
    assert np.abs(edges.max(axis=0)[2:] + 6 - (found.width, found.height)).max() < 0.2
    assert found.width <= PLANE[0] + 8
    assert found.height <= PLANE[1] + 8
    meeting = [
        (box, earlier)
        for n, box in enumerate(boxes)
        for earlier in boxes[:n]
        if min(box[2], earlier[2]) - max(box[0], earlier[0]) > 1
        and min(box[3], earlier[3]) - max(box[1], earlier[1]) > 1
    ]
    assert not meeting


def test_label_map__omits_labels_that_differ_by_less_than_their_errors():
    generator = np.random.default_rng(1)
    shown = [Topic(n, 0.25, [("word", 0.5)] * 3) for n in range(4)]
    frame = pd.DataFrame({"field": np.repeat(["raised", "same", "other"], [60, 60, 280])})
    theta = generator.dirichlet(np.ones(4), 400)
    theta[:60] = generator.dirichlet([9.0, 1.0, 1.0, 1.0], 60)
    shares = table_effects(theta, frame, "~ 0 + C(field)", at=["field"])
    labels = LabelTable((("field", "other"), ("field", "raised"), ("field", "same")), (280, 60, 60))
    corpus = [replace(topic, share=float(theta[60:, topic.id].mean())) for topic in shown]
    unclear = unclear_labels(labels, {"field": shares}, corpus)
    assert unclear == {0, 2}
    table = LabelTopics(labels.titles(), list(labels.documents), shown, generator.normal(size=(3, 4)))
    found = label_map(table, unclear=unclear)
    assert [mark.name for mark in found.marks if mark.topic is None] == ["raised"]
    assert found.labels_left == 2
    assert len(label_map(table, unclear={0, 1, 2}).marks) == 7


def test_label_map__puts_labels_near_the_topics_that_they_raise():
    generator = np.random.default_rng(0)
    weights = generator.normal(scale=0.1, size=(12, 12)) + 4.0 * np.kron(np.eye(4), np.ones((3, 3)))
    shown = [Topic(n, 1 / 12, [("word", 0.5)]) for n in range(12)]
    marks = label_map(LabelTopics([str(n) for n in range(12)], [1] * 12, shown, weights)).marks
    topics = [mark for mark in marks if mark.topic is not None]
    for label in (mark for mark in marks if mark.topic is None):
        nearest = min(topics, key=lambda mark: math.hypot(mark.x - label.x, mark.y - label.y))
        assert nearest.topic // 3 == int(label.name) // 3
