"""The second-order expectations against sums over all assignments of corpora small enough to enumerate.

The largest errors in the examples below (5 or 6 tokens, K of 2 or 3), cell by cell, are: E[s_dk] and E[t_kw] 1.2%, P+
rounding only, E[log xi_k] 0.5%, each F[log Gamma] term 0.03 nats, and the whole bound 0.073 nats. The tolerances are
these errors, rounded up.
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import digamma, gammaln

from collapsium.storage.corpus.shard import Shard
from collapsium.workers import tasks
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.cvb import collapsed, updates
from collapsium.workers.families.cvb.hdp import Hdp, divergence
from collapsium.workers.families.cvb.lda import Lda
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.families.family import Summary
from collapsium.workers.kernels.cvb import words
from collapsium.workers.kernels.cvb.records import WordMoments
from collapsium.workers.kernels.special import document_moments, expected_log_rising, expected_tables, positive
from tests.naive import moments as naive
from tests.naive.words import log_eta
from tests.strategies import documents_of

CORPORA = {
    "two documents": [{0: 2, 1: 1}, {1: 2, 2: 1}],
    "one word": [{0: 3}, {0: 2}],
    "an empty document": [{}, {0: 1, 1: 1, 2: 1}, {2: 2}],
    "one token a document": [{0: 1}, {1: 1}, {2: 1}, {0: 1}, {1: 1}],
}


def swept(model, rows, sweeps):
    """Initialise and sweep a corpus of one shard; return the shard, responsibilities, delta, global state and block."""
    shard = Shard.of(0, documents_of(rows))
    vocabulary = 3
    global_state = model.initialise(Summary(len(rows), vocabulary, shard.tokens), Stream(0))
    block = tasks.empty_block(model, 0, vocabulary, global_state)
    after = tasks.start(model, shard, None, [block], global_state, Stream(5, "start"))
    for _ in range(sweeps):
        block = tasks.fold(model, block, [after.delta], global_state)
        global_state = model.update(global_state, block.sums, Stream(0))
        after = tasks.sweep(model, shard, after, None, [block], global_state, Stream(5, "sweep"))
    folded = tasks.fold(model, block, [after.delta], global_state)
    q = after.local.pair_topic.astype(np.float64)
    return shard, q / q.sum(axis=1, keepdims=True), folded, global_state


def assignments(shard, q):
    """Yield all assignments of all tokens as (probability under q, n_dk, n_kw)."""
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
    """Return the expectations under q by enumeration, and the log evidence of the words under the priors a and b."""
    expected = dict.fromkeys(("s", "t", "present", "rising", "word_rising", "topic_rising", "log_joint", "log_xi"), 0.0)
    log_joints = []
    for chance, n_dk, n_kw in assignments(shard, q):
        n_k = n_kw.sum(axis=0)
        rising, word_rising = gammaln(a + n_dk) - gammaln(a), gammaln(b + n_kw) - gammaln(b)
        topic_rising = gammaln(total + n_k) - gammaln(total)
        log_joint = (gammaln(concentration) - gammaln(concentration + n_dk.sum(axis=1))).sum()
        log_joint += rising.sum() + word_rising.sum() - topic_rising.sum()
        log_joints.append(log_joint)
        for name, value in (
            ("log_joint", log_joint), ("rising", rising), ("word_rising", word_rising), ("topic_rising", topic_rising),
            ("s", a * (digamma(a + n_dk) - digamma(a))), ("t", b * (digamma(b + n_kw) - digamma(b))),
            ("present", n_dk > 0), ("log_xi", digamma(total) - digamma(total + n_k)),
        ):  # fmt: skip
            expected[name] = expected[name] + chance * value
    evidence = np.logaddexp.reduce(log_joints)
    return expected, evidence


def entropy(shard, q):
    return -(shard.counts[:, np.newaxis] * q * np.log(np.maximum(q, 1e-300))).sum()


def cells(shard, q, a):
    """Return the kernels' P+, E[s_dk] and F[log G(a_k + n_dk) / G(a_k)], computed one cell at a time."""
    found = {name: np.zeros((shard.documents, q.shape[1])) for name in ("present", "s", "rising")}
    counted, variance, absent = q.astype(np.float32), np.empty(q.shape[1]), np.empty(q.shape[1])
    for document, (first, last) in enumerate(itertools.pairwise(shard.offsets)):
        if last == first:
            continue
        document_moments(first, last, document_pairs(shard), counted, variance, absent)
        mean = (shard.counts[first:last, np.newaxis] * q[first:last]).sum(axis=0)
        for k in range(q.shape[1]):
            moments = positive(mean[k], variance[k], absent[k], 1.0 - absent[k])
            found["present"][document, k] = moments[0]
            found["s"][document, k] = expected_tables(a[k], digamma(a[k]), *moments)
            found["rising"][document, k] = expected_log_rising(a[k], *moments)
    return found


def word_cells(rows, b):
    """Return the kernel's E[t_kw] and F[log G(b_w + n_kw) / G(b_w)], computed one topic and word at a time."""
    rows = rows.to_arrays()
    shape = rows["word_topic"].shape
    found = {"t": np.zeros(shape), "word_rising": np.zeros(shape)}
    for w, k in itertools.product(*map(range, shape)):
        cell = [rows[f"word_topic{name}"][w : w + 1, k : k + 1].copy() for name in ("", "_variance", "_log_absent")]
        tables, bound = np.zeros(1), np.zeros(1)
        words.word_tables(WordMoments(*cell), b[w : w + 1], tables, bound)
        found["t"][w, k], found["word_rising"][w, k] = tables[0], bound[0]
    return found


