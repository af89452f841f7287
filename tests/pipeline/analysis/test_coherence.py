"""Coherence and diversity of topics, against a count by hand."""

import json
import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import Corpus, Model, coherence, fit, simulate, topics
from collapsium.pipeline.analysis.metrics.topic_words import count, count_in, npmi
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.executors.open import open_executor
from collapsium.pipeline.models.topics import describe
from collapsium.storage.corpus.shard import Shard
from collapsium.storage.errors import InputError, MismatchError, OptionError
from tests.conftest import EXECUTORS, write_corpus
from tests.strategies import bags, documents_of


def npmi_naive(rows, words):
    """Return the mean NPMI of the pairs of some words, counted one document at a time."""
    found = []
    for first, second in combinations(words, 2):
        n = len(rows)
        p, q = (sum(word in row for row in rows) / n for word in (first, second))
        both = sum(first in row and second in row for row in rows) / n
        if both in (0, 1):
            found.append(-1.0 if both == 0 else 1.0)
        else:
            found.append(math.log(both / (p * q)) / -math.log(both))
    return sum(found) / len(found)


@given(bags(max_documents=20, max_words=8, some_token=False), st.integers(1, 4), st.integers(2, 5), st.data())
def test_npmi__matches_a_count_by_hand(drawn, topics_, words, data):
    """This includes empty documents, words that never occur, and words that are in all documents."""
    rows, vocabulary = drawn
    top_words = st.lists(st.integers(0, vocabulary + words), min_size=words, max_size=words, unique=True)
    chosen = np.array([data.draw(top_words) for _ in range(topics_)])
    shard = Shard.of(0, documents_of(rows))
    holding, meeting = count_in(shard, chosen)
    expected = [[sum(word in row for row in rows) for word in words_] for words_ in chosen.tolist()]
    np.testing.assert_array_equal(holding, expected)
    found = npmi(holding, meeting, len(rows)).mean(axis=1)
    np.testing.assert_allclose(found, [npmi_naive(rows, words_) for words_ in chosen.tolist()], rtol=1e-12, atol=1e-12)
    assert (found >= -1 - 1e-12).all()
    assert (found <= 1 + 1e-12).all()


@given(bags(max_documents=20, max_words=8, some_token=False), st.integers(0, 20))
def test_counts_of_parts__add_up(drawn, cut):
    rows, vocabulary = drawn
    chosen = np.array([[0, vocabulary], [vocabulary + 3, 0]])
    whole = count_in(Shard.of(0, documents_of(rows)), chosen)
    parts = [count_in(Shard.of(0, documents_of(part)), chosen) for part in (rows[:cut], rows[cut:])]
    for joint, *part_counts in zip(whole, *parts, strict=True):
        np.testing.assert_array_equal(joint, sum(part_counts))


