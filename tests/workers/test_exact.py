"""The second-order expectations against sums over all assignments of corpora small enough to enumerate.

Measured over the examples below (5 or 6 tokens, K of 2 or 3): E[s] and E[t] within 1.2%, the bound within 0.073 nats in
all, which is at most 0.007 for each of its F[log Gamma] terms; P+ to rounding. The tolerances are these, rounded up.
"""

import itertools
import math

import numpy as np
import pytest
from collapsar.pipeline.contract import Summary
from collapsar.pipeline.models import hdp, lda
from collapsar.storage.shard import Shard
from collapsar.workers import tasks
from collapsar.workers.kernels.moments import positive
from collapsar.workers.streams import Stream
from scipy.special import digamma, gammaln

from tests.naive import moments as naive
from tests.naive.words import log_eta
from tests.strategies import documents_of

CORPORA = {
    "two documents": [{0: 2, 1: 1}, {1: 2, 2: 1}],
    "one word": [{0: 3}, {0: 2}],
    "an empty document": [{}, {0: 1, 1: 1, 2: 1}, {2: 2}],
    "one token a document": [{0: 1}, {1: 1}, {2: 1}, {0: 1}, {1: 1}],
}


def swept(family, name, rows, sweeps, **options):
    """Start and sweep a corpus of one shard; return the shard, responsibilities, told, globals and block."""
    shard = Shard.of(0, documents_of(rows))
    config = family.Config(order=2, **options)
    vocabulary = 3
    globals_ = family.initialise(Summary(len(rows), vocabulary, shard.tokens), config, Stream(0))
    block = tasks.blank(name, 0, vocabulary, globals_)
    after = tasks.start(name, shard, [block], globals_, Stream(5, "start"))
    for _ in range(sweeps):
        block = tasks.fold(name, block, [after.delta], globals_)
        globals_ = family.update(globals_, block.told, config, Stream(0))
        after = tasks.sweep(name, shard, after, [block], globals_, Stream(5, "sweep"))
    folded = tasks.fold(name, block, [after.delta], globals_)
    q = after.local["pair_topic"].astype(np.float64)
    return shard, q / q.sum(axis=1, keepdims=True), folded, globals_


def assignments(shard, q):
    """All assignments of all tokens with their probability under q: yields (chance, n_dk, n_kw)."""
    owner = np.repeat(np.arange(shard.documents), np.diff(shard.offsets))
    tokens = [
        (owner[p], shard.words[shard.position[p]], q[p]) for p in range(shard.pairs) for _ in range(shard.counts[p])
    ]
    topics = q.shape[1]
    for z in itertools.product(range(topics), repeat=len(tokens)):
        chance = math.prod(token[2][k] for token, k in zip(tokens, z, strict=True))
        document_topic, word_topic = np.zeros((shard.documents, topics)), np.zeros((3, topics))
        for (document, word, _), k in zip(tokens, z, strict=True):
            document_topic[document, k] += 1
            word_topic[word, k] += 1
        yield chance, document_topic, word_topic


def exact(shard, q, a, concentration, b, total):
    """Expectations under q by enumeration, and the log evidence of the words under a, b."""
    expected = {"tables": 0.0, "word_tables": 0.0, "present": 0.0, "log_joint": 0.0, "log_xi": 0.0}
    log_joints = []
    for chance, n_dk, n_kw in assignments(shard, q):
        n_k = n_kw.sum(axis=0)
        log_joint = (gammaln(concentration) - gammaln(concentration + n_dk.sum(axis=1))).sum()
        log_joint += (gammaln(a + n_dk) - gammaln(a)).sum() + (gammaln(total) - gammaln(total + n_k)).sum()
        log_joint += (gammaln(b + n_kw) - gammaln(b)).sum()
        log_joints.append(log_joint)
        expected["log_joint"] += chance * log_joint
        expected["tables"] += chance * (a * (digamma(a + n_dk) - digamma(a))).sum(axis=0)
        expected["word_tables"] += chance * (b * (digamma(b + n_kw) - digamma(b))).sum(axis=1)
        expected["present"] += chance * (n_dk > 0)
        expected["log_xi"] += chance * (digamma(total) - digamma(total + n_k))
    evidence = np.logaddexp.reduce(log_joints)
    return expected, evidence


def entropy(shard, q):
    return -(shard.counts[:, np.newaxis] * q * np.log(np.maximum(q, 1e-300))).sum()


@pytest.mark.parametrize("sweeps", [1, 4])
@pytest.mark.parametrize("topics", [2, 3])
@pytest.mark.parametrize("name", CORPORA)
def test_lda__expectations_and_bound_agree_with_enumeration(name, topics, sweeps):
    rows = CORPORA[name]
    shard, q, folded, globals_ = swept(lda, "lda", rows, sweeps, topics=topics, alpha=0.3, beta=1.5)
    expected, evidence = exact(shard, q, 0.3, 0.3 * topics, 0.5, 1.5)
    np.testing.assert_allclose(folded.told["tables"], expected["tables"], rtol=0.015)
    np.testing.assert_allclose(folded.rows["word_tables"], expected["word_tables"], rtol=0.015, atol=1e-9)
    bound = lda.objective(globals_, folded.told)["objective"]
    true_bound = expected["log_joint"] + entropy(shard, q)
    assert abs(bound - true_bound) < 0.08
    assert true_bound < evidence + 1e-9  # Jensen: what the bound approximates is a bound


