"""Scaling functions of documents' proportions, given their labels (Kim and Oh 2017).

A scaling function is a class: its initial weights, E[log R] and log E[R] of each label and topic, its part of the
bound, and one step of its weights. Rates are log-linear: log E[R_mk] = sum_j r_mj x_jk, and sweeps see only x.

Labels of one document interact: R_mk is a product over them. All weights move at once, from the sums of one sweep, on
a minoriser that touches the bound at the present weights, so the bound never falls. With n_m = sum_j |r_mj| and weights
|r_mj| / n_m, Jensen's inequality separates the labels: exp(sum_j r_mj y_j) <= 1 + sum_j |r_mj| h(n_m, +-y_j), h(n, y) =
(exp(n y) - 1) / n. In n, h is convex where y > 0, and lies below its chord between the least and the largest n; where
y < 0 it is concave, and its mean lies below h at the mean n. So the sums over documents of |r| R E[pi] and of n_m |r| R
E[pi], S and U below, are sufficient; both bounds have the slope and the curvature of the sum at y = 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from collapsium.workers import special_functions as special
from collapsium.workers.families.vb.states import (
    InverseGammaWeights,
    LabelRange,
    LabelRates,
    LabelSums,
    LogLinearWeights,
)
from collapsium.workers.special_functions import digamma, gammaln, polygamma

Vector = npt.NDArray[np.float64]
WeightsT = TypeVar("WeightsT")

# Newton's method over the labels and topics seldom needs ten steps.
MAX_NEWTON_STEPS, NEWTON_TOLERANCE = 60, 1e-12

# Ranges in which parameters of the weights' prior are learned.
SHAPE_RANGE = 1e-3, 1e6
VARIANCE_RANGE = 1e-4, 1e4

# Numbers of labels x labels x topics up to which the whole Hessian of linear weights is summed
MAX_HESSIAN_SIZE = 1 << 20


@dataclass(frozen=True)
class WeightSums:
    """Sums over the documents from which weights are updated, with q(pi) for a certain prior."""

    prior: Vector  # g_k = beta p_k; float64 (topics,)
    total: Vector  # sum_m r_mj; float64 (labels,)
    # sum_m |r_mj| R_mk E[pi_mk] over r_mj > 0, and the same with each document n_m times; float64 (labels, topics)
    above: Vector
    above_long: Vector
    # The same over r_mj < 0; float64 (labels, topics)
    below: Vector
    below_long: Vector
    # sum_m r_mj r_mi R_mk E[pi_mk], where it is summed; float64 (labels, labels, topics)
    curvature: Vector | None = None

    @staticmethod
    def of(prior: Vector, labels: LabelSums) -> WeightSums:
        """Return the sums of all labels; E[pi] = (g + n) / b is a part that does not depend on g, and one that does."""
        sums = labels.label_sums
        halves = [sums[:, place] + prior * sums[:, place + 1] for place in range(0, sums.shape[1], 2)]
        zero = np.zeros_like(halves[0])
        combined = None
        if labels.label_curvature is not None:
            curvature = labels.label_curvature
            half = curvature.shape[1] // 2
            combined = curvature[:, :half] + prior * curvature[:, half:]
        below = halves[2:] if len(halves) > 2 else [zero, zero]
        return WeightSums(prior, labels.label_total, halves[0], halves[1], below[0], below[1], combined)


class Scaling(ABC, Generic[WeightsT]):
    """A scaling function; its weights have the shape (labels, topics)."""

    @abstractmethod
    def weights(self, rates: LabelRates) -> WeightsT:
        """Return the weights that give the rates."""

    @abstractmethod
    def rates(self, weights: WeightsT) -> LabelRates:
        """Return the rates, for a label of value 1."""

    @abstractmethod
    def initial_weights(self, log_rate: Vector) -> WeightsT:
        """Return initial weights, whose log E[R] is near `log_rate`, shape (labels, topics)."""

    @abstractmethod
    def weights_bound(self, weights: WeightsT) -> float:
        """Return E[log p(w)] - E[log q(w)], in nats."""

    @abstractmethod
    def next_weights(self, weights: WeightsT, sums: WeightSums, label_range: LabelRange) -> WeightsT:
        """Return the next weights and parameters of their prior; the bound does not fall."""

    @abstractmethod
    def weights_figures(self, weights: WeightsT) -> dict[str, float]:
        """Return the parameters of the prior."""

    def initial_rates(self, log_rate: Vector) -> LabelRates:
        """Return the rates of initial weights."""
        return self.rates(self.initial_weights(log_rate))

    def next_rates(self, rates: LabelRates, sums: WeightSums, label_range: LabelRange) -> LabelRates:
        """Return the rates of the next weights."""
        return self.rates(self.next_weights(self.weights(rates), sums, label_range))

    def bound(self, rates: LabelRates) -> float:
        """Return the weights' part of the bound, in nats."""
        return self.weights_bound(self.weights(rates))

    def metrics(self, rates: LabelRates) -> dict[str, float]:
        """Return the parameters of the weights' prior."""
        return self.weights_figures(self.weights(rates))


