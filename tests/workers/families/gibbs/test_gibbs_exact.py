"""The samplers against exact posteriors of corpora small enough to enumerate, and Geweke's joint-distribution test.

A sampler that loses the share of a topic that dies, or spreads it over the others instead of giving it back, gets
p-values below 1e-15 here. Each test also distinguishes the posterior from one with slightly different parameters.
"""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import chi2

from collapsium.pipeline.models.registry import make_family, make_options
from collapsium.storage.corpus.shard import Shard
from collapsium.workers.arrays.delta import Delta, change
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import Summary
from collapsium.workers.families.gibbs.gibbs_hdp import GibbsHdpGlobalState
from collapsium.workers.families.gibbs.states import GibbsLocal, SampledRows
from tests.conftest import mark_rest_long
from tests.strategies import documents_of

WORDS = 3


class Chain:
    """A family's sampler on one shard, with one sweep and update per step; the words may be replaced between steps."""

    def __init__(self, family, seed, **options):
        self.stream, self.iteration = Stream(seed), 0
        self.family = make_family(family, make_options(family, options))

    def start(self, shard):
        self.global_state = self.family.initialise(Summary(shard.documents, WORDS, shard.tokens), self.stream)
        rows = self.family.initial_rows(shard.words.size, self.global_state)
        local, delta = self.family.start(shard, rows, self.global_state, self.stream)
        self._update(delta)
        self.z = local.token_topic

    def step(self, shard):
        self.iteration += 1
        at = replace(self.stream, purpose="sweep", iteration=self.iteration, place=0)
        word_topic = np.zeros((shard.words.size, self.global_state.topic.size), dtype=np.int32)
        np.add.at(word_topic, (np.repeat(shard.position, shard.counts), self.z), 1)
        local = GibbsLocal(token_topic=self.z)
        local, delta = self.family.sweep(shard, local, SampledRows(word_topic), self.global_state, at)
        self._update(delta)
        self.z = local.token_topic

    def _update(self, delta):
        sums = Delta({"topic": change(delta["word_topic"].sum(axis=0, dtype=np.int64), "topic")}, delta.ids)
        sums = delta.without_dim("word") + Delta(sums.parts, {"topic": delta.ids["topic"]})
        at = replace(self.stream, purpose="update", iteration=self.iteration)
        self.global_state = self.family.update(self.global_state, sums, at)


def tokens_of(shard):
    owner = np.repeat(np.repeat(np.arange(shard.documents), np.diff(shard.offsets)), shard.counts)
    return owner, np.repeat(shard.words[shard.position], shard.counts)


def tabulated(owner, z, sizes):
    found = np.zeros(sizes, dtype=int)
    np.add.at(found, (owner, z), 1)
    return found


def log_words(words, z, topics, beta):
    """Return log p(w | z), with phi integrated out."""
    row = tabulated(z, words, (topics, WORDS))
    cells = gammaln(beta / WORDS + row) - gammaln(beta / WORDS)
    return cells.sum() + (gammaln(beta) - gammaln(beta + row.sum(axis=1))).sum()


def p_value(samples, log_weights):
    """Return the p-value of a chi-square test of the samples against the posterior, with rare states pooled."""
    states = list(log_weights)
    weight = np.exp(np.array([log_weights[state] for state in states]) - max(log_weights.values()))
    expected = weight / weight.sum() * len(samples)
    tally = Counter(samples)
    assert set(tally) <= set(states)
    seen = np.array([tally[state] for state in states])
    order = np.argsort(expected)
    rare = int(np.searchsorted(np.cumsum(expected[order]), 10.0)) + 1
    while rare < len(states) and expected[order[rare]] < 5.0:
        rare += 1
    groups = [order[:rare], *order[rare:, np.newaxis]]
    both = np.array([(seen[group].sum(), expected[group].sum()) for group in groups])
    assert len(both) > 5
    return chi2.sf(((both[:, 0] - both[:, 1]) ** 2 / both[:, 1]).sum(), len(both) - 1)


def sampled(chain, shard, count, thinning, partition_of):
    chain.start(shard)
    found = []
    for number in range(count * thinning + 20):
        chain.step(shard)
        if number >= 20 and number % thinning == 0:
            found.append(partition_of(chain.z))
    return found


