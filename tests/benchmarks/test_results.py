"""Results: recovery of known topics, ranked tables, and pages and the README that agree with the file of results."""

import numpy as np
import pytest

from tests.benchmarks.results import cells, report
from tests.benchmarks.results.corpora import prepare
from tests.benchmarks.results.fit import agreement, found, holding, is_flat
from tests.benchmarks.results.plan import CONTESTANTS, CORPORA


def fit(corpus, contestant, seed, **figures):
    points = [[1, 0.5, figures["score"] - 0.2], [10, 2.0, figures["score"]]]
    return {"key": ["peers", corpus, contestant, seed], "points": points, "seconds": 2.0, "megabytes": 100, **figures}


def test_recovered_topics__need_distinct_fitted_topics():
    truth = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]])
    assert found(truth, truth[::-1]) == 1.0
    assert found(truth, np.array([[0.5, 0.5, 0.0, 0.0], [0.45, 0.55, 0.0, 0.0]])) == 0.5
    assert found(truth, np.array([[0.25, 0.25, 0.25, 0.25]])) == 0.0


def test_recovered_topics_of_cells__are_matched_by_their_proportions():
    truth = np.random.default_rng(1).dirichlet(np.full(4, 0.3), size=50)
    assert cells.recovered(truth, truth[:, [2, 0, 3, 1]]) == pytest.approx(1.0)
    silent = np.column_stack([truth[:, [1, 0]], np.zeros(50), truth[:, 2], truth[:, 3:] * 0.5])
    assert cells.recovered(truth, silent) == pytest.approx(1.0)
    assert cells.recovered(truth, truth[::-1]).max() < 0.6


def test_simulated_cells__have_the_number_of_peaks_of_their_depth():
    rate = np.random.default_rng(2).dirichlet(np.ones(2_000), size=3).astype(np.float32)
    depth = np.array([50.0, 200.0, 600.0])
    open_peaks = -np.expm1(-cells.fragments(rate, depth)[:, np.newaxis] * rate)
    np.testing.assert_allclose(open_peaks.sum(axis=1), depth, rtol=0.02)


def test_stability__counts_topics_without_a_match_as_zero():
    topics = np.eye(3)
    assert agreement([topics, topics[::-1]]) == pytest.approx(1.0)
    assert agreement([topics, topics[:2]]) == pytest.approx(2 / 3)


def test_a_curve_is_flat__once_twice_the_iterations_gain_little():
    rising = [(n, float(n), -7.0 + 0.01 * step) for step, n in enumerate((10, 20, 50, 100))]
    assert not is_flat(rising, 50)
    assert is_flat([*rising, (200, 200.0, rising[-1][2] + 0.004)], 50)
    assert not is_flat([(10, 1.0, -7.0), (20, 2.0, -7.0)], 50)


def test_topics_that_hold_99_percent():
    assert holding(np.array([0.5, 0.49, 0.01, 0.0])) == 2


def test_tables__begin_with_the_best_and_have_means_and_deviations():
    records = [
        fit("small", "lda", 1, score=-7.1),
        fit("small", "lda", 2, score=-7.3),
        fit("small", "gensim", 1, score=-7.0, averaged=-6.9),
    ]
    summary = report.Summary(records)
    assert summary.contestants("small") == ["gensim", "lda"]
    assert summary.text("small", "lda", "score", ".2f") == "-7.20±0.14"
    assert summary.seconds_to("small", "lda", -7.3) == 0.5
    lines = report.filled("<!-- table: peers -->\nold\n<!-- end of table -->\n", records).splitlines()
    assert [line.split(" | ")[0] for line in lines[3:5]] == ["| gensim", "| `lda`"]
    assert report.differences(records, records) == []
    better = [*records[:2], fit("small", "gensim", 1, score=-8.0)]
    assert report.differences(better, records) == ["small: lda, gensim; published: gensim, lda"]


def test_corpora_and_contestants__are_named_once():
    for named in (CORPORA, CONTESTANTS):
        assert len({item.name for item in named}) == len(named)


def test_a_public_corpus_without_its_source__is_left_out(tmp_path):
    assert prepare(CORPORA[-1], tmp_path, None) is None
    assert prepare(CORPORA[-1], tmp_path, tmp_path) is None