@dataclass(frozen=True)
class InverseGamma(Scaling[InverseGammaWeights]):
    """Labels: R_mk = prod_j w_kj^(-r_mj), w_kj ~ InvGamma(a_w, b_w), with q(w) of the same form: (15) to (17), (29)."""

    # Initial a_w and b_w
    shape: float = 1.0
    rate: float = 1.0
    learn: bool = False  # Whether they are learned

    def weights(self, rates: LabelRates) -> InverseGammaWeights:
        """Return q(w)."""
        if rates.inverse_gamma is None:
            raise ValueError("expected weights with an inverse-gamma distribution, found log-linear ones")
        return rates.inverse_gamma

    def rates(self, weights: InverseGammaWeights) -> LabelRates:
        """Return log E[1/w] = log a/b and E[log 1/w] = psi(a) - log b."""
        shape, rate = weights.weight_shape, weights.weight_rate
        return LabelRates(special.log(shape / rate), digamma(shape) - special.log(rate), inverse_gamma=weights)

    def initial_weights(self, log_rate: Vector) -> InverseGammaWeights:
        """Return the prior, scaled."""
        prior, shape = np.array([self.shape, self.rate]), np.full(log_rate.shape, self.shape)
        return InverseGammaWeights(prior, shape, self.rate / special.exp(log_rate))

    def weights_bound(self, weights: InverseGammaWeights) -> float:
        """Return -KL(q | p), summed over the labels and topics."""
        (a, b), shape, rate = weights.weight_prior, weights.weight_shape, weights.weight_rate
        log_inverse = digamma(shape) - special.log(rate)
        prior = a * special.log(b) - gammaln(a) + (a + 1) * log_inverse - b * shape / rate
        entropy = shape + special.log(rate) + gammaln(shape) - (1 + shape) * digamma(shape)
        return float((prior + entropy).sum())

    def next_weights(
        self, weights: InverseGammaWeights, sums: WeightSums, label_range: LabelRange
    ) -> InverseGammaWeights:
        """Take a_kj = a_w + g_k sum_m r_mj, and of E[1/w] = e exp(y) the best y on the minoriser."""
        # max_y a y - b_w e (exp(y) - 1) - F(y), F = (S - t)(exp(y) - 1) + t (exp(L y) - 1) / L, t = (U - S) / (L - 1),
        # for y > 0, L the largest number of labels of a document; for y < 0, F = S (exp(n y) - 1) / n, n = U / S.
        a, b = weights.weight_prior
        shape = a + sums.total[:, np.newaxis] * sums.prior
        inverse = weights.weight_shape / weights.weight_rate
        grows = shape > b * inverse + sums.above
        short, long, power = _majorant(sums.above, sums.above_long, 1.0, label_range.label_most, grows)
        inverse = inverse * special.exp(_balanced(shape, b * inverse + short, long, power))
        after = InverseGammaWeights(weights.weight_prior, shape, shape / inverse)
        return replace(after, weight_prior=_gamma_prior(after)) if self.learn else after

    def weights_figures(self, weights: InverseGammaWeights) -> dict[str, float]:
        """Return a_w and b_w."""
        a, b = weights.weight_prior
        return {"weight_shape": float(a), "weight_rate": float(b)}


def _majorant(
    single: Vector, long: Vector, smallest: float, largest: float, above: npt.NDArray[np.bool_]
) -> tuple[Vector, Vector, Vector]:
    """Return c, t and p of F'(y) = c exp(l y) + t exp(p y), which majorises the sum over documents on one side of 0."""
    span = max(largest - smallest, 1e-12)
    chord = np.clip((long - smallest * single) / span, 0.0, single)
    mean = np.clip(long / np.maximum(single, 1e-300), smallest, largest)
    return np.where(above, single - chord, 0.0), np.where(above, chord, single), np.where(above, largest, mean)


