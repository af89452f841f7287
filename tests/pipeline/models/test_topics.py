"""Rankings of words agree with their definitions, one word at a time."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import Corpus, Model, fit, report, topics
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.engine.summary import summary_of
from collapsium.pipeline.estimators import CollapsedLDA
from collapsium.pipeline.executors.base import SerialExecutor
from collapsium.pipeline.models import topics as ranking
from collapsium.pipeline.models.topics import word_scores
from collapsium.pipeline.options import RankOptions
from collapsium.storage.errors import OptionError
from collapsium.storage.runs.summary import SummaryRecord, TopicSummary
from tests.pipeline.cli.commands import command, one_line

MEASURES = ("frex", "lift", "relevance")


@pytest.fixture(scope="module")
def run(small, tmp_path_factory):
    place = tmp_path_factory.mktemp("ranking") / "run"
    fit(small[0], place, family="lda", topics=4, iterations=6, scheduler="serial")
    return place


def naive_scores(phi, overall, rank_by, weight):
    """Return the scores of each topic's words, one at a time."""
    topics, words = phi.shape
    scores = np.zeros((topics, words))
    exclusivity = phi / phi.sum(axis=0)
    for k in range(topics):
        for w in range(words):
            if rank_by == "lift":
                scores[k, w] = np.log(phi[k, w] / overall[w])
            elif rank_by == "relevance":
                scores[k, w] = weight * np.log(phi[k, w]) + (1 - weight) * np.log(phi[k, w] / overall[w])
            else:
                exclusive = np.mean([exclusivity[k, v] <= exclusivity[k, w] for v in range(words)])
                frequent = np.mean([phi[k, v] <= phi[k, w] for v in range(words)])
                scores[k, w] = 1 / (weight / exclusive + (1 - weight) / frequent)
    return scores


@given(st.integers(0, 1000), st.sampled_from(MEASURES), st.floats(0, 1))
def test_scores__match_the_definitions(seed, rank_by, weight):
    generator = np.random.default_rng(seed)
    phi = generator.dirichlet(np.full(12, 0.7), size=3) + 1e-9
    phi /= phi.sum(axis=1, keepdims=True)
    overall = phi.mean(axis=0)
    options = RankOptions(rank_by=rank_by, rank_weight=None if rank_by == "lift" else weight)
    found = word_scores(phi, phi / phi.sum(axis=0), overall, np.full(3, 1e12), options)
    assert np.allclose(found, naive_scores(phi, overall, rank_by, weight))


def test_words_with_few_tokens__come_last_by_probability():
    phi = np.array([[0.6, 0.3, 0.06, 0.04]])
    overall = np.array([0.7, 0.2, 0.001, 0.0])
    found = word_scores(phi, phi, overall, np.array([5.0]), RankOptions(rank_by="lift"))[0]
    assert np.argsort(-found).tolist() == [1, 0, 2, 3]


@pytest.mark.parametrize("rank_by", MEASURES)
def test_topics__are_ranked_over_the_complete_vocabulary(run, rank_by, monkeypatch):
    model = Model(run)
    phi, tokens = model.topic_word, model.vocabulary.tokens
    weight = 0.5 if rank_by == "frex" else 0.6
    with np.errstate(divide="ignore"):
        scores = naive_scores(phi, tokens / tokens.sum(), rank_by, weight)
    expected = []
    for topic in topics(run, 5, rank_by=rank_by):
        allowed = np.flatnonzero((phi[topic.id] * topic.share * tokens.sum() >= 0.5) & (tokens > 0))
        best = allowed[np.argsort(-scores[topic.id, allowed], kind="stable")[:5]]
        words = [model.vocabulary.words[word] for word in best]
        assert [scores[topic.id, model.vocabulary.words.index(word)] for word, _ in topic.words] == pytest.approx(
            scores[topic.id, best].tolist()
        ), words
        assert [p for _, p in topic.words] == pytest.approx(
            [phi[topic.id, model.vocabulary.words.index(w)] for w, _ in topic.words]
        )
        expected.append(topic.names)
    monkeypatch.setattr(ranking, "CELLS_IN_MEMORY", 1)
    assert [topic.names for topic in topics(run, 5, rank_by=rank_by)] == expected


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("lda", {}),
        ("lda", {"weights": "idf"}),
        ("lda", {"weights": "log-tf-idf", "restarts": 2}),
        ("vb-lda", {"weights": "entropy"}),
    ],
)
def test_the_words_of_a_single_topic__are_as_typical_of_it_as_of_the_corpus(small, family, more, tmp_path):
    fit(small[0], tmp_path / "run", family=family, topics=1, beta=0.001, iterations=2, scheduler="serial", **more)
    [by_relevance] = topics(tmp_path / "run", 20, rank_by="relevance", rank_weight=0.5)
    [by_probability] = topics(tmp_path / "run", 20)
    assert [p for _, p in by_relevance.words] == pytest.approx([p for _, p in by_probability.words], rel=0.01)


