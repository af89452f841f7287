"""Agreement of documents' largest topics with labels."""

import numpy as np
import pytest

from collapsium.pipeline.analysis.metrics.labelled import (
    adjusted_rand_index,
    linear_accuracy,
    normalised_mutual_information,
    purity,
)

LABELS = np.repeat([0, 1, 2], 20)


def test_perfect_clusters__score_1():
    for measure in (purity, normalised_mutual_information, adjusted_rand_index):
        assert measure(LABELS, (LABELS + 1) % 3) == pytest.approx(1.0)


def test_a_single_cluster__has_the_purity_of_the_largest_label_and_no_mutual_information():
    clusters = np.zeros(60, dtype=np.int64)
    assert purity(LABELS, clusters) == pytest.approx(1 / 3)
    assert normalised_mutual_information(LABELS, clusters) == pytest.approx(0.0)
    assert adjusted_rand_index(LABELS, clusters) == pytest.approx(0.0)


def test_linear_accuracy__is_high_if_proportions_separate_the_labels():
    generator = np.random.default_rng(0)
    proportions = generator.dirichlet([0.2, 0.2, 0.2], size=60)
    proportions[np.arange(60), LABELS] += 2.0
    assert linear_accuracy(LABELS, proportions / proportions.sum(axis=1, keepdims=True)) > 0.95
    assert linear_accuracy(LABELS, generator.dirichlet([1.0, 1.0, 1.0], size=60)) < 0.6
    assert np.isnan(linear_accuracy(np.arange(60), proportions))
