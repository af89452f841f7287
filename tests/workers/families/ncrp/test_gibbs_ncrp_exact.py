"""The sampler of trees against exact posteriors of corpora small enough to enumerate, and Geweke's test."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln

from collapsium.pipeline.models.registry import make_family, make_options
from collapsium.storage.corpus.shard import Shard
from collapsium.workers import tasks
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import Summary
from collapsium.workers.families.ncrp.state import GibbsNcrpRows, levels
from tests.strategies import documents_of
from tests.workers.families.gibbs.test_gibbs_exact import p_value, tabulated, tokens_of

FAMILY, WORDS = "gibbs-ncrp", 3


class Chain:
    """The sampler on one shard, with one sweep and update per step; the words may be replaced between steps."""

    def __init__(self, seed, shard, **options):
        self.stream, self.iteration = Stream(seed), 0
        self.model = make_family(FAMILY, make_options(FAMILY, options))
        summary = Summary(shard.documents, WORDS, shard.tokens)
        self.global_state = self.model.initialise(summary, self.stream)
        self.block = tasks.empty_block(self.model, 0, WORDS, self.global_state)
        self._take(
            tasks.start(self.model, shard, None, [self.block], self.global_state, self.stream.at(purpose="start"))
        )

    def step(self, shard):
        self.iteration += 1
        at = self.stream.at(purpose="sweep", iteration=self.iteration)
        self._take(tasks.sweep(self.model, shard, self.swept, None, [self.block], self.global_state, at))

    def exchange(self, shard):
        """Replace the words of the tokens, and keep their nodes."""
        local, row = self.swept.local, np.zeros_like(self.block.rows.word_topic)
        owner, words = tokens_of(shard)
        np.add.at(row, (words, local.document_path[owner, local.token_level]), 1)
        self.block = tasks.Block(0, WORDS, GibbsNcrpRows(row), Delta())

    def _take(self, swept):
        self.swept = tasks.without_delta(swept)
        self.block = tasks.fold(self.model, self.block, [swept.delta], self.global_state)
        at = self.stream.at(purpose="update", iteration=self.iteration)
        self.global_state = self.model.update(self.global_state, self.block.sums, at)

    @property
    def state(self):
        """Return the tree, as a number for each document and level, and the levels of the tokens."""
        return renumbered(self.swept.local.document_path), tuple(self.swept.local.token_level.tolist())


def renumbered(paths):
    """Return the nodes numbered in the order in which they occur."""
    numbers = {}
    return tuple(tuple(numbers.setdefault(int(node), len(numbers)) for node in path) for path in paths)


def trees(documents, depth, chances, gamma):
    """Return {paths: log p} of the nested Chinese restaurant process, by adding one document after another."""
    if not documents:
        return {(): 0.0}
    found = {}
    for paths, log in trees(documents - 1, depth, chances, gamma).items():
        prefixes = {path[:at] for path in paths for at in range(1, depth + 1)} or {(0,)}
        waiting = [((0,), log)]
        while waiting:
            path, log_probability = waiting.pop()
            if len(path) == depth:
                key = renumbered([*paths, path])
                found[key] = np.logaddexp(found.get(key, -np.inf), log_probability)
                continue
            passing = sum(route[: len(path)] == path for route in paths)
            below = {prefix for prefix in prefixes if len(prefix) == len(path) + 1 and prefix[:-1] == path}
            for child in below:
                through = sum(walk[: len(child)] == child for walk in paths)
                waiting.append((child, log_probability + np.log(through / (gamma + passing))))
            waiting.append(
                (
                    (*path, max([node for route in [*paths, path] for node in route]) + 1),
                    log_probability + np.log(gamma / (gamma + passing)),
                )
            )
    return found


def posterior(shard, depth, alpha, eta, gamma):
    """Return {state: log p}, with topics and proportions integrated out."""
    owner, words = tokens_of(shard)
    found = {}
    for paths, log in trees(shard.documents, depth, None, gamma).items():
        path = np.array(paths)
        for z in itertools.product(range(depth), repeat=words.size):
            nodes = path[owner, list(z)]
            row, level_counts = (
                tabulated(nodes, words, (path.max() + 1, WORDS)),
                tabulated(owner, np.array(z), (len(path), depth)),
            )
            level = np.zeros(path.max() + 1, dtype=int)
            level[path.ravel()] = np.tile(np.arange(depth), len(path))
            level_eta = np.asarray(eta)[level]
            value = log + (gammaln(np.asarray(alpha) + level_counts) - gammaln(alpha)).sum()
            value += (gammaln(level_eta[:, np.newaxis] + row) - gammaln(level_eta[:, np.newaxis])).sum()
            value += (gammaln(WORDS * level_eta) - gammaln(WORDS * level_eta + row.sum(axis=1))).sum()
            found[(paths, z)] = value
    return found


CASES = [
    ([{0: 1, 1: 1}, {0: 1}, {1: 1}], 3),
    ([{0: 2}, {}, {0: 1, 2: 1}], 2),
    ([{0: 1, 1: 1}, {0: 2}], 4),
]


@pytest.mark.long
@pytest.mark.parametrize(("rows", "depth"), CASES, ids=["3", "2", "4"])
def test_ncrp__samples_from_the_posterior(rows, depth):
    shard = Shard.of(0, documents_of(rows))
    alpha, eta, gamma = (1.0, 0.5, 2.0, 0.7)[:depth], (0.3, 0.6, 0.2, 0.4)[:depth], 0.8
    chain = Chain(1, shard, depth=depth, alpha=alpha, eta=eta, gamma=gamma, learn=())
    samples = []
    for number in range(5000):
        chain.step(shard)
        if number >= 20 and number % 3 == 0:
            samples.append(chain.state)
    assert p_value(samples, posterior(shard, depth, alpha, eta, gamma)) > 0.01
    # the test must reject other parameters
    assert p_value(samples, posterior(shard, depth, alpha, eta, 3.0 * gamma)) < 1e-3
    assert p_value(samples, posterior(shard, depth, alpha, np.array(eta) * 3.0, gamma)) < 1e-3


LENGTHS = (4, 3, 0, 5)


def statistics(shard, paths, z, found):
    owner, words = tokens_of(shard)
    paths = np.array(renumbered(paths))
    depth, top = paths.shape[1], int(paths.max()) + 1
    row = tabulated(paths[owner, z], words, (top, WORDS))
    level_counts = tabulated(owner, z, (len(LENGTHS), depth))
    passing = np.bincount(paths.ravel(), minlength=top)
    values = [(row**2).sum(), (level_counts**2).sum(), (row.sum(axis=1) ** 2).sum(), (passing**2).sum(), top]
    values += [np.unique(paths[:, at]).size for at in range(1, depth)]
    values += [*level_counts.sum(axis=0), found["gamma"], found["gamma"] * top]
    values += [np.sqrt(values) for name in ("eta", "alpha") for values in found[name]]
    return values


def drawn_words(owner, paths, z, eta, noise):
    """Draw words of tokens given their nodes; return the shard, and the tokens' levels in its order."""
    nodes, words = paths[owner, z], np.zeros(owner.size, dtype=int)
    for node in np.unique(nodes):
        level = int(np.nonzero(paths == node)[1][0])
        log = np.log(noise.gamma(eta[level] + 1.0, size=WORDS)) - noise.exponential(size=WORDS) / eta[level]
        phi = np.exp(log - log.max())
        words[nodes == node] = noise.choice(WORDS, (nodes == node).sum(), p=phi / phi.sum())
    order = np.lexsort((words, owner))
    rows = [dict(zip(*np.unique(words[owner == d], return_counts=True), strict=True)) for d in range(len(LENGTHS))]
    return Shard.of(0, documents_of(rows)), z[order]


