"""Conformance of families with priors that depend on a field of the documents."""

import shutil

import pytest

from tests.conformance import (
    Conformance,
    references,  # noqa: F401 - fixture
)
from tests.conftest import simulated, write_corpus

pytestmark = pytest.mark.long


def kinds(theta):
    """Return the largest topic of each document as its only label; some documents have none."""
    return [[] if number % 11 == 3 else [("kind", f"k{row.argmax() % 2}")] for number, row in enumerate(theta)]


@pytest.fixture(scope="module")
def kinds_small(tmp_path_factory):
    """A training corpus of 60 documents in 5 shards and a held-out corpus, in which documents have at most one label."""
    place = tmp_path_factory.mktemp("kinds")
    models = []
    for name, seed, size in (("train", 1, 500), ("heldout", 2, 900)):
        rows, theta = simulated(seed)
        models.append(str(write_corpus(place / name, rows, 30, shard_tokens=size, labels=kinds(theta))))
    yield tuple(models)
    shutil.rmtree(place, ignore_errors=True)


class PrevalenceConformance(Conformance):
    labelled = True
    test_fit__accepts_one_word_one_document_and_one_topic = (
        None  # a single document has a single value of the field, which cannot be a covariate
    )

    @pytest.fixture
    def small(self, kinds_small):
        """The corpora with at most one label per document."""
        return kinds_small

    def ground_truth_labels(self, theta):
        """Return one of two labels for each document; both occur in every corpus."""
        return [[("kind", f"k{number % 2}")] for number in range(len(theta))]


class TestLdaPrevalence(PrevalenceConformance):
    family = "lda"
    matrix = ({"topics": 4, "prevalence": "~ kind"},)


class TestHdpPrevalence(PrevalenceConformance):
    family = "hdp"
    matrix = ({"topics": 8, "prevalence": "~ kind"},)
