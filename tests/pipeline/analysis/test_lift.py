"""Topics of labels, ranked by how much the label raises them."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import Model, fit, report
from collapsium.pipeline.analysis.expected_topics import LabelTopics, by_lift, smoothed_lift
from collapsium.pipeline.formatting import times
from collapsium.pipeline.models.topics import Topic
from collapsium.storage.corpus.parquet import LABELS
from collapsium.storage.corpus.writer import CorpusWriter
from collapsium.storage.io.folder import Folder, created
from collapsium.storage.runs.summary import read_summary, write_summary
from tests.strategies import documents_of

shares = st.dictionaries(st.integers(0, 9), st.floats(0.01, 1.0), min_size=1)


def test_general_topics__do_not_rank_first():
    overall = {0: 0.6, 1: 0.05, 2: 0.05, 3: 0.0001}
    found = by_lift([(0, 0.5), (1, 0.3), (2, 0.1), (3, 0.01)], overall, 4)
    # the general topic has less than its overall share, and is left out
    assert [topic.topic for topic in found] == [1, 3, 2]
    assert (found[0].share, found[0].lift) == (0.3, pytest.approx(6.0))
    # A very rare topic does not rank first, although its share is a hundred times the overall one.
    assert found[1].lift == pytest.approx(100.0)


@given(shares, shares)
def test_topics__are_sorted_by_smoothed_lift(group, overall):
    found = by_lift(group.items(), overall, 4)
    lifts = [smoothed_lift(topic.share, overall.get(topic.topic, 0.0)) for topic in found]
    assert lifts == sorted(lifts, reverse=True)
    assert lifts[0] == max(smoothed_lift(share, overall.get(topic, 0.0)) for topic, share in group.items())
    assert all(topic.lift > 1.0 for topic in found[1:])
    assert len(found) <= 4


@pytest.mark.parametrize(
    ("factor", "text"), [(0.04, "0.0"), (9.94, "9.9"), (9.96, "10"), (998.7, "999"), (1e9, ">999")]
)
def test_factors__are_printed_with_few_digits(factor, text):
    assert times(factor) == text


def test_expected_topics__are_ranked_by_lift_without_factors():
    topics = [Topic(n, share, [("word", 0.5)]) for n, share in enumerate([0.7, 0.2999, 0.0001])]
    expected = np.array([[0.55, 0.44, 0.01]])
    weights = np.log(expected) - np.log([[0.7, 0.2999, 0.0001]])
    assert LabelTopics(["label"], [5], topics, weights, expected).foremost(0, 3) == [2, 1]
    assert LabelTopics(["label"], [5], topics, np.array([[0.1, 3.0, 2.0]])).foremost(0, 2) == [1, 2]


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """A run on documents half of whose words are common to all and half specific to their label."""
    place, generator = tmp_path_factory.mktemp("lift"), np.random.default_rng(0)
    rows, labels = [], []
    for number in range(60):
        kind = number % 3
        words = [0, 1, 2 + 2 * kind, 3 + 2 * kind]
        rows.append({word: int(generator.integers(1, 9)) for word in words})
        labels.append([{"field": "kind", "value": "abc"[kind]}] if number % 4 else [])
    with created(Folder(place / "corpus")) as folder:
        writer = CorpusWriter(folder, 8, 300)
        writer.add(replace(documents_of(rows), extras={"labels": pa.array(labels, LABELS)}))
        writer.finish([f"w{n}" for n in range(8)])
    fit(place / "corpus", place / "run", family="lda", topics=4, iterations=15, scheduler="serial", seed=1)
    return place


def test_report__shows_share_and_lift_over_the_mean_of_all_documents(labelled):
    model = Model(labelled / "run")
    summary = read_summary(model.folder, model.record)
    means = {topic.id: topic.mean for topic in summary.topics}
    assert sum(means.values()) == pytest.approx(1.0, abs=1e-6)
    report(labelled / "run", labelled / "out.html")
    page = (labelled / "out.html").read_text(encoding="utf-8")
    section = re.search(r'<section id="labels".*?</section>', page, re.DOTALL)[0]
    for value in summary.fields[0].values:
        row = re.search(rf'<th scope="row">{value.value}</th>.*?</tr>', section, re.DOTALL)[0]
        shown = re.findall(r"</a> ([\d.]+)% ± [\d.]+% ×([\d.]+)", row)
        best = by_lift(value.proportions, means, 4)
        assert [(float(share), float(lift)) for share, lift in shown] == [
            (pytest.approx(100 * topic.share, abs=0.06), pytest.approx(topic.lift, abs=0.06)) for topic in best
        ]
        assert best[0].lift > 1.5


def test_report_without_mean_proportions__compares_with_shares_of_the_tokens(labelled):
    shutil.copytree(labelled / "run", labelled / "old")
    model = Model(labelled / "old")
    summary = read_summary(model.folder, model.record)
    assert summary.version == 5
    without = tuple(topic.model_copy(update={"mean": None}) for topic in summary.topics)
    write_summary(model.folder, summary.model_copy(update={"version": 2, "topics": without}))
    report(labelled / "old", labelled / "old.html")
    assert "share of all tokens. The ranking" in " ".join((labelled / "old.html").read_text(encoding="utf-8").split())
