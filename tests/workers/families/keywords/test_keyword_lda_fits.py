"""Conformance of topics with keywords, and recovery of topics from their keywords."""

import numpy as np
import pytest

from collapsium.pipeline import Corpus, Model, fit, topics, verify
from collapsium.storage.errors import OptionError
from tests.conformance import (
    Conformance,
    references,  # noqa: F401 - fixture
)
from tests.conftest import mark_rest_long
from tests.workers.families.cvb.test_seeds import TRUE_TOPICS, WORDS, corpus, seeds_of, similarity  # noqa: F401

SEEDS = {"first": ["w0", "w1", "w2"], "second": ["w12", "w2"]}


class TestKeywordLda(Conformance):
    family = "keyword-lda"

    def sized(self, topics):
        """Omit seeds, because some corpora have a single word."""
        return {"topics": topics, "seeds": {"first": ["w0"]}}

    matrix = (
        {"topics": 4, "seeds": SEEDS},
        {"topics": 4, "seeds": SEEDS, "responsibilities": "dense", "learn": ("alpha",)},
        {"topics": 4, "seeds": SEEDS, "weights": "log-tf-idf"},
    )


@pytest.mark.parametrize("responsibilities", ["active", "dense"])
@pytest.mark.parametrize("seed", mark_rest_long([0, 1, 2]))
def test_keyword_topics__are_found_where_their_keywords_are(corpus, tmp_path, responsibilities, seed):  # noqa: F811
    chosen = (6, 1, 4)
    options = {"topics": 8, "seeds": seeds_of(chosen), "responsibilities": responsibilities}
    fit(corpus, tmp_path / "run", family="keyword-lda", iterations=40, seed=seed, scheduler="serial", **options)
    model = Model(tmp_path / "run")
    for topic, true in enumerate(chosen):
        alike = [similarity(model, topic, true_topic) for true_topic in range(TRUE_TOPICS)]
        assert np.argmax(alike) == true
        assert alike[true] > 0.8
    titles = {topic.id: topic.title for topic in topics(tmp_path / "run")}
    assert [titles[topic] for topic in range(4)] == ["true 6", "true 1", "true 4", None]
    assert verify(tmp_path / "run").broken == []
    state = model.global_state
    rows = np.concatenate([model.rows(number).dense_counts for number in range(len(model.blocks))])
    assert np.allclose(rows.sum(axis=1), Corpus(corpus).vocabulary.tokens, rtol=1e-4, atol=1e-3)
    assert rows.shape[0] == WORDS
    assert (state.keyword_counts <= rows[state.keyword_words, state.keyword_topics] + 1e-2).all()
    assert 0.0 < state.keyword_counts.sum() < state.topic_moments[0][:3].sum()


def test_a_warm_start__retains_topics_and_names(corpus, tmp_path):  # noqa: F811
    options = {"family": "keyword-lda", "topics": 8, "seeds": seeds_of((3, 5)), "scheduler": "serial"}
    fit(corpus, tmp_path / "run", iterations=20, **options)
    fit(corpus, tmp_path / "warm", iterations=3, warm=tmp_path / "run", **options)
    before, after = (Model(tmp_path / name) for name in ("run", "warm"))
    assert np.sqrt(before.topic_word * after.topic_word).sum(axis=1).min() > 0.95
    assert topics(tmp_path / "warm")[0].title == topics(tmp_path / "run")[0].title


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "seeds` is required"),
        ({"seeds": {}}, "seeds"),
        ({"seeds": {"a": {"words": ["w1"], "strength": 2.0}}}, "without strength"),
        ({"seeds": {"a": ["unknown"]}}, "vocabulary"),
        ({"seeds": {"a": ["w1"]}, "order": 2}, "order"),
    ],
)
def test_wrong_options__are_refused(corpus, tmp_path, options, reason):  # noqa: F811
    with pytest.raises(OptionError, match=reason):
        fit(corpus, tmp_path / "run", family="keyword-lda", topics=8, scheduler="serial", **options)
    assert not (tmp_path / "run").exists()
