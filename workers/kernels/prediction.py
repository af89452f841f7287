"""Prediction: probabilities of pairs under fitted proportions, and proportions of documents under fixed topics.

The marginal likelihood of documents under fixed topics (Wallach, Murray, Salakhutdinov and Mimno 2009) is p(w) = sum
over z of p(w | z, phi) p(z | a), with theta ~ Dir(a) integrated out. Both estimates of p(w) are unbiased or nearly so,
and both use all tokens, unlike document completion.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from collapsium.workers.kernels.jit import (
    LANES,
    Array,
    DocumentPairs,
    Float64Matrix,
    Float64Vector,
    Int32Vector,
    Int64Vector,
    Number,
    OutFloat64Matrix,
    OutFloat64Vector,
    OutInt64Vector,
    UInt64Vector,
    borrower,
    helper,
    kernel,
    token_weight,
)
from collapsium.workers.kernels.lanes import Lanes, larger, load, prefetch, spread_evenly, store, sum_of
from collapsium.workers.kernels.random import uniform

MOVED_TOKENS = 1e-4  # Tokens by which a count may still move in the last sweep of folding in

# Over-relaxation of folding in (successive over-relaxation; Young 1954), of which any value below 2 converges.
# Documents that have not converged after the early sweeps converge slowly, and take fewer sweeps with more. With 200
# topics and 50 to 90 words a document, 19 to 30 sweeps do what 40 to 160 do without, on four models; 1.6 throughout
# takes 24 to 31.
RELAXATION, LATE_RELAXATION, EARLY_SWEEPS = 1.5, 1.7, 16

# Probability of a word that a topic cannot make: one that none can make follows the document's proportions
MIN_PROBABILITY = 1e-30

# Largest a_k below which the first sweep, in which only the ratios of the a_k matter, divides by it: products with phi
# could not be represented
TINY_PRIOR = 1e-6
LEAST_WEIGHT = np.float32(1e-37)  # Smaller sums of weights have no inverse in single precision

# Pairs ahead of the first sweep whose rows are prefetched, and numbers of 4 bytes in a cache line
AHEAD, CACHE_LINE = 4, 16

ZERO, ONE = np.float32(0.0), np.float32(1.0)


class FoldInWorkspace(NamedTuple):
    """Arrays of single precision for the documents that are folded in, one after another."""

    width: int  # Length of rows: the number of topics, rounded up to pairs of vectors
    word_probability: Array  # phi, 0 beyond the topics; (rows * width,)
    smallest: Number  # The smallest a_k: rounding makes no topic's proportion smaller
    counts: Array  # a_k + E[n_dk] as the sweep began; (width,)
    change: Array  # Their changes since; (width,)
    weight: Array  # Weights of the topics for one pair; (width,)
    # Responsibilities of the pairs of a document, times the weight of a token of the pair; (pairs * width,)
    share: Array


@kernel
def pair_probability(
    offsets: Int64Vector,
    position: Int32Vector,
    proportions: Float64Matrix,
    word_probability: Float64Matrix,
    rest: Float64Vector,
    rest_word: Float64Vector,
    probability: OutFloat64Vector,
) -> None:
    """Fill sum_k theta_dk phi_kw + theta_rest tau_w of each pair; twin: `naive.predict.pair_probability`.

    Shapes: `offsets` (documents + 1,); `position`, `probability` (pairs,); `proportions` (documents, topics);
    `word_probability` (rows, topics); `rest` (documents,); `rest_word` (rows,).
    """
    for document in range(offsets.size - 1):
        theta = proportions[document]
        for pair in range(offsets[document], offsets[document + 1]):
            row = position[pair]
            phi = word_probability[row]
            total = 0.0
            for k in range(theta.size):
                total += theta[k] * phi[k]
            probability[pair] = total + rest[document] * rest_word[row]


@kernel
def fold_in(
    pairs: DocumentPairs,
    word_probability: Float64Matrix,
    prior: Float64Matrix,
    prior_place: Int32Vector,
    sweeps: int,
    document_topic: OutFloat64Matrix,
) -> None:
    """Fit the counts of unseen documents with the topics held fixed; twin: `naive.predict.fold_in`.

    Zeroth-order sweeps, q_dwk ~ (a_k + E'[n_dk]) phi_kw, from q ~ a_k phi_kw, until no count of the document moves
    by more than `MOVED_TOKENS` or the sweeps are used up. Sweeps are over-relaxed, q + `RELAXATION` times its change,
    but for the first, the last, and the one that finds that counts no longer move.

    Responsibilities have single precision, and are updated eight at a time (`lanes`). Counts have double precision, to
    which a sweep's changes are added, so that they do not drift in long documents.

    `prior` has a row for all documents or, with `prior_place`, rows of which each document has one.

    Shapes: `word_probability` (rows, topics); `prior` (n, topics); `prior_place` (documents,) or (0,); `document_topic`
    (documents, topics).
    """
    topics, longest = prior.shape[1], 0
    width = -(-topics // (2 * LANES)) * 2 * LANES
    for document in range(pairs.offsets.size - 1):
        longest = max(longest, pairs.offsets[document + 1] - pairs.offsets[document])
    phi = np.zeros((len(word_probability), width), dtype=np.float32)
    for row in range(len(word_probability)):
        for k in range(topics):
            phi[row, k] = np.float32(max(word_probability[row, k], MIN_PROBABILITY))
    counts, change, weight = np.zeros(width, dtype=np.float32), np.zeros(width, np.float32), np.zeros(width, np.float32)
    share, smallest = np.zeros(longest * width, dtype=np.float32), np.float32(prior.min() if prior.size else 0.0)
    work = FoldInWorkspace(width, phi.reshape(-1), smallest, counts, change, weight, share)
    for document in range(pairs.offsets.size - 1):
        document_counts, tokens, moving = document_topic[document], 0.0, False
        document_prior = prior[prior_place[document] if prior_place.size else 0]
        document_counts[:] = 0.0
        largest = 0.0
        for k in range(topics):
            largest = max(largest, document_prior[k])
        for k in range(topics):
            counts[k] = np.float32(document_prior[k] / largest if 0.0 < largest < TINY_PRIOR else document_prior[k])
        for pair in range(pairs.offsets[document], pairs.offsets[document + 1]):
            tokens += pairs.counts[pair] * token_weight(pairs.weights, pair)
        for sweep in range(sweeps):
            relaxed = moving and sweep < sweeps - 1
            relaxation = RELAXATION if sweep < EARLY_SWEEPS else LATE_RELAXATION
            _sweep_document(document, sweep, np.float32(relaxation if relaxed else 1.0), pairs, work)
            moved, total = 0.0, 0.0
            for k in range(topics):
                document_counts[k] += change[k]
                moved, total = max(moved, abs(np.float64(change[k]))), total + document_counts[k]
                counts[k], change[k] = np.float32(document_prior[k] + document_counts[k]), ZERO
            moving = moved >= MOVED_TOKENS
            if not (moving or relaxed):
                break
        # Removes the rounding errors of single precision. An over-relaxed sweep is never the last.
        if tokens > 0.0 and sweeps > 0:
            document_counts *= tokens / total
        for k in range(topics):
            # Differences of rounded numbers may be negative; a small prior would not make up for it.
            if document_counts[k] < -0.5 * document_prior[k]:
                document_counts[k] = 0.0


@borrower
def _sweep_document(document: int, sweep: int, relaxation: Number, pairs: DocumentPairs, work: FoldInWorkspace) -> None:
    """Update the pairs of a document; the changes of its counts are added up."""
    zero, smallest = spread_evenly(ZERO), spread_evenly(work.smallest)
    begin = pairs.offsets[document]
    for pair in range(begin, pairs.offsets[document + 1]):
        first, at = np.int64(pairs.position[pair]) * work.width, (pair - begin) * work.width
        total, more = zero, zero
        if sweep == 0:
            # Later sweeps find the rows in the processor's caches.
            ahead = np.int64(pairs.position[min(pair + AHEAD, pairs.position.size - 1)]) * work.width
            for k in range(0, work.width, CACHE_LINE):
                prefetch(work.word_probability, ahead + k)
            # Nothing is counted yet: proportions start at the prior, not at the first pairs.
            for k in range(0, work.width, LANES):
                weight = load(work.counts, k) * load(work.word_probability, first + k)
                store(work.weight, k, weight)
                store(work.share, at + k, zero)
                total = total + weight
        else:
            # Two sums, as each addition waits for the one before.
            for k in range(0, work.width, 2 * LANES):
                total = total + _weigh(k, at + k, first + k, smallest, work)
                more = more + _weigh(k + LANES, at + k + LANES, first + k + LANES, smallest, work)
        weights = sum_of(total + more)
        if weights < LEAST_WEIGHT:
            continue  # A single token, all of whose topics have vanishing priors, keeps its responsibilities
        factor = relaxation / weights
        if pairs.weights.size:
            factor *= pairs.weights[pair]
        count, scale = spread_evenly(np.float32(pairs.counts[pair])), spread_evenly(factor)
        retained = spread_evenly(ONE - relaxation)
        for k in range(0, work.width, LANES):
            old = load(work.share, at + k)
            new = larger(load(work.weight, k) * scale + old * retained, zero)
            store(work.share, at + k, new)
            store(work.change, k, load(work.change, k) + count * (new - old))


@borrower
def _weigh(k: int, share: int, word: int, smallest: Lanes, work: FoldInWorkspace) -> Lanes:
    """Fill the weights of eight topics for a pair, from its responsibilities and its word's probabilities."""
    remaining = load(work.counts, k) + load(work.change, k) - load(work.share, share)
    weight = larger(remaining, smallest) * load(work.word_probability, word)
    store(work.weight, k, weight)
    return weight


class TokenSequences(NamedTuple):
    """Documents as sequences of tokens."""

    offsets: Int64Vector  # Index of each document's first token; the last is the number of tokens; (documents + 1,)
    position: Int32Vector  # Row of each token's word in `DirichletTopics.word_topic`; (tokens,)
    first: Int64Vector  # Number of the first random number of each document; the next ones follow; (documents,)


class DirichletTopics(NamedTuple):
    """Fixed topics, and the Dirichlet prior of their proportions in a document."""

    word_topic: Float64Matrix  # Probability phi_kw of each word in each topic; (words, topics)
    prior: Float64Vector  # Dirichlet parameter a_k; (topics,)


@helper
def draw(weight: Float64Vector, total: float, number: float) -> int:
    """Draw an index in proportion to weights."""
    remaining, k = number * total, 0
    while k < weight.size - 1 and remaining >= weight[k]:
        remaining -= weight[k]
        k += 1
    return k


@helper
def token_weights(
    probability: Float64Vector, counts: Int64Vector, prior: Float64Vector, weight: OutFloat64Vector
) -> float:
    """Fill `weight` with p_k (a_k + n_k), and return the sum."""
    total = 0.0
    for k in range(prior.size):
        weight[k] = probability[k] * (prior[k] + counts[k])
    for k in range(prior.size):
        total += weight[k]
    return total


@kernel
def left_to_right(
    documents: TokenSequences,
    topics: DirichletTopics,
    particles: int,
    key: UInt64Vector,
    log_likelihood: OutFloat64Vector,
) -> None:
    """Estimate log p(w) token by token, each by particles (Algorithm 3); twin: `naive.likelihood.left_to_right`.

    log p(w) = sum_n log 1/R sum_r p(w_n | z_1..z_{n-1}), where each particle r draws z_1..z_{n-1} anew before token n.
    The time grows with the square of a document's tokens.

    Shapes: `key` (2,); `log_likelihood` (documents,).
    """
    offsets, position, word_topic, prior = documents.offsets, documents.position, topics.word_topic, topics.prior
    weight, all_prior = np.empty(prior.size), prior.sum()
    for document in range(offsets.size - 1):
        begin, tokens = offsets[document], offsets[document + 1] - offsets[document]
        number, predictive = documents.first[document], np.zeros(tokens)
        for _particle in range(particles):
            topic, counts = np.zeros(tokens, dtype=np.int64), np.zeros(prior.size, dtype=np.int64)
            for n in range(tokens):
                for before in range(n):
                    counts[topic[before]] -= 1
                    row = word_topic[position[begin + before]]
                    total = token_weights(row, counts, prior, weight)
                    topic[before] = draw(weight, total, uniform(key, number))
                    number += 1
                    counts[topic[before]] += 1
                total = token_weights(word_topic[position[begin + n]], counts, prior, weight)
                predictive[n] += total / (n + all_prior)
                topic[n] = draw(weight, total, uniform(key, number))
                number += 1
                counts[topic[n]] += 1
        total = 0.0
        for n in range(tokens):
            total += math.log(predictive[n] / particles)
        log_likelihood[document] = total


@kernel
def annealed_importance(
    documents: TokenSequences,
    topics: DirichletTopics,
    steps: int,
    runs: int,
    key: UInt64Vector,
    log_likelihood: OutFloat64Vector,
) -> None:
    """Estimate log p(w) by annealed importance sampling (Neal 2001); twin: `naive.likelihood.annealed_importance`.

    z is drawn from its prior, then by a Gibbs sweep of p(z | a) p(w | z)^s for each s = 1/S, 2/S, .., (S - 1)/S. The
    log of a run's weight is the mean of log p(w | z) over these S states.

    Shapes: `key` (2,); `log_likelihood` (documents,).
    """
    offsets, word_topic, prior = documents.offsets, topics.word_topic, topics.prior
    weight, log_weight = np.empty(prior.size), np.empty(runs)
    for document in range(offsets.size - 1):
        position, number = documents.position[offsets[document] : offsets[document + 1]], documents.first[document]
        tokens, counts = position.size, np.zeros(prior.size, dtype=np.int64)
        topic, power = np.zeros(tokens, dtype=np.int64), np.empty((tokens, prior.size))
        step_power = np.empty((tokens, prior.size))
        for n in range(tokens):
            for k in range(prior.size):
                step_power[n, k] = word_topic[position[n], k] ** (1.0 / steps)
        for run in range(runs):
            counts[:] = 0
            power[:] = 1.0
            log_weight[run] = 0.0
            for n in range(tokens):
                total = token_weights(power[n], counts, prior, weight)
                topic[n] = draw(weight, total, uniform(key, number))
                number += 1
                counts[topic[n]] += 1
            for step in range(steps):
                if step:
                    number = _anneal(power, step_power, prior, key, number, topic, counts, weight)
                for n in range(tokens):
                    log_weight[run] += math.log(word_topic[position[n], topic[n]]) / steps
        largest = log_weight.max()
        log_likelihood[document] = largest + math.log(np.exp(log_weight - largest).mean())


@helper
def _anneal(
    power: OutFloat64Matrix,
    step_power: Float64Matrix,
    prior: Float64Vector,
    key: UInt64Vector,
    number: int,
    topic: OutInt64Vector,
    counts: OutInt64Vector,
    weight: OutFloat64Vector,
) -> int:
    """Raise the power of p(w | z) by a step, make a Gibbs sweep, and return the number of the next random number."""
    for n in range(topic.size):
        counts[topic[n]] -= 1
        for k in range(prior.size):
            power[n, k] *= step_power[n, k]
        total = token_weights(power[n], counts, prior, weight)
        topic[n] = draw(weight, total, uniform(key, number))
        number += 1
        counts[topic[n]] += 1
    return number


class SampledProportions(NamedTuple):
    """Means over the sweeps that are counted; each (documents, topics)."""

    mean: OutFloat64Matrix  # Posterior mean of theta_dk
    variance: OutFloat64Matrix  # Posterior variance of theta_dk
    tables: OutFloat64Matrix  # Expected tables, sum over i < n_dk of a_dk / (a_dk + i)


@kernel
def sample_proportions(
    documents: TokenSequences,
    word_topic: Float64Matrix,
    prior: Float64Matrix,
    skipped: int,
    counted: int,
    key: UInt64Vector,
    sampled: SampledProportions,
) -> None:
    """Sample the topics of each document's tokens; twin: `naive.posteriors.sample_proportions`.

    With u = (a_k + n_k) / (A + n), the mean of u over sweeps is the posterior mean, and the mean of
    u (1 - u) / (A + n + 1) plus the variance of u the posterior variance. A document without tokens has its prior's.

    Shapes: `word_topic` (words, topics); `prior` (documents, topics); `key` (2,); `sampled` (documents, topics).
    """
    offsets, topics = documents.offsets, prior.shape[1]
    weight, squares = np.empty(topics), np.empty(topics)
    for document in range(offsets.size - 1):
        begin, number = offsets[document], documents.first[document]
        tokens = offsets[document + 1] - begin
        topic, counts = np.zeros(tokens, dtype=np.int64), np.zeros(topics, dtype=np.int64)
        total_prior = prior[document].sum()
        for n in range(tokens):
            total = token_weights(word_topic[documents.position[begin + n]], counts, prior[document], weight)
            topic[n] = draw(weight, total, uniform(key, number))
            number += 1
            counts[topic[n]] += 1
        for k in range(topics):
            sampled.mean[document, k] = 0.0
            sampled.variance[document, k] = 0.0
            sampled.tables[document, k] = 0.0
            squares[k] = 0.0
        for sweep in range(skipped + counted):
            for n in range(tokens):
                counts[topic[n]] -= 1
                total = token_weights(word_topic[documents.position[begin + n]], counts, prior[document], weight)
                topic[n] = draw(weight, total, uniform(key, number))
                number += 1
                counts[topic[n]] += 1
            if sweep < skipped:
                continue
            for k in range(topics):
                a = prior[document, k]
                u = (a + counts[k]) / (total_prior + tokens)
                sampled.mean[document, k] += u / counted
                squares[k] += u * u / counted
                sampled.variance[document, k] += u * (1.0 - u) / (total_prior + tokens + 1.0) / counted
                for i in range(counts[k]):
                    sampled.tables[document, k] += a / (a + i) / counted
        for k in range(topics):
            mean = sampled.mean[document, k]
            sampled.variance[document, k] += max(squares[k] - mean * mean, 0.0)


@kernel
def weighted_squares(rows: Float64Matrix, weights: Float64Matrix, sums: OutFloat64Matrix) -> None:
    """Add sum_d w_dk x_dp x_dq for p <= q, pairs in the order of rows; twin: `naive.posteriors.weighted_squares`.

    Shapes: `rows` (documents, columns); `weights` (documents, n); `sums` (columns (columns + 1) / 2, n).
    """
    columns, width = rows.shape[1], weights.shape[1]
    for document in range(rows.shape[0]):
        pair = 0
        for p in range(columns):
            for q in range(p, columns):
                product = rows[document, p] * rows[document, q]
                if product != 0.0:
                    for k in range(width):
                        sums[pair, k] += product * weights[document, k]
                pair += 1


@kernel
def weighted_sums(rows: Float64Matrix, values: Float64Matrix, sums: OutFloat64Matrix) -> None:
    """Add sum_d x_dp y_dk; twin: NumPy's product.

    Shapes: `rows` (documents, columns); `values` (documents, n); `sums` (columns, n).
    """
    for document in range(rows.shape[0]):
        for p in range(rows.shape[1]):
            x = rows[document, p]
            if x != 0.0:
                for k in range(values.shape[1]):
                    sums[p, k] += x * values[document, k]