def _balanced(gain: Vector, single: Vector, several: Vector, power: Vector) -> Vector:
    """Solve a = B exp(y) + c exp(p y) for y, a and B above zero: from above, Newton's steps stay above."""
    y: Vector = special.log(gain / single)
    with np.errstate(divide="ignore"):
        y = np.minimum(y, np.where(several > 0.0, special.log(gain / np.maximum(several, 1e-300)) / power, np.inf))
    for _ in range(MAX_NEWTON_STEPS):
        once, powered = single * special.exp(y), several * special.exp(power * y)
        change = (gain - once - powered) / (once + power * powered)
        y = y + change
        if np.abs(change).max(initial=0.0) < NEWTON_TOLERANCE:
            break
    return y


def _gamma_prior(weights: InverseGammaWeights) -> Vector:
    """Learn a_w and b_w: the gamma distribution of 1/w whose E[1/w] and E[log 1/w] are the means of q's."""
    shape, rate = weights.weight_shape, weights.weight_rate
    if not shape.size:
        return weights.weight_prior
    mean, log_mean = float((shape / rate).mean()), float((digamma(shape) - special.log(rate)).mean())
    # log a - psi(a) is to be this.
    gap = special.log(mean) - log_mean
    a = float(weights.weight_prior[0])
    for _ in range(MAX_NEWTON_STEPS):
        error, slope = special.log(a) - digamma(a) - gap, 1.0 / a - float(polygamma(1, a))
        after = float(np.clip(1.0 / (1.0 / a + error / (a * a * slope)), a / 10, a * 10))
        if abs(after - a) < NEWTON_TOLERANCE * a:
            break
        a = after
    a = float(np.clip(a, *SHAPE_RANGE))
    return np.array([a, a / mean])


@dataclass(frozen=True)
class LogLinear(Scaling[LogLinearWeights]):
    """Labels and numbers: R_mk = exp(sum_j w_kj r_mj), w_kj ~ N(0, sigma), at the most probable w: (19) to (21)."""

    variance: float = 1.0  # Initial sigma
    learn: bool = False  # Whether it is learned

    def weights(self, rates: LabelRates) -> LogLinearWeights:
        """Return w."""
        if rates.log_linear is None:
            raise ValueError("expected log-linear weights, found those with an inverse-gamma distribution")
        return rates.log_linear

    def rates(self, weights: LogLinearWeights) -> LabelRates:
        """Return w twice, because its posterior is a point."""
        return LabelRates(weights.label_topic, weights.label_topic, log_linear=weights)

    def initial_weights(self, log_rate: Vector) -> LogLinearWeights:
        """Return the logarithms of the rates."""
        return LogLinearWeights(self.variance, np.array(log_rate))

    def weights_bound(self, weights: LogLinearWeights) -> float:
        """Return log p(w)."""
        weight, variance = weights.label_topic, weights.weight_variance
        return float(-0.5 * (weight**2).sum() / variance - 0.5 * weight.size * special.log(2 * np.pi * variance))

    def next_weights(self, weights: LogLinearWeights, sums: WeightSums, label_range: LabelRange) -> LogLinearWeights:
        """Move w by a Newton step whose length cannot lower the bound, or each weight separately if labels are many."""
        weight, variance = weights.label_topic, weights.weight_variance
        gradient = gradient_of(weight, variance, sums)
        if sums.curvature is not None:
            reach, max_count = label_range.label_reach, label_range.label_most
            weight = weight + _newton(gradient, sums.curvature, variance, reach, max_count)
        else:
            weight = weight + _separate_steps(weight, variance, sums, label_range)
        if self.learn and weight.size:
            variance = float(np.clip((weight**2).mean(), *VARIANCE_RANGE))
        return LogLinearWeights(variance, weight)

    def weights_figures(self, weights: LogLinearWeights) -> dict[str, float]:
        """Return sigma."""
        return {"weight_variance": weights.weight_variance}


def gradient_of(weight: Vector, variance: float, sums: WeightSums) -> Vector:
    """Return the bound's gradient, sum_m r_mj (g_k - exp(w_k r_m) E[pi_mk]) - w_kj / sigma, shape (labels, topics)."""
    return sums.total[:, np.newaxis] * sums.prior - (sums.above - sums.below) - weight / variance


