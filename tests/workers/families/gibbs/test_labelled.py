"""Properties specific to the families whose topics depend on labels."""

import json

import numpy as np
import pytest

from collapsium.pipeline import Corpus, fit, simulate, topics
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.models.model import Model
from collapsium.storage.errors import OptionError
from collapsium.workers.families.gibbs.states import MAX_TOPICS

FAMILIES = {
    "labeled-lda": {},
    "partially-labeled-lda": {"topics_per_label": 1, "background": 1},
    "author-topic": {"topics": 5},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_simulated_topics__are_recovered_with_their_labels(tmp_path, family):
    options = {**FAMILIES[family], "eta": 0.1}
    sizes = {"documents": 300, "words": 60, "tokens": 60.0, "shard_tokens": 6000}
    manifest = simulate(tmp_path / "c", family=family, seed=3, **sizes, **options)
    labels = [reference.labels() for reference in Corpus(tmp_path / "c").references]
    assert manifest.fields.keys() >= {"labels"}
    assert {name for document in labels for name in document.names} == {
        ("label", f"label-{number}") for number in range(1, 9)
    }
    fit(tmp_path / "c", tmp_path / "run", family=family, iterations=150, scheduler="serial", **options)
    true, found = (Model(tmp_path / name).rows(0).word_topic.T for name in ("c/truth", "run"))
    true, found = (counts / counts.sum(axis=1, keepdims=True) for counts in (true, found))
    distance = 0.5 * np.abs(true[:, np.newaxis] - found).sum(axis=2)
    if family == "author-topic":
        assert sorted(distance.argmin(axis=1)) == list(range(5))
        assert distance.min(axis=1).mean() < 0.15
    else:  # each topic has the index of its label
        assert np.diag(distance).mean() < 0.15


@pytest.mark.parametrize("family", FAMILIES)
def test_a_corpus_without_labels__is_refused_before_anything_is_written(small, tmp_path, family):
    with pytest.raises(OptionError, match="has no labels, .*`ingest` reads labels of documents with `labels`"):
        fit(small[0], tmp_path / "run", family=family, **FAMILIES[family])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("family", FAMILIES)
def test_fields__can_be_chosen_and_unknown_names_get_a_suggestion(labelled_small, tmp_path, family):
    options = {"family": family, "iterations": 1, "scheduler": "serial", **FAMILIES[family]}
    with pytest.raises(OptionError, match="`labels` kinds: .*did you mean 'kind'"):
        fit(labelled_small[0], tmp_path / "run", labels=("kinds",), **options)
    assert not (tmp_path / "run").exists()
    fit(labelled_small[0], tmp_path / "run", labels=("kind",), **options)
    assert len(topics(tmp_path / "run")) >= 3


def test_more_topics_than_tokens_can_index__are_refused(labelled_small, tmp_path, monkeypatch):
    with pytest.raises(OptionError, match="3 labels of 30000 topics each, .* expected 65536 at most"):
        fit(labelled_small[0], tmp_path / "run", family="partially-labeled-lda", topics_per_label=30_000)
    assert not (tmp_path / "run").exists()
    assert np.iinfo(np.uint16).max + 1 == MAX_TOPICS


def test_topics__are_named_after_their_labels(labelled_small, tmp_path, capsys):
    options = {"family": "partially-labeled-lda", "iterations": 2, "scheduler": "serial"}
    fit(labelled_small[0], tmp_path / "run", **options)
    expected = {f"{name} {number}" for name in ("topic 0", "topic 1", "topic 2", "(background)") for number in (1, 2)}
    assert {topic.title for topic in topics(tmp_path / "run")} == expected
    assert main(["topics", str(tmp_path / "run"), "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert {topic["title"] for topic in output} == expected
    assert main(["topics", str(tmp_path / "run"), "--words", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(
        f"{topic['title']}: {topic['words'][0]['word']} " in line for topic, line in zip(output, lines, strict=True)
    )


def test_warm_starts_of_labelled_topics__require_a_run_whose_topics_have_labels(labelled_small, tmp_path):
    options = {"iterations": 1, "scheduler": "serial"}
    fit(labelled_small[0], tmp_path / "lda", family="gibbs-lda", topics=3, **options)
    with pytest.raises(OptionError, match="warm: a family whose topics belong to labels begins only from a run"):
        fit(labelled_small[0], tmp_path / "run", family="labeled-lda", warm=tmp_path / "lda", **options)
    fit(labelled_small[0], tmp_path / "run", family="author-topic", topics=4, warm=tmp_path / "lda", **options)
    assert len(topics(tmp_path / "run")) >= 3