def test_the_command__ranks_like_the_function(run, capsys):
    assert main(["topics", str(run), "--rank-by", "frex", "--rank-weight", "0.9", "--words", "4", "--json"]) == 0
    printed = [[word["word"] for word in topic["words"]] for topic in json.loads(capsys.readouterr().out)]
    assert printed == [topic.names for topic in topics(run, 4, rank_by="frex", rank_weight=0.9)]
    frame = Model(run).topics(4, rank_by="frex", rank_weight=0.9)
    assert frame["words"].tolist() == [", ".join(words) for words in printed]


@pytest.mark.parametrize(
    "flags",
    [("--rank-by", "fame"), ("--rank-weight", "2"), ("--rank-weight", "0.5"), ("--rank-by", "lift", "--labels")],
)
def test_unknown_measures_and_weights__are_refused_in_one_line(run, flags, capsys):
    code, _, err = command(capsys, "topics", run, *flags)
    assert code == 2
    assert "--rank-" in one_line(err)


def test_reports__name_the_measure_above_the_words(run, tmp_path):
    report(run, tmp_path / "frex.html", rank_by="frex")
    text = (tmp_path / "frex.html").read_text(encoding="utf-8")
    assert "Frequent and exclusive words (FREX)" in text
    assert "Most probable words" not in text


def test_estimators__can_rank_words_too():
    counts = np.array([[9, 4, 0, 0, 6], [8, 6, 0, 0, 7], [0, 0, 7, 5, 6], [0, 0, 9, 3, 8]])
    lda = CollapsedLDA(n_components=2, beta=0.1, max_iter=30, random_state=0).fit(counts)
    by_lift = lda.top_words(2, rank_by="lift")
    assert sorted(map(sorted, by_lift)) == [["x0", "x1"], ["x2", "x3"]]
    assert all("x4" in words for words in lda.top_words(3))
    with pytest.raises(OptionError, match="rank_by"):
        lda.top_words(2, rank_by="fame")


def test_components_of_vectors__have_no_other_ranking(tmp_path):
    from collapsium.pipeline import simulate

    simulate(tmp_path / "vectors", family="hca", documents=40, words=6, seed=1)
    with pytest.raises(OptionError, match="loadings"):
        topics(tmp_path / "vectors", 3, rank_by="frex")


def summary_with(main):
    """Return the summary of a model whose topics are the main topics of some numbers of documents."""
    parts = [TopicSummary(id=topic, documents=number, examples=()) for topic, number in enumerate(main)]
    return SummaryRecord(model="", documents=sum(main), topics=tuple(parts), examples=(), fields=())


SEVERAL = "Topics {} have these shares of the tokens, but each is the main topic of {} documents."


@pytest.mark.parametrize(
    ("main", "lines"),
    [
        ((50, 50), []),
        ((999, 1), ["Topic 1 has 50.0% of the tokens, but is the main topic of 1 of 1,000 documents."]),
        ((998, 0, 2), [SEVERAL.format("1 (33.3%), 2 (33.3%)", "at most 2 of 1,000")]),
        ((9, *[0] * 7), [SEVERAL.format(", ".join(f"{n} (12.5%)" for n in range(1, 6)) + " and 2 more", "none of 9")]),
    ],
)
def test_large_topics_that_lead_in_hardly_any_document__are_named_in_one_line(main, lines):
    found = [ranking.Topic(topic, 1.0 / len(main), []) for topic in range(len(main))]
    assert ranking.held_by_few(found, summary_with(main)) == lines


def test_topics_whose_expected_tokens_vanish__are_not_listed(labelled_small, tmp_path):
    fit(labelled_small[0], tmp_path / "run", family="hdsp", topics=20, iterations=20, scheduler="serial")
    model = Model(tmp_path / "run")
    tokens = model.vocabulary.tokens.sum()
    listed = {topic.id for topic in topics(model.folder.url, 3)}
    described = ranking.describe(model, 1)
    assert listed == set(described.ids[described.share * tokens >= 0.5].tolist())
    assert len(listed) < (described.share > 0.0).sum()
    summary = summary_of(model, Corpus(labelled_small[0]), SerialExecutor())
    assert {topic.id for topic in summary.topics} == listed