def _solved(matrices: Vector, right: Vector) -> Vector:
    """Solve systems with positive definite matrices by elimination, side by side.

    LAPACK's sums have an order that depends on the processor.
    """
    left, solution = matrices.copy(), right.copy()
    size = solution.shape[1]
    for row in range(size):
        factors = left[:, row + 1 :, row] / left[:, row, row, np.newaxis]
        left[:, row + 1 :, row:] -= factors[:, :, np.newaxis] * left[:, row, np.newaxis, row:]
        solution[:, row + 1 :] -= factors * solution[:, row, np.newaxis]
    for row in reversed(range(size)):
        known = (left[:, row, row + 1 :] * solution[:, row + 1 :]).sum(axis=1)
        solution[:, row] = (solution[:, row] - known) / left[:, row, row]
    return solution


def _newton(gradient: Vector, curvature: Vector, variance: float, reach: Vector, max_count: float) -> Vector:
    """Return a step of each topic's weights along Newton's direction d.

    Where |d r_m| <= D in all documents, a step s d with x = s D loses at most (exp(x) - 1 - x) / x^2 times the square
    form of the Hessian, against 1/2 near x = 0; so the best s of this bound has 2 (exp(x) - 1 - x) / x = D.
    """
    hessian = np.moveaxis(curvature, 2, 0) + np.eye(len(gradient)) / variance
    direction = _solved(hessian, gradient.T).T
    change = np.abs(direction) * reach[:, np.newaxis]
    farthest = np.minimum(change.sum(axis=0), max_count * np.abs(direction).max(axis=0, initial=0.0))
    x = special.log1p(farthest)
    for _ in range(MAX_NEWTON_STEPS):
        small = x < 1e-4
        safe = np.where(small, 1.0, x)
        value = np.where(small, x + x * x / 3, 2 * (special.expm1(safe) - safe) / safe) - farthest
        slope = np.where(small, 1 + 2 * x / 3, 2 * (special.exp(safe) * (safe - 1) + 1) / safe**2)
        x = np.maximum(x - value / slope, 0.0)
    step: Vector = np.where(farthest > 0.0, x / np.maximum(farthest, 1e-300), 1.0)
    return direction * step


def _separate_steps(weight: Vector, variance: float, sums: WeightSums, label_range: LabelRange) -> Vector:
    """Return the best change y of each weight by itself on the minoriser.

    max_y g c y - F(S+, U+, y) - F(S-, U-, -y) - (w + y)^2 / 2 sigma, where F(S, U, y) = (S - t) h(l, y) + t h(L, y) for
    y > 0, t = (U - l S) / (L - l), l and L the least and the largest n_m, h(0, y) = y, and S h(U / S, y) for y < 0.
    """
    largest, smallest = label_range.label_most, label_range.label_least
    gain = sums.total[:, np.newaxis] * sums.prior
    grows = gain - (sums.above - sums.below) - weight / variance > 0.0
    directions = [
        (1.0, *_majorant(sums.above, sums.above_long, smallest, largest, grows)),
        (-1.0, *_majorant(sums.below, sums.below_long, smallest, largest, ~grows)),
    ]
    low, high = np.where(grows, 0.0, -50.0), np.where(grows, 50.0, 0.0)
    y = np.zeros(weight.shape)
    # The bracket is halved until the exponentials are nearly linear in it; then come steps of Newton's method.
    for _ in range(MAX_NEWTON_STEPS):
        slope, bend = gain - (weight + y) / variance, np.full(weight.shape, 1.0 / variance)
        for sign, short, long, power in directions:
            lower, upper = (
                short * special.exp(smallest * sign * y),
                long * special.exp(np.minimum(power * sign * y, 300.0)),
            )
            slope = slope - sign * (lower + upper)
            bend = bend + smallest * lower + power * upper
        low, high = np.where(slope > 0.0, y, low), np.where(slope < 0.0, y, high)
        after = y + slope / bend
        overshot = (high - low > 1.0 / max(largest, 1.0)) | (after <= low) | (after >= high)
        after = np.where(overshot, 0.5 * (low + high), after)
        close = np.abs(after - y).max(initial=0.0) < NEWTON_TOLERANCE
        y = after
        if close:
            break
    return y


Kind = Literal["labels", "linear"]
AnyScaling = InverseGamma | LogLinear


def scaling_of(rates: LabelRates) -> AnyScaling:
    """Return the scaling function of rates, for use without learning."""
    return LogLinear() if rates.inverse_gamma is None else InverseGamma()
