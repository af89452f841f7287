"""Families that need labels or segments, on corpora without them."""

import json

import pytest

from collapsium.pipeline import fit
from collapsium.pipeline.models.registry import family_names, load_family
from collapsium.storage.errors import OptionError
from collapsium.workers.shard_loading import document_parts
from tests.conftest import simulated_rows, write_corpus

NETWORKS = {
    "segments": {"document": {"over": "document"}, "section": {"over": "segment", "parents": ["document"]}},
    "documents": {"document": {"over": "document"}},
}
NEEDY = [name for name in family_names() if load_family(name).requires_labels]


@pytest.fixture
def plain(tmp_path):
    return write_corpus(tmp_path / "plain", simulated_rows(1, documents=12), 30)


def notices(corpus, out, **options):
    events = []
    fit(corpus, out, iterations=1, scheduler="serial", sinks=[events.append], **options)
    return [event["text"] for event in events if event["event"] == "notice"]


def required(family):
    return {"topics": 2} if family == "author-topic" else {}


@pytest.mark.parametrize("family", NEEDY)
def test_a_family_of_labels__refuses_a_corpus_without_them_before_anything_runs(plain, tmp_path, family):
    events = []
    with pytest.raises(OptionError, match="has no labels, and family") as error:
        fit(plain, tmp_path / "run", family=family, sinks=[events.append], **required(family))
    assert len(str(error.value).splitlines()) == 1
    assert events == []
    assert not (tmp_path / "run").exists()


def test_families_that_need_labels__are_listed():
    assert {"labeled-lda", "partially-labeled-lda", "author-topic"} == set(NEEDY)


@pytest.mark.parametrize("family", ["segmented-lda", "sequential-lda"])
def test_a_family_of_segments__gives_one_notice_that_documents_are_segments(plain, tmp_path, family):
    (line,) = notices(plain, tmp_path / "run", family=family, topics=2)
    assert "each document is one segment" in line
    events = [json.loads(event) for event in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    assert [event["text"] for event in events if event["event"] == "notice"] == [line]
    assert len(notices(plain, tmp_path / "both", family=family, topics=2, restarts=2)) == 1


def test_a_network__requires_what_its_vectors_are_over(plain, tmp_path):
    options = {"family": "dirichlet-network", "topics": 2}
    assert len(notices(plain, tmp_path / "a", network=NETWORKS["segments"], **options)) == 1
    assert notices(plain, tmp_path / "b", network=NETWORKS["documents"], **options) == []


def test_a_complete_corpus__gives_no_notice(segmented_small, labelled_small, plain, tmp_path):
    (line,) = notices(segmented_small[0], tmp_path / "a", family="segmented-lda", topics=2)
    assert line.endswith("of the documents' fields (labels), the model uses none")
    (line,) = notices(labelled_small[0], tmp_path / "b", family="hdsp", topics=3)
    assert line.endswith("of the documents' fields (labels), the model uses labels")
    (line,) = notices(plain, tmp_path / "c", family="hdsp", topics=3)
    assert "has no labels" in line
    assert not any(document_parts(load_family("lda")).values())
    assert notices(plain, tmp_path / "d", family="lda", topics=2) == []