@pytest.mark.parametrize("rows", [[{0: 2, 1: 1}, {1: 2, 2: 1}], [{0: 3}, {}, {0: 1, 2: 1}]])
def test_lda__samples_from_the_posterior(rows):
    shard, alpha, beta = Shard.of(0, documents_of(rows)), 0.4, 1.5
    owner, words = tokens_of(shard)

    def posterior(alpha):
        found = {}
        for z in itertools.product(range(2), repeat=words.size):
            document_counts = tabulated(owner, np.array(z), (len(rows), 2))
            documents = (gammaln(alpha + document_counts) - gammaln(alpha)).sum()
            found[z] = documents + log_words(words, np.array(z), 2, beta)
        return found

    chain = Chain("gibbs-lda", 1, topics=2, alpha=alpha, beta=beta)
    samples = sampled(chain, shard, 2500, 3, lambda z: tuple(z.tolist()))
    assert p_value(samples, posterior(alpha)) > 0.01
    assert p_value(samples, posterior(0.25)) < 1e-6  # the test must reject another alpha


def partition_of(z):
    """Return a partition: topics numbered in the order in which they occur."""
    numbers = {}
    return tuple(numbers.setdefault(int(k), len(numbers)) for k in z)


def partitions(size):
    return {partition_of(z) for z in itertools.product(range(size), repeat=size)}


def stirling(max_count):
    """Return unsigned Stirling numbers of the first kind [n, m]: the number of ways to seat n customers at m tables."""
    found = np.zeros((max_count + 1, max_count + 1))
    found[0, 0] = 1.0
    for n in range(1, max_count + 1):
        found[n, 1:] = found[n - 1, :-1] + (n - 1) * found[n - 1, 1:]
    return found


def log_partition(owner, z, documents, alpha, gamma):
    """Return log p(partition) of a Chinese restaurant franchise, summed over the tables."""
    topics, ways = max(z) + 1, stirling(len(z))
    document_counts = tabulated(owner, np.array(z), (documents, topics))
    log_terms = []
    cells = [range(1 if n else 0, n + 1) for n in document_counts.ravel()]
    for tables in itertools.product(*cells):
        m = np.reshape(tables, document_counts.shape)
        term = np.log([ways[n, t] for n, t in zip(document_counts.ravel(), tables, strict=True)]).sum()
        term += m.sum() * np.log(alpha) + gammaln(m.sum(axis=0)).sum()
        log_terms.append(term + topics * np.log(gamma) + gammaln(gamma) - gammaln(gamma + m.sum()))
    return np.logaddexp.reduce(log_terms) + (gammaln(alpha) - gammaln(alpha + document_counts.sum(axis=1))).sum()


HDP_STARTS = [([{0: 2, 1: 1}, {1: 1, 2: 1}], 1), ([{0: 2}, {}, {0: 1, 2: 1}], 3)]


@pytest.mark.parametrize(("rows", "start"), mark_rest_long(HDP_STARTS, retained=(1,)))
def test_hdp__samples_from_the_posterior(rows, start):
    shard, beta = Shard.of(0, documents_of(rows)), 1.5
    owner, words = tokens_of(shard)

    def posterior(alpha, gamma):
        found = {}
        for z in partitions(words.size):
            chance = log_partition(owner, z, len(rows), alpha, gamma)
            found[z] = chance + log_words(words, np.array(z), max(z) + 1, beta)
        return found

    options = {"alpha_shape": 3.0, "alpha_rate": 2.0, "gamma_shape": 4.0, "gamma_rate": 5.0, "learn": ()}
    chain = Chain("gibbs-hdp", 2, init_topics=start, beta=beta, **options)
    samples = sampled(chain, shard, 2000, 3, partition_of)
    assert p_value(samples, posterior(1.5, 0.8)) > 0.01
    assert p_value(samples, posterior(1.5, 0.5)) < 1e-3  # the test must reject other parameters


LENGTHS = (4, 0, 1, 5)