def prior(means, depth, noise):
    """Draw paths, levels and hyperparameters from the prior."""
    found = {name: noise.exponential(means[name], None if name == "gamma" else depth) for name in means}
    paths = []
    for _ in LENGTHS:
        path = [0]
        while len(path) < depth:
            passing = [route for route in paths if route[: len(path)] == path]
            place = noise.random() * (found["gamma"] + len(passing))
            new = max([node for route in [*paths, path] for node in route]) + 1
            path.append(passing[int(place)][len(path)] if place < len(passing) else new)
        paths.append(path)
    theta = [noise.gamma(found["alpha"] + 1.0) * noise.random(depth) ** (1.0 / found["alpha"]) for _ in LENGTHS]
    z = [
        noise.choice(depth, p=weights / weights.sum())
        for weights, n in zip(theta, LENGTHS, strict=True)
        for _ in range(n)
    ]
    return np.array(paths), np.array(z), found


@pytest.mark.long
def test_geweke__alternating_conditional_draws_leave_the_joint_distribution_unchanged():
    """Draws of all variables from the prior have the distribution of a chain that alternates trees given words and
    words given trees."""
    noise, depth, means = np.random.default_rng(5), 3, {"eta": 0.8, "alpha": 2.0, "gamma": 1.0}
    owner = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    straight, turns = [], []
    for _ in range(1500):
        paths, z, found = prior(means, depth, noise)
        shard, z = drawn_words(owner, paths, z, found["eta"], noise)
        straight.append(statistics(shard, paths, z, found))
    chain = Chain(3, shard, depth=depth, learn=("eta", "alpha", "gamma"), **means)
    for _ in range(3000):
        chain.step(shard)
        local = chain.swept.local
        shard, z = drawn_words(owner, local.document_path, local.token_level, chain.global_state.eta, noise)
        chain.swept = tasks.Swept(replace(local, token_level=z.astype(np.uint8)), Delta())
        chain.exchange(shard)
        turns.append(statistics(shard, local.document_path, z, chain.global_state.to_arrays()))
    straight, turns = np.array(straight), np.array(turns)[200:]
    # batches are nearly independent
    batches = turns[: len(turns) // 50 * 50].reshape(50, -1, turns.shape[1]).mean(axis=1)
    error = np.sqrt(straight.var(axis=0) / len(straight) + batches.var(axis=0, ddof=1) / 50)
    score = (straight.mean(axis=0) - turns.mean(axis=0)) / error
    assert (np.abs(score) < 3.5).all(), score
    assert (error < 0.1 * np.abs(straight.mean(axis=0))).all(), error / straight.mean(axis=0)
    assert levels(chain.global_state.node_parent).max() == depth - 1