@pytest.mark.parametrize("name", CORPORA)
def test_hdp__tables_and_bound_agree_with_enumeration(name):
    rows = CORPORA[name]
    learn = ("alpha", "gamma", "pi", "beta", "tau")
    shard, q, folded, globals_ = swept(hdp, "hdp", rows, 4, topics=3, beta=2.0, tau=3.0, learn=learn)
    a = float(globals_["alpha_geometric"]) * globals_["pi_geometric"]
    tau = folded.told.number("tables_of_words")  # only to see that tables were told
    assert tau > 0
    share = block_share(globals_, shard, q, rows)
    expected, _ = exact(shard, q, a, float(globals_["alpha"]), share[:, np.newaxis], float(globals_["beta"]))
    np.testing.assert_allclose(folded.told["tables"], expected["tables"], rtol=0.015)
    bound = hdp.objective(globals_, folded.told)["objective"] + hdp.divergence(globals_, folded.told)
    assert abs(bound - expected["log_joint"] - entropy(shard, q)) < 0.08


def block_share(globals_, shard, q, rows):
    """h_w of the last sweep, rebuilt from a run with one sweep fewer folded."""
    learn = ("alpha", "gamma", "pi", "beta", "tau")
    block = swept_block(rows, 4, learn)
    tau = block.rows["word_tables"] + float(globals_["tau_prior"])
    return float(globals_["beta_geometric"]) * np.exp(digamma(tau) - digamma(float(globals_["tau_total"])))


def swept_block(rows, sweeps, learn):
    """The block that the last of some sweeps was made against."""
    _, _, folded, _ = swept(hdp, "hdp", rows, sweeps - 1, topics=3, beta=2.0, tau=3.0, learn=learn)
    return folded


@pytest.mark.parametrize("name", CORPORA)
def test_present__agrees_with_enumeration(name):
    shard, q, _, _ = swept(lda, "lda", CORPORA[name], 2, topics=2, alpha=0.3, beta=1.5)
    expected, _ = exact(shard, q, 0.3, 0.6, 0.5, 1.5)
    for document, (first, last) in enumerate(itertools.pairwise(shard.offsets)):
        absent = np.prod((1 - q[first:last]) ** shard.counts[first:last, np.newaxis], axis=0)
        found = [positive(1.0, 0.1, value)[0] for value in absent]
        np.testing.assert_allclose(
            found, np.broadcast_to(expected["present"], (shard.documents, 2))[document], atol=1e-9
        )


@pytest.mark.parametrize("rows", [[{0: 3, 1: 1}, {1: 4, 2: 1}, {0: 2, 2: 3}, {2: 5}], [{0: 1}, {1: 9}, {}]])
@pytest.mark.parametrize("learned", ["alpha", "gamma", "pi"])
def test_hdp__hyperparameter_updates_do_not_lower_the_bound(learned, rows):
    """Exact coordinate ascent, one posterior at a time, with the responsibilities left alone."""
    shard, q, folded, globals_ = swept(hdp, "hdp", rows, 3, topics=3, beta=2.0)
    config = hdp.Config(order=2, topics=3, beta=2.0)
    names = {
        "alpha": ("alpha", "alpha_posterior", "alpha_geometric"),
        "gamma": ("gamma", "gamma_posterior"),
        "pi": ("pi", "pi_geometric", "stick_order", "stick_posterior"),
    }[learned]
    after = hdp.update({**globals_, "gamma": globals_["gamma"]}, folded.told, config, Stream(0))
    if learned == "gamma":  # its update follows that of pi: compare under the new sticks
        globals_ = {
            **globals_,
            **{name: after[name] for name in ("pi", "pi_geometric", "stick_order", "stick_posterior")},
        }
    mixed = {**globals_, **{name: after[name] for name in names}}
    assert bound_at(mixed, shard, q, folded.told) >= bound_at(globals_, shard, q, folded.told) - 1e-6


def bound_at(globals_, shard, q, told):
    """The terms of the bound that alpha, gamma and pi are in, for given responsibilities."""
    a, concentration = float(globals_["alpha_geometric"]) * globals_["pi_geometric"], float(globals_["alpha"])
    rising = sum(
        naive.log_rising(a, *naive.moments(q[i:j], shard.counts[i:j])).sum()
        for i, j in itertools.pairwise(shard.offsets)
        if j > i
    )
    return rising + log_eta(shard.lengths, concentration)[1] - hdp.divergence(globals_, told)