ROWS = [{0: 2, 1: 1}, {0: 1, 1: 4}, {}, {2: 1, 3: 1}, {2: 3}, {3: 1, 4: 1, 0: 1}]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A run with more topics than its corpus of five words supports, and the corpus."""
    place = tmp_path_factory.mktemp("coherence")
    corpus = write_corpus(place / "corpus", ROWS, 6, shard_tokens=4)
    fit(corpus, place / "run", family="lda", topics=3, beta=0.5, iterations=20, scheduler="serial")
    return str(place / "run"), str(corpus)


def test_coherence__uses_the_words_that_topics_lists(fitted):
    found = coherence(fitted[0], fitted[1], words=3, scheduler="serial")
    listed = topics(fitted[0], words=3)
    assert found.topics.tolist() == [topic.id for topic in listed]
    values = []
    for topic, value in zip(listed, found.topic_npmi, strict=True):
        if topic.share * 15 >= 1:
            expected = npmi_naive(ROWS, [int(word.removeprefix("w")) for word, _ in topic.words])
            assert value == pytest.approx(expected, rel=1e-12, abs=1e-12)
            values.append(expected)
        else:
            assert math.isnan(value)
    assert found.npmi == pytest.approx(sum(values) / len(values), rel=1e-12, abs=1e-12)
    assert found.documents == 6
    assert found.diversity == pytest.approx(1 / len(values))  # each topic lists all six words
    assert "3 most probable words" in found.definition
    assert "left out" in found.definition


def test_coherence__skips_topics_without_tokens(tmp_path):
    corpus = write_corpus(tmp_path / "corpus", [{0: 1, 1: 1}, {}, {0: 2, 1: 1}], 4)
    fit(corpus, tmp_path / "run", family="hdp", topics=20, iterations=60, scheduler="serial")
    fit(corpus, tmp_path / "one", family="lda", topics=1, beta=0.1, iterations=3, scheduler="serial")
    found = coherence(tmp_path / "run", corpus, words=2, scheduler="serial")
    shares = describe(Model(tmp_path / "run"), 2).share
    assert (shares * 5 < 1).any()
    np.testing.assert_array_equal(np.isnan(found.topic_npmi), shares * 5 < 1)
    assert math.isfinite(found.npmi)
    measured = coherence(tmp_path / "one", corpus, words=2, scheduler="serial")
    assert measured.npmi == measured.topic_npmi[0] == pytest.approx(1.0)  # these words always occur together
    assert measured.diversity == 1.0


def test_diversity__is_low_for_similar_topics(tmp_path):
    simulate(tmp_path / "c", family="lda", documents=100, words=200, tokens=60, topics=4, alpha=0.05, beta=10.0)
    options = {"family": "lda", "topics": 4, "scheduler": "serial"}
    fit(tmp_path / "c", tmp_path / "run", beta=10.0, iterations=60, **options)
    fit(tmp_path / "c", tmp_path / "alike", alpha=1e4, beta=1e7, iterations=2, **options)
    apart, alike = (coherence(tmp_path / name, tmp_path / "c") for name in ("run", "alike"))
    assert apart.diversity > 2 * alike.diversity > 0
    assert apart.npmi > alike.npmi
    assert coherence(tmp_path / "c" / "truth", tmp_path / "c").npmi > alike.npmi  # a topic without tokens


@pytest.mark.long
@pytest.mark.parametrize("where", EXECUTORS, ids=lambda where: f"{where[0]}-{where[1]}")
@pytest.mark.xdist_group("clusters")
def test_bits__do_not_depend_on_shards_or_executor(fitted, where, clusters, tmp_path):
    kind, workers = where
    whole = write_corpus(tmp_path / "whole", ROWS, 6)
    assert (len(Corpus(whole).references), len(Corpus(fitted[1]).references)) == (1, 3)
    scheduler = clusters(workers) if kind == "processes" else kind
    found = coherence(fitted[0], fitted[1], scheduler=scheduler, workers=workers if kind == "threads" else None)
    expected = coherence(fitted[0], whole, scheduler="serial")
    assert found.topic_npmi.tobytes() == expected.topic_npmi.tobytes()
    assert (found.npmi, found.diversity, found.definition) == (expected.npmi, expected.diversity, expected.definition)


def test_count__includes_all_shards(five_shards):
    chosen = np.array([[0, 3, 29], [5, 6, 7]])
    executor = open_executor("threads", 2)
    holding, meeting = count(Corpus(five_shards[0]), chosen, executor)
    executor.close()
    shards = [reference.load() for reference in Corpus(five_shards[0]).references]
    parts = [count_in(shard, chosen) for shard in shards]
    np.testing.assert_array_equal(holding, sum(part[0] for part in parts))
    np.testing.assert_array_equal(meeting, sum(part[1] for part in parts))
    np.testing.assert_array_equal(holding, Corpus(five_shards[0]).vocabulary.documents[chosen])
    assert len(shards) > 4  # more shards than are requested at a time


def test_coherence__reports_errors_clearly(fitted, tmp_path):
    with pytest.raises(OptionError, match="words: expected 2 or more, found 1"):
        coherence(*fitted, words=1)
    with pytest.raises(MismatchError):
        coherence(fitted[0], write_corpus(tmp_path / "other", [{0: 1}], 2))
    corpus = write_corpus(tmp_path / "one", [{0: 1}], 1)
    fit(corpus, tmp_path / "run", family="lda", topics=1, iterations=1, scheduler="serial")
    with pytest.raises(InputError, match="at least two words"):
        coherence(tmp_path / "run", corpus)


def test_command__prints_coherence_alone_or_with_a_score(fitted, tmp_path, capsys):
    run, corpus = fitted
    expected = coherence(run, corpus, scheduler="serial")
    assert main(["evaluate", run, "--coherence", corpus, "--json", "--scheduler", "serial"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert list(alone) == ["coherence"]
    assert alone["coherence"]["npmi"] == expected.npmi
    assert [topic["id"] for topic in alone["coherence"]["topics"]] == expected.topics.tolist()
    assert [topic["npmi"] is None for topic in alone["coherence"]["topics"]] == np.isnan(expected.topic_npmi).tolist()
    unseen = str(write_corpus(tmp_path / "unseen", [{0: 2, 3: 1}, {1: 3, 4: 2}], 6))
    assert main(["evaluate", run, "--coherence", corpus, "--unseen", unseen, "--scheduler", "serial"]) == 0
    out = capsys.readouterr().out
    for text in (
        "score  ",
        f"coherence  {expected.npmi:.4f}",
        f"diversity  {expected.diversity:.4f}",
        expected.definition,
    ):
        assert text in out