def topic_cells(global_state, sums, total):
    """Return the kernel's E[log xi_k] and F[log G(B + n_k) / G(B)]."""
    moments, absent = updates.moved_moments(global_state, sums), updates.moved_log_absent(global_state, sums)
    log_xi, rising = collapsed.topic_totals(moments, absent, total)
    return {"log_xi": log_xi, "topic_rising": rising}


def check(found, expected):
    """Compare the kernels with the enumeration cell by cell, within the errors of the second order."""
    for name, values in found.items():
        exact_values = np.broadcast_to(expected[name], values.shape)
        if name == "present":
            np.testing.assert_allclose(values, exact_values, atol=1e-6)
        elif "rising" in name:
            np.testing.assert_allclose(values, exact_values, atol=0.03)
        else:
            np.testing.assert_allclose(values, exact_values, rtol=0.015, atol=1e-7)


@pytest.mark.parametrize("sweeps", [1, 4])
@pytest.mark.parametrize("topics", [2, 3])
@pytest.mark.parametrize("name", CORPORA)
def test_lda__every_expectation_agrees_with_enumeration(name, topics, sweeps):
    lda = Lda(Lda.Options(order=2, topics=topics, alpha=0.3, beta=1.5))
    shard, q, folded, global_state = swept(lda, CORPORA[name], sweeps)
    expected, evidence = exact(shard, q, 0.3, 0.3 * topics, 0.5, 1.5)
    documents = cells(shard, q, np.full(topics, 0.3))
    check(documents, expected)
    check(word_cells(folded.rows, np.full(3, 0.5)), expected)
    check(topic_cells(global_state, folded.sums, 1.5), expected)
    np.testing.assert_allclose(folded.sums["tables"], documents["s"].sum(axis=0), rtol=1e-5)
    bound = lda.objective(global_state, folded.sums)["objective"]
    true_bound = expected["log_joint"] + entropy(shard, q)
    assert abs(bound - true_bound) < 0.08
    # By Jensen's inequality, the bound that the kernels approximate is below the evidence.
    assert true_bound < evidence + 1e-9


ALL = ("alpha", "gamma", "pi", "beta", "tau")


@pytest.mark.parametrize("name", CORPORA)
def test_hdp__every_expectation_agrees_with_enumeration(name):
    hdp = Hdp(Hdp.Options(order=2, topics=3, beta=2.0, tau=3.0, learn=ALL))
    shard, q, folded, global_state = swept(hdp, CORPORA[name], 4)
    _, _, before, _ = swept(hdp, CORPORA[name], 3)  # the block whose counts the last sweep used
    a = global_state.alpha_geometric * global_state.pi_geometric
    tau = before.rows.word_tables + global_state.tau_prior
    h = global_state.beta_geometric * np.exp(digamma(tau) - digamma(global_state.tau_total))
    total = global_state.beta
    expected, _ = exact(shard, q, a, global_state.alpha, h[:, np.newaxis], total)
    documents = cells(shard, q, a)
    check(documents, expected)
    check(word_cells(folded.rows, h), expected)
    check(topic_cells(global_state, folded.sums, total), expected)
    np.testing.assert_allclose(folded.sums["tables"], documents["s"].sum(axis=0), rtol=1e-5)
    np.testing.assert_allclose(folded.rows.word_tables, expected["t"].sum(axis=1), rtol=0.015, atol=1e-7)
    bound = hdp.objective(global_state, folded.sums)["objective"] + divergence(global_state, folded.sums)
    assert abs(bound - expected["log_joint"] - entropy(shard, q)) < 0.08


@pytest.mark.parametrize("rows", [[{0: 3, 1: 1}, {1: 4, 2: 1}, {0: 2, 2: 3}, {2: 5}], [{0: 1}, {1: 9}, {}]])
@pytest.mark.parametrize("learned", ["alpha", "gamma", "pi"])
def test_hdp__hyperparameter_updates_do_not_lower_the_bound(learned, rows):
    """Updates of one posterior at a time, with fixed responsibilities, are exact coordinate ascent."""
    hdp = Hdp(Hdp.Options(order=2, topics=3, beta=2.0))
    shard, q, folded, global_state = swept(hdp, rows, 3)
    names = {
        "alpha": ("alpha", "alpha_posterior", "alpha_geometric"),
        "gamma": ("gamma", "gamma_posterior"),
        "pi": ("pi", "pi_geometric", "stick_order", "stick_posterior"),
    }[learned]
    after = hdp.update(global_state, folded.sums, Stream(0))
    if learned == "gamma":  # gamma is updated after pi, so compare it under the new sticks
        sticks = ("pi", "pi_geometric", "stick_order", "stick_posterior")
        global_state = replace(global_state, **{name: getattr(after, name) for name in sticks})
    mixed = replace(global_state, **{name: getattr(after, name) for name in names})
    assert bound_at(mixed, shard, q, folded.sums) >= bound_at(global_state, shard, q, folded.sums) - 1e-6


def bound_at(global_state, shard, q, sums):
    """Return the terms of the bound that depend on alpha, gamma and pi, for given responsibilities."""
    a, concentration = global_state.alpha_geometric * global_state.pi_geometric, global_state.alpha
    rising = sum(
        naive.log_rising(a, *naive.moments(q[i:j], shard.counts[i:j])).sum()
        for i, j in itertools.pairwise(shard.offsets)
        if j > i
    )
    return rising + log_eta(shard.lengths, concentration)[1] - divergence(global_state, sums)
