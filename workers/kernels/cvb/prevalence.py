"""Priors of documents that follow a design (Mimno and McCallum 2008), and the sums from which they are learned.

Document d has a row x_d of a design, topic k coefficients lambda_k. The concentration is free, a_dk = exp(x_d.lambda_k)
and A_d = sum_k a_dk, or held: a_dk = A t_dk with t_d = softmax_k(x_d.lambda_k).

E, V and Z of a count n_dk are sums over its tokens of q, q (1 - q) and log(1 - q). Tokens of a document respond to its
counts (Welling and Teh 2004), which spreads n_dk: with kappa = V / (a + E) and r = 1 / (1 - kappa), V becomes r V and,
as of a negative binomial, Z becomes Z log(r) / (r - 1).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.cvb.active import MIN_INACTIVE_PRIOR, ONE, STEP, ZERO, steps_at
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics, DocumentWorkspace
from collapsium.workers.kernels.jit import (
    LANES,
    Array,
    DocumentPairs,
    Float32Matrix,
    Float64Matrix,
    Float64Vector,
    Int32Matrix,
    Int32Vector,
    OutFloat64Matrix,
    OutFloat64Vector,
    borrower,
    helper,
    kernel,
    token_weight,
)
from collapsium.workers.kernels.lanes import Lanes, load, spread_evenly, store
from collapsium.workers.kernels.special import LARGEST, derivatives, digamma, positive, trigamma

MAX_RESPONSE = 0.95  # Largest kappa: beyond, the linear response diverges
LEAST_CURVATURE = 0.3  # Share of h a below which the curvature of a document is not taken: faster than 1, and as safe
# Bound on |x_d.lambda_k|, against overflow far from the data; where it is exceeded, the ratios of the priors remain
MAX_LOG_PRIOR = 30.0
LEAST_ABSENT = 1e-37  # Smallest P(n_dk = 0), which single precision holds: below, a topic is there for certain
SINGLE = 1e-6  # E+ - 1 below which a positive count is as good as always 1


class CountMoments(NamedTuple):
    """Moments of the numbers of tokens by document and topic; each (documents, topics)."""

    mean: OutFloat64Matrix  # E
    variance: OutFloat64Matrix  # V
    log_absent: OutFloat64Matrix  # Z


class PairSums(NamedTuple):
    """Sums over the pairs of a document by its active topics, filled up to a multiple of eight."""

    units: Array  # Value of a step of a responsibility: 2^-15, and 0 beyond the list; float32
    absent: Array  # P(n_dk = 0); float32
    variance: Array  # V[n_dk]; float32
    eight: Array  # For numbers of eight topics; float32 (8,)


class DocumentPriors(NamedTuple):
    """Documents with their rows of a design, and the priors that follow from these."""

    design: Float32Matrix  # Distinct rows; (design rows, columns)
    priors: Float64Matrix  # a_dk of the distinct rows; (design rows, topics)
    place: Int32Vector  # Row of each document; (documents,)
    lengths: Float64Vector  # Tokens of each document, by their weights; (documents,)


class Levels(NamedTuple):
    """Levels of fields of many in the rows of a design: the mean of their effects is added to x_d.lambda_k."""

    places: Int32Matrix  # Place of each row's level of each field, -1 for none; (design rows, fields)
    effects: Float64Matrix  # u_lk; (levels, topics)


class CoefficientSums(NamedTuple):
    """Derivatives by the coefficients, without the coefficients' prior."""

    gradient: OutFloat64Matrix  # (columns, topics)
    curvature: OutFloat64Matrix  # Of pairs of columns p <= q, in the order of rows; (columns (columns + 1) / 2, topics)
    # Sums over the documents of each level: of s_dk, and of h_d a_dk; (levels, topics)
    level_tables: OutFloat64Matrix
    level_growth: OutFloat64Matrix


@kernel
def design_priors(
    design: Float32Matrix,
    coefficients: Float64Matrix,
    levels: Levels,
    concentration: float,
    priors: OutFloat64Matrix,
    log_total: OutFloat64Vector,
) -> None:
    """Fill a_dk of rows of a design, and log sum_k exp(x_d.lambda_k); twin: `naive.prevalence.design_priors`.

    The mean of the effects of a row's levels is part of x_d.lambda_k.

    `concentration` is A where it is held, and 0 where it is free.

    Shapes: `design` (rows, columns); `coefficients` (columns, topics); `priors` (rows, topics); `log_total` (rows,).
    """
    topics = coefficients.shape[1]
    for row in range(design.shape[0]):
        for k in range(topics):
            priors[row, k] = 0.0
        for p in range(design.shape[1]):
            x = float(design[row, p])
            for k in range(topics):
                priors[row, k] += x * coefficients[p, k]
        fields = levels.places.shape[1]
        for f in range(fields):
            level = levels.places[row, f]
            if level >= 0:
                for k in range(topics):
                    priors[row, k] += levels.effects[level, k] / fields
        excess = 0.0
        for k in range(topics):
            excess = max(excess, priors[row, k] - MAX_LOG_PRIOR)
        total = 0.0
        for k in range(topics):
            priors[row, k] = math.exp(max(priors[row, k] - excess, -MAX_LOG_PRIOR))
            total += priors[row, k]
        log_total[row] = math.log(total)
        if concentration > 0.0:
            for k in range(topics):
                priors[row, k] *= concentration / total


