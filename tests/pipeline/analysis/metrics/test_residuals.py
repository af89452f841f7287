"""The dispersion of residuals, against its definition, and near 1 for simulated counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import Corpus, Model, fit, measure, simulate
from collapsium.pipeline.analysis.metrics.measure import residual_sums
from collapsium.storage.errors import OptionError

SERIAL = {"scheduler": "serial"}


@given(st.integers(0, 99))
def test_squared_residuals_of_multinomial_counts__average_1(seed):
    generator = np.random.default_rng(seed)
    lengths = generator.integers(50, 90, (200, 1)).astype(float)
    probability = generator.dirichlet(np.full(20, 5.0), 200)
    counts = np.stack([generator.multinomial(int(n), p) for n, p in zip(lengths[:, 0], probability, strict=True)])
    sums = residual_sums(counts, lengths * probability, lengths)
    assert sums.cells == (lengths * probability > 0.01).sum()
    assert sums.squares / sums.cells == pytest.approx(1.0, abs=0.1)


def test_dispersion__matches_its_definition_over_all_documents_and_words(tmp_path):
    simulate(tmp_path / "corpus", family="lda", topics=3, documents=60, words=30, tokens=200, shard_tokens=5000)
    fit(tmp_path / "corpus", tmp_path / "run", family="lda", topics=3, iterations=20, **SERIAL)
    model = Model(tmp_path / "run")
    probability = model.document_topic @ model.topic_word
    counts = np.zeros_like(probability)
    row = 0
    for reference in Corpus(tmp_path / "corpus").references:
        documents = reference.documents()
        for start, end in zip(documents.offsets[:-1], documents.offsets[1:], strict=True):
            counts[row, documents.words[start:end]] = documents.counts[start:end]
            row += 1
    lengths = counts.sum(axis=1, keepdims=True)
    expected = lengths * probability
    parameters = 60 * 2 + 3 * 29
    squares = ((counts - expected) ** 2 / (expected * (1 - probability))).sum()
    dispersion = squares / ((expected > 0.01).sum() - parameters)
    measured = measure(tmp_path / "run", metrics="dispersion", **SERIAL)["dispersion"]
    assert measured.value == pytest.approx(dispersion, rel=1e-6)
    assert measured.definition.endswith("of all training documents")


def test_dispersion_with_weighted_words__is_refused(tmp_path):
    simulate(tmp_path / "corpus", family="lda", topics=2, documents=20, words=20, tokens=30)
    fit(tmp_path / "corpus", tmp_path / "run", family="lda", topics=2, iterations=1, weights="idf", **SERIAL)
    with pytest.raises(OptionError, match="weights of words"):
        measure(tmp_path / "run", metrics="dispersion", **SERIAL)