def drawn_words(owner, z, beta, noise):
    """Draw words of tokens given their topics; return the shard, and the topics in the order of its tokens."""
    phi = {k: noise.dirichlet(np.full(WORDS, beta / WORDS)) for k in sorted({int(k) for k in z})}
    words = np.array([noise.choice(WORDS, p=phi[int(k)]) for k in z])
    order = np.lexsort((words, owner))
    rows = [Counter(words[owner == d].tolist()) for d in range(len(LENGTHS))]
    return Shard.of(0, documents_of(rows)), np.asarray(z)[order].astype(np.uint16)


def hyperparameters(global_state):
    """Return the hyperparameters that a chain samples: alpha and gamma of an HDP."""
    return (global_state.alpha, global_state.gamma) if isinstance(global_state, GibbsHdpGlobalState) else ()


def statistics(shard, z, drawn):
    owner, words = tokens_of(shard)
    top = int(z.max()) + 1
    row, document_counts = tabulated(words, z, (WORDS, top)), tabulated(owner, z, (len(LENGTHS), top))
    found = [(row**2).sum(), (document_counts**2).sum(), (row.sum(axis=0) ** 2).sum(), (row.sum(axis=1) ** 2).sum()]
    if drawn:
        alpha, gamma = drawn
        found += [np.unique(z).size, alpha, gamma, alpha**2, gamma**2, alpha * found[1], gamma * np.unique(z).size]
    return found


def lda_prior(options, noise):
    theta = noise.dirichlet(np.full(options["topics"], options["alpha"]), len(LENGTHS))
    z = [noise.choice(options["topics"], p=theta[d]) for d, n in enumerate(LENGTHS) for _ in range(n)]
    return np.array(z), ()


def hdp_prior(options, noise):
    alpha = noise.gamma(options["alpha_shape"]) / options["alpha_rate"]
    gamma = noise.gamma(options["gamma_shape"]) / options["gamma_rate"]
    dishes, z = [], []
    for length in LENGTHS:
        tables = []  # (dish, customers)
        for _ in range(length):
            chances = np.array([guests for _, guests in tables] + [alpha])
            at = noise.choice(chances.size, p=chances / chances.sum())
            if at == len(tables):
                weights = np.array([*dishes, gamma])
                dish = noise.choice(weights.size, p=weights / weights.sum())
                dishes += [0] if dish == len(dishes) else []
                dishes[dish] += 1
                tables.append([dish, 0])
            tables[at][1] += 1
            z.append(tables[at][0])
    return np.array(z), (alpha, gamma)


GEWEKE = {
    "gibbs-lda": (lda_prior, {"topics": 3, "alpha": 0.5, "beta": 2.0}),
    "gibbs-hdp": (
        hdp_prior,
        {"alpha_shape": 3.0, "alpha_rate": 2.0, "gamma_shape": 4.0, "gamma_rate": 3.0, "beta": 2.0, "init_topics": 1},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("family", GEWEKE)
def test_geweke__alternating_conditional_draws_leave_the_joint_distribution_unchanged(family):
    """Draws of all variables from the prior have the distribution of a chain that alternates topics given words and
    words given topics."""
    prior, options = GEWEKE[family]
    noise = np.random.default_rng(5)
    owner = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    straight, turns = [], []
    for _ in range(3000):
        z, drawn = prior(options, noise)
        shard, z = drawn_words(owner, z, options["beta"], noise)
        straight.append(statistics(shard, z, drawn))
    chain = Chain(family, 3, **options)
    chain.start(shard)
    for _ in range(4000):
        chain.step(shard)
        shard, chain.z = drawn_words(tokens_of(shard)[0], chain.z, options["beta"], noise)
        turns.append(statistics(shard, chain.z, hyperparameters(chain.global_state)))
    straight, turns = np.array(straight), np.array(turns)[200:]
    # batches are nearly independent
    batches = turns[: len(turns) // 50 * 50].reshape(50, -1, turns.shape[1]).mean(axis=1)
    error = np.sqrt(straight.var(axis=0) / len(straight) + batches.var(axis=0, ddof=1) / 50)
    score = (straight.mean(axis=0) - turns.mean(axis=0)) / error
    assert (np.abs(score) < 3.5).all(), score
    # an error of a fifth of a statistic would be significant
    assert (error < 0.05 * np.abs(straight.mean(axis=0))).all()