@kernel
def count_moments(
    pairs: DocumentPairs, active: ActiveTopics, state: ActiveState, documents: DocumentPriors, moments: CountMoments
) -> None:
    """Fill E, V and Z of the documents' counts; twin: `naive.prevalence.count_moments`.

    V and Z include the response of the tokens, each of which has the weight of its pair. Inactive topics share the
    background in proportion to a_dk, spread thin: V = E and Z = -E.
    """
    topics = documents.priors.shape[1]
    numbers = np.zeros((3, (topics + LANES - 1) // LANES * LANES), np.float32)
    sums, steps = PairSums(numbers[0], numbers[1], numbers[2], np.zeros(LANES, np.float32)), np.zeros(LANES, np.uint16)
    work = DocumentWorkspace(np.zeros(0, np.int32), sums.units, steps, ONE, True)
    at_end = DocumentWorkspace(work.places, sums.units, steps, ONE, False)
    for document in range(pairs.offsets.size - 1):
        begin = active.offsets[document]
        size, prior = active.offsets[document + 1] - begin, documents.priors[documents.place[document]]
        mean, variance = moments.mean[document], moments.variance[document]
        absent, left, total = moments.log_absent[document], 0.0, 0.0
        for k in range(topics):
            mean[k] = variance[k] = absent[k] = 0.0
        for k in range(topics):
            total += prior[k]
        left = total
        for j in range(size):
            left -= prior[active.topics[begin + j]]
        if size < topics and left > MIN_INACTIVE_PRIOR * total:
            growth = max(state.background[document], 0.0) / left
            for k in range(topics):
                mean[k] = variance[k] = growth * prior[k]
                absent[k] = -mean[k]
        for j in range((size + LANES - 1) // LANES * LANES):
            sums.units[j] = STEP if j < size else ZERO
            sums.absent[j], sums.variance[j] = ONE, ZERO
        if state.starts[document + 1] + LANES <= state.responsibilities.size:
            _sum_pairs(document, size, pairs, state, work, sums)
        else:
            _sum_pairs(document, size, pairs, state, at_end, sums)
        for j in range(size):
            k = active.topics[begin + j]
            mean[k], variance[k] = max(state.counts[begin + j], 0.0), float(sums.variance[j])
            absent[k] = math.log(max(float(sums.absent[j]), LEAST_ABSENT))
        for k in range(topics):
            if mean[k] > 0.0:
                response = min(variance[k] / (prior[k] + mean[k]), MAX_RESPONSE)
                r = 1.0 / (1.0 - response)
                variance[k] *= r
                if response > SINGLE:
                    absent[k] *= math.log(r) / (r - 1.0)


@borrower
def _sum_pairs(
    document: int, size: int, pairs: DocumentPairs, state: ActiveState, work: DocumentWorkspace, sums: PairSums
) -> None:
    """Sum up the pairs of a document by its active topics, eight at a time."""
    at, one = state.starts[document], spread_evenly(ONE)
    for pair in range(pairs.offsets[document], pairs.offsets[document + 1]):
        count, weight = pairs.counts[pair], token_weight(pairs.weights, pair)
        tokens, single = spread_evenly(np.float32(count * weight)), count == 1 and weight == 1.0
        for j in range(0, size, LANES):
            q = steps_at(state.responsibilities, at + j, size - j, work) * load(sums.units, j)
            none = one - q if single else _absence(q, count, weight, sums.eight)
            store(sums.absent, j, load(sums.absent, j) * none)
            store(sums.variance, j, load(sums.variance, j) + tokens * q * (one - q))
        at += size


@borrower
def _absence(q: Lanes, count: int, weight: float, eight: Array) -> Lanes:
    """Return the probabilities that no token of a pair has a topic."""
    if weight == 1.0:
        absent, base = spread_evenly(ONE), spread_evenly(ONE) - q
        while count > 0:
            if count & 1:
                absent = absent * base
            count >>= 1
            base = base * base
        return absent
    store(eight, 0, q)
    for lane in range(LANES):
        eight[lane] = math.exp(weight * count * math.log1p(-min(float(eight[lane]), LARGEST)))
    return load(eight, 0)


@helper
def tables_and_spread(prior: float, mean: float, variance: float, log_absent: float) -> tuple[float, float]:
    """Return s, the expected tables, which is the derivative by log a of F[log G(a + n) / G(a)], and ds / d log a."""
    present = -math.expm1(log_absent)
    present, mean, variance = positive(mean, variance, 1.0 - present, present)
    if present <= 0.0:
        return 0.0, 0.0
    if mean - 1.0 < SINGLE:
        return present, 0.0
    above = derivatives(prior + mean)
    tables = prior * present * (above[0] - digamma(prior) + 0.5 * variance * above[2])
    spread = above[1] - trigamma(prior) + 0.5 * variance * above[3]
    return tables, tables + prior * prior * present * spread


@kernel
def coefficient_sums(
    documents: DocumentPriors,
    places: Int32Matrix,
    moments: CountMoments,
    concentration: float,
    rest: float,
    least: float,
    sums: CoefficientSums,
) -> None:
    """Add the derivatives by the coefficients at given moments; twin: `naive.prevalence.coefficient_sums`.

    With s the expected tables, v their derivatives, and h_d = psi(A_d + n_d) - psi(A_d) where the concentration is
    free, or the sum of s_d over A where it is held (`concentration` is A, else 0). A_d includes `rest`, the prior of
    what belongs to no topic. `places` are as in `Levels`. A `least` of 1 makes w_dk = h_d a_dk:

        gradient   sum_d x_d (s_dk - h_d a_dk)
        curvature  sum_d w_dk x_d x_d'
        w_dk = max( h a - v - a^2 (psi'(A) - psi'(A + n)), least h a )                   free
               max( s. t (1 - t) - v (1 - 2 t) - v. t^2,  least h a )                    held
    """
    topics, columns = documents.priors.shape[1], documents.design.shape[1]
    tables, spread, weight = np.empty(topics), np.empty(topics), np.empty(topics)
    for document in range(documents.place.size):
        n = documents.lengths[document]
        if n <= 0.0:
            continue
        prior, x = documents.priors[documents.place[document]], documents.design[documents.place[document]]
        total, all_tables, all_spread = rest, 0.0, 0.0
        for k in range(topics):
            total += prior[k]
            tables[k], spread[k] = tables_and_spread(
                prior[k], moments.mean[document, k], moments.variance[document, k], moments.log_absent[document, k]
            )
            all_tables, all_spread = all_tables + tables[k], all_spread + spread[k]
        if concentration > 0.0:
            growth, bend = all_tables / total, 0.0
        else:
            growth = digamma(total + n) - digamma(total)
            bend = trigamma(total) - trigamma(total + n)
        for k in range(topics):
            t, expected = prior[k] / total, growth * prior[k]
            if least >= 1.0:
                curvature = expected
            elif concentration > 0.0:
                curvature = all_tables * t * (1.0 - t) - spread[k] * (1.0 - 2.0 * t) - all_spread * t * t
            else:
                curvature = expected - spread[k] - prior[k] * prior[k] * bend
            weight[k] = max(curvature, least * expected)
            for f in range(places.shape[1]):
                level = places[documents.place[document], f]
                if level >= 0:
                    sums.level_tables[level, k] += tables[k]
                    sums.level_growth[level, k] += expected
            tables[k] -= expected
        pair = 0
        for p in range(columns):
            value = float(x[p])
            for k in range(topics):
                sums.gradient[p, k] += value * tables[k]
            for q in range(p, columns):
                product = value * float(x[q])
                if product != 0.0:
                    for k in range(topics):
                        sums.curvature[pair, k] += product * weight[k]
                pair += 1


@kernel
def newton_steps(
    gradient: Float64Matrix, curvature: Float64Matrix, precision: Float64Vector, steps: OutFloat64Matrix
) -> None:
    """Fill (H_k + diag rho)^-1 g_k of each topic, by Cholesky factors; twin: `naive.prevalence.newton_steps`.

    Shapes: `gradient`, `steps` (columns, topics); `curvature` (columns (columns + 1) / 2, topics); `precision`
    (columns,).
    """
    columns = gradient.shape[0]
    lower, solved = np.zeros((columns, columns)), np.empty(columns)
    for k in range(gradient.shape[1]):
        pair = 0
        for p in range(columns):
            for q in range(p, columns):
                lower[q, p] = curvature[pair, k] + (precision[p] if p == q else 0.0)
                pair += 1
        for p in range(columns):
            for i in range(p):
                lower[p, p] -= lower[p, i] * lower[p, i]
            lower[p, p] = math.sqrt(max(lower[p, p], 1e-300))
            for q in range(p + 1, columns):
                for i in range(p):
                    lower[q, p] -= lower[q, i] * lower[p, i]
                lower[q, p] /= lower[p, p]
        for p in range(columns):
            value = gradient[p, k]
            for i in range(p):
                value -= lower[p, i] * solved[i]
            solved[p] = value / lower[p, p]
        for p in range(columns - 1, -1, -1):
            for i in range(p + 1, columns):
                solved[p] -= lower[i, p] * solved[i]
            solved[p] /= lower[p, p]
            steps[p, k] = solved[p]
