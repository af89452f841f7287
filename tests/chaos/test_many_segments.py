"""Commands on a document of 100,000 segments with one word each, such as a long log."""

import numpy as np
import pytest

from collapsium import pipeline
from tests.conftest import write_corpus

SEGMENTS, WORDS = 100_000, 50
CHAPTERS = {
    "document": {"over": "document"},
    "chapter": {"over": "segment", "every": 10, "parents": ["chapter[-1]"], "otherwise": ["document"]},
    "section": {"over": "segment", "parents": ["chapter"]},
}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A corpus of the long document and a short one."""
    words = np.random.default_rng(0).integers(0, WORDS, SEGMENTS)
    documents = [[{int(word): 1} for word in words], [{0: 2}, {1: 1}]]
    return str(write_corpus(tmp_path_factory.mktemp("log") / "corpus", documents, WORDS, segmented=True))


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("segmented-lda", {}),
        ("segmented-lda", {"inference": "variational"}),
        ("sequential-lda", {}),
        ("sequential-lda", {"inference": "variational"}),
        ("dirichlet-network", {"network": CHAPTERS}),
        ("lda", {}),
    ],
)
def test_a_document_of_many_segments__is_fitted_and_inferred(log, tmp_path, family, options):
    run = str(tmp_path / "run")
    pipeline.fit(log, run, family=family, topics=4, iterations=2, scheduler="serial", **options)
    pipeline.verify(run)
    inferred = pipeline.infer(run, log, str(tmp_path / "proportions"))
    assert inferred is not None


@pytest.mark.long
def test_a_document_of_many_segments__is_exploded_into_as_many_documents(log, tmp_path):
    pipeline.explode(log, str(tmp_path / "flat"))
    assert pipeline.info(str(tmp_path / "flat"))["documents"] == SEGMENTS + 2
