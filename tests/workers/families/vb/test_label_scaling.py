"""Updates of the labels' weights against the bound itself, written out over the documents."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.labels import LabelTable, NumberField
from collapsium.workers.families.vb.label_scaling import (
    InverseGamma,
    LogLinear,
    WeightSums,
    _separate_steps,
    gradient_of,
)
from collapsium.workers.families.vb.states import LabelRange, LabelSums, LogLinearWeights


class Documents:
    """Documents with values r (documents, labels), n and 1/b; E[pi] = (g + n) / b stays constant."""

    def __init__(self, seed, documents, labels, numbers, topics):
        generator = np.random.default_rng(seed)
        has = generator.random((documents, labels)) < 0.5
        self.r = np.hstack([has.astype(float), generator.normal(size=(documents, numbers))])
        self.n = generator.gamma(0.3, 10.0, (documents, topics))
        self.inverse = 1.0 / generator.gamma(2.0, 5.0, (documents, topics))
        self.prior = generator.gamma(1.0, 1.0, topics)
        names = tuple(("label", str(label)) for label in range(labels))
        fields = tuple(NumberField(str(number), documents, 0.0, 1.0, 1.0, ()) for number in range(numbers))
        self.table = LabelTable(names, (1,) * labels, fields)
        length = np.abs(self.r).sum(axis=1)
        reach = np.abs(self.r).max(axis=0, initial=0.0)
        self.range = LabelRange(float(length.max(initial=0.0)), 0.0 if numbers else 1.0, reach)

    def initial_weights(self, scaling, seed):
        """Return weights near the prior."""
        generator, shape = np.random.default_rng(seed), (len(self.table), self.prior.size)
        weights = scaling.initial_weights(np.zeros(shape))
        if isinstance(scaling, LogLinear):
            return scaling.rates(replace(weights, label_topic=weights.label_topic + generator.normal(size=shape)))
        rate = weights.weight_rate * np.exp(generator.normal(size=shape))
        shape = weights.weight_shape * np.exp(generator.normal(size=shape))
        return scaling.rates(replace(weights, weight_rate=rate, weight_shape=shape))

    def step(self, scaling, rates, *, whole):
        """Return the rates after an update."""
        return scaling.next_rates(rates, self.sums(rates, whole=whole), self.range)

    def expected(self):
        return (self.prior + self.n) * self.inverse

    def bound(self, scaling, rates):
        """Return the part of the bound that depends on the weights."""
        documents = self.prior * (self.r @ rates.label_mean_log) - np.exp(self.r @ rates.label_log) * self.expected()
        return float(documents.sum()) + scaling.bound(rates)

    def sums(self, rates, *, whole):
        """Return the sums of a sweep."""
        rate, length = np.exp(self.r @ rates.label_log), np.abs(self.r).sum(axis=1)
        parts = []
        for side in (np.maximum(self.r, 0), np.maximum(-self.r, 0)):
            for weighted in (side, side * length[:, np.newaxis]):
                parts += [weighted.T @ (rate * self.inverse * self.n), weighted.T @ (rate * self.inverse)]
        sums = np.stack(parts, axis=1)
        curvature = None
        if whole:
            both = [np.einsum("mj,mi,mk->jik", self.r, self.r, rate * self.inverse * more) for more in (self.n, 1.0)]
            curvature = np.concatenate(both, axis=1)
        return WeightSums.of(self.prior, LabelSums(self.r.sum(axis=0), sums, curvature))


SCALINGS = {
    "labels": (InverseGamma(1.5, 0.7, False), 0, False),
    "labels, prior learned": (InverseGamma(1.5, 0.7, True), 0, False),
    "linear, labels": (LogLinear(0.8, False), 0, False),
    "linear, Hessian": (LogLinear(0.8, False), 2, True),
    "linear, each by itself": (LogLinear(0.8, False), 2, False),
    "linear, prior learned": (LogLinear(0.8, True), 1, True),
}


@pytest.mark.parametrize("name", SCALINGS)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 5), st.integers(1, 3))
def test_step__never_decreases_the_bound(name, seed, documents, labels, topics):
    scaling, numbers, whole = SCALINGS[name]
    given_ = Documents(seed, documents, labels, numbers, topics)
    rates = given_.initial_weights(scaling, seed)
    before = given_.bound(scaling, rates)
    for _ in range(5):
        rates = given_.step(scaling, rates, whole=whole)
        after = given_.bound(scaling, rates)
        assert after >= before - 1e-9 * (1 + abs(before))
        before = after


def test_steps__converge_to_the_papers_fixed_point():
    """By (29), b_kj = b_w + sum over the documents with label j of E[pi] prod over their other labels of E[1/w]."""
    scaling, given_ = InverseGamma(1.5, 0.7, False), Documents(1, 30, 4, 0, 3)
    rates = given_.initial_weights(scaling, 1)
    for _ in range(200):
        rates = given_.step(scaling, rates, whole=False)
    weights = rates.inverse_gamma
    inverse = weights.weight_shape / weights.weight_rate
    for label in range(4):
        mine = given_.r[:, label] > 0
        remaining = given_.r[mine] * (np.arange(4) != label)
        rate = 0.7 + (given_.expected()[mine] * np.exp(remaining @ np.log(inverse))).sum(axis=0)
        np.testing.assert_allclose(weights.weight_rate[label], rate, rtol=1e-8)
        np.testing.assert_allclose(weights.weight_shape[label], 1.5 + given_.prior * mine.sum(), rtol=1e-12)


@pytest.mark.parametrize("whole", [True, False])
def test_linear_steps__converge_to_a_zero_gradient(whole):
    scaling, given_ = LogLinear(0.8, False), Documents(2, 30, 3, 2, 3)
    rates = given_.initial_weights(scaling, 2)
    for _ in range(12 if whole else 400):
        rates = given_.step(scaling, rates, whole=whole)
    gradient = gradient_of(rates.label_log, 0.8, given_.sums(rates, whole=False))
    np.testing.assert_allclose(gradient, 0.0, atol=1e-7)


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 3))
def test_gradient_and_hessian__agree_with_finite_differences(seed, documents, topics):
    scaling, given_, step = LogLinear(0.8, False), Documents(seed, documents, 2, 1, topics), 2e-3
    rates = given_.initial_weights(scaling, seed)
    sums, weight = given_.sums(rates, whole=True), rates.label_log
    gradient = gradient_of(weight, 0.8, sums)
    loads = sums.above + sums.below + np.abs(sums.total)[:, np.newaxis] * sums.prior + np.abs(weight)
    for label in range(3):
        for topic in range(topics):
            step_of_weight = _one(weight.shape, label, topic) * step
            moved = {n: scaling.rates(LogLinearWeights(0.8, weight + n * step_of_weight)) for n in (-2, -1, 1, 2)}
            change = _slope({n: given_.bound(scaling, at) for n, at in moved.items()}, step)
            assert gradient[label, topic] == pytest.approx(change, rel=1e-6, abs=1e-6 * (1 + loads[label, topic]))
            slopes = {
                n: gradient_of(at.label_log, 0.8, given_.sums(at, whole=False))[:, topic] for n, at in moved.items()
            }
            hessian = -sums.curvature[label, :, topic] - (np.arange(3) == label) / 0.8
            bend = _slope(slopes, step)
            np.testing.assert_allclose(bend, hessian, rtol=1e-6, atol=1e-6 * np.abs(hessian).max())


def _slope(values, step):
    """Return the derivative from differences over two steps, exact up to the fourth power of the step."""
    return (8 * (values[1] - values[-1]) - (values[2] - values[-2])) / (12 * step)


def _one(shape, label, topic):
    found = np.zeros(shape)
    found[label, topic] = 1.0
    return found


def test_single_labels__converge_in_one_step():
    """If no document has two labels, the minoriser equals the bound."""
    given_ = Documents(3, 40, 3, 0, 2)
    given_.r = np.eye(3)[np.arange(40) % 3]
    given_.range = replace(given_.range, label_most=1.0)
    for scaling in (InverseGamma(1.5, 0.7, False), LogLinear(0.8, False)):
        rates = given_.initial_weights(scaling, 3)
        once = given_.step(scaling, rates, whole=False)
        twice = given_.step(scaling, once, whole=False)
        assert given_.bound(scaling, twice) == pytest.approx(given_.bound(scaling, once), rel=1e-12)
        assert given_.bound(scaling, once) > given_.bound(scaling, rates)


def test_separate_steps__converge_from_distant_weights():
    sums = WeightSums(np.ones(1), np.array([1.0]), *(np.array([[value]]) for value in (1e30, 3e30, 0.0, 0.0)))
    moved = _separate_steps(np.array([[70.0]]), 1.0, sums, LabelRange(4.0, 1.0, np.ones(1)))
    assert -50.0 <= moved[0, 0] < -10.0
