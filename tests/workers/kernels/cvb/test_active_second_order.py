from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.shard import Shard
from collapsium.workers.kernels.cvb import active
from collapsium.workers.kernels.cvb import active_second_order as active_second
from collapsium.workers.kernels.cvb import dense as assign
from tests.naive import active as naive_active
from tests.naive import active_second as naive
from tests.naive import lists as naive_lists
from tests.strategies import documents_of
from tests.workers.kernels.cvb.test_active import Listed, alone, difference, listed_shards

pytestmark = pytest.mark.kernels

UNIT = naive_active.UNIT
# The kernel computes in float32: exponents are up to 60, so that a weight is off by some 1e-5 and a responsibility by a
# part of a step, which falls to either side of a whole one.
STEPS = 2


def rows_of(state, extra):
    """Rows with their variances; `extra` scales what other shards count."""
    rows = state.rows(extra)
    variance, _ = naive_lists.moments(state.shape, *state.given, *state.where)
    variance += 0.3 * extra * state.noise.random(state.shape)
    return {**rows, "variance": variance, "total_variance": variance.sum(axis=0)}


def ratio(rows):
    """a_k / (B + E[n_k]) as S_w is made with."""
    return rows["a"] / rows["totals"]


def with_prior(rows, a):
    """The same with other a_k."""
    background = (rows["b"][:, np.newaxis] + rows["row_topic"]) @ (a / rows["totals"])
    return {**rows, "a": a, "background": background.astype(np.float32)}


def run(state, rows):
    """Sweep: the new state, the changes of E[n_kw] and of the background by words, B + E[n_k], and what was counted."""
    share = np.full_like(state.share, 77)
    counts = tuple(np.full_like(one, np.nan) for one in state.counts)
    row_change, rest_change = np.zeros(state.shape, dtype=np.float32), np.zeros(state.shape[0])
    running = rows["totals"].copy()
    active_second.sweep_active_second(
        *state.given, rows["b"], rows["background"], rows["a"], ratio(rows), *state.where, *state.counts, rows["row_topic"],
        rows["variance"], rows["total_variance"], running, row_change, share, *counts, rest_change,
    )  # fmt: skip
    return replace(state, share=share), row_change, rest_change, running, counts


def run_twin(state, rows, made=None):
    """The same by the twin: new responsibilities, the change of E[n_kw], and B + E[n_k]."""
    return naive.sweep(
        *state.given, rows["b"], rows["background"].astype(np.float64), rows["a"], ratio(rows), *state.where,
        rows["totals"], rows["row_topic"], rows["variance"], rows["total_variance"], made,
    )  # fmt: skip


def run_zeroth(state, rows):
    """What `run` does, by the zeroth order."""
    share = np.full_like(state.share, 77)
    counts = tuple(np.full_like(one, np.nan) for one in state.counts)
    row_change, rest_change = np.zeros(state.shape, dtype=np.float32), np.zeros(state.shape[0])
    running = rows["totals"].copy()
    active.sweep_active(
        *state.given, rows["b"], rows["background"], rows["a"], ratio(rows), 1.0, *state.where, *state.counts,
        rows["row_topic"], running, row_change, share, *counts, rest_change,
    )  # fmt: skip
    return replace(state, share=share), row_change, rest_change, running, counts


def run_dense(state, rows):
    """The dense sweep over the same state, whose documents list all topics: new responsibilities."""
    q = (state.share / np.float32(UNIT)).reshape(state.shard.pairs, state.topics)
    document_topic = state.counts[0].reshape(state.shard.documents, state.topics)
    new, counts = np.empty_like(q), np.empty_like(document_topic)
    assign.sweep_second(
        *state.given, rows["row_topic"], rows["b"], rows["variance"].astype(np.float32), rows["a"],
        np.stack([rows["totals"], rows["total_variance"]]), q, document_topic, new, counts,
        np.zeros(state.shape), np.zeros(state.shape), np.zeros(state.topics), np.zeros(2),
    )  # fmt: skip
    return new


def of_one_document(pairs, topics, most, sharp, noise):
    """A document that lists all topics and has next to no background."""
    shard = Shard.of(0, documents_of([{word: int(noise.integers(1, most + 1)) for word in range(pairs)}]))
    share = np.floor(noise.dirichlet(np.full(topics, sharp), pairs) * UNIT).ravel().astype(np.uint16)
    topic = np.arange(topics, dtype=np.uint16)
    return Listed(shard, topics, np.array([0, topics], dtype=np.int64), topic, share, noise)


@given(listed_shards(), st.sampled_from([0.0, 1.0, 50.0]))
def test_sweep__equals_its_twin(state, extra):
    """Pair by pair, given what was made of the pairs before: a step more or less would grow from pair to pair."""
    rows = rows_of(state, extra)
    new, row_change, _, running, _ = run(state, rows)
    assert difference(new.share, run_twin(state, rows, new.share)[0]) <= STEPS
    _, twin_change, twin_running = run_twin(state, rows, new.share)
    np.testing.assert_allclose(row_change, twin_change, atol=1e-9)
    np.testing.assert_allclose(running, twin_running, rtol=1e-12)


@given(listed_shards(), st.sampled_from([0.0, 50.0]))
def test_sweep__stays_near_its_twin(state, extra):
    """The same where the twin goes on from its own responsibilities, and priors are such that little grows."""
    rows = with_prior(rows_of(state, extra), state.noise.uniform(2.0, 4.0, state.topics))
    assert difference(run(state, rows)[0].share, run_twin(state, rows)[0]) <= 8


@pytest.mark.parametrize(("pairs", "topics"), [(1, 5), (4, 3), (18, 6), (40, 2)])
@given(st.integers(0, 2**31), st.sampled_from([10.0, 0.3, 0.01]), st.sampled_from([1.0, 50.0]))
def test_sweep__over_all_topics_is_the_dense_sweep(pairs, topics, seed, sharp, extra):
    """Over one document: the dense sweep moves V[n_kw] and V[n_k] from one document to the next, this does not."""
    state = of_one_document(pairs, topics, 1, sharp, np.random.default_rng(seed))
    rows = with_prior(rows_of(state, extra), state.noise.uniform(1.0, 3.0, topics))
    found = run(state, rows)[0].share.reshape(pairs, topics) / UNIT
    # Each pair is cut to whole steps, and what that takes off E[n_dk] is felt by the pairs that follow.
    np.testing.assert_allclose(found, run_dense(state, rows), atol=(2 + pairs / 4) / UNIT)


@pytest.mark.parametrize("extra", [0.0, 50.0])
@given(listed_shards())
def test_sweep__without_variances_is_the_zeroth_order(extra, state):
    """V[n_dk] is next to nothing beside large a_k."""
    rows = with_prior(rows_of(state, extra), state.noise.uniform(1e4, 2e4, state.topics))
    rows.update(variance=np.zeros(state.shape), total_variance=np.zeros(state.topics))
    new, row_change, rest_change, running, counts = run(state, rows)
    plain = run_zeroth(state, rows)
    assert difference(new.share, plain[0].share) <= STEPS
    tokens = STEPS * state.shard.counts.sum() / UNIT
    np.testing.assert_allclose(row_change, plain[1], atol=tokens)
    np.testing.assert_allclose(rest_change, plain[2], atol=tokens * state.topics)
    np.testing.assert_allclose(running, plain[3], atol=tokens)
    np.testing.assert_allclose(counts[0], plain[4][0], atol=tokens)


@given(st.integers(0, 2**31), st.integers(1, 6))
def test_sweep__a_token_alone_in_its_corpus_has_no_variance(seed, topics):
    """All there is of it is the own copy, which is excluded, however small the priors and uncertain the token."""
    state = of_one_document(1, topics, 1, 1.0, np.random.default_rng(seed))
    rows = {**rows_of(state, 0.0), "totals": state.noise.uniform(1.5, 2.0, topics)}
    rows = with_prior(rows, 10.0 ** state.noise.uniform(-9.0, -6.0, topics))
    assert difference(run(state, rows)[0].share, run_zeroth(state, rows)[0].share) <= STEPS


@pytest.mark.parametrize("b", [1e-12, 1.0])
def test_sweep__shares_a_token_evenly_that_no_topic_wants(b):
    state, rows = alone([1e-12, 1e-10, 1e-11], [0, 0, 0])
    rows.update(variance=np.full((1, 3), 1e3 * b**2), total_variance=np.zeros(3), b=np.full(1, b))
    rows["row_topic"] = np.zeros((1, 3), dtype=np.float32)
    np.testing.assert_allclose(run(state, rows)[0].share / UNIT, 1 / 3, atol=STEPS / UNIT)


def test_correct__multiplies_by_the_exponential_within_bounds():
    exponent = np.concatenate([np.linspace(-70, 70, 4001), np.linspace(-1, 1, 1001)]).astype(np.float32)
    expected = np.exp(np.clip(exponent.astype(np.float64), -60, 60))
    weight = np.ones_like(exponent)
    total = active_second._correct(weight.size, weight, exponent, exponent.view(np.int32))
    near = np.abs(np.log(expected)) <= 1.0  # beyond, an exponent itself is less exact
    np.testing.assert_allclose(weight[near], expected[near], rtol=4e-7)
    np.testing.assert_allclose(weight, expected, rtol=6e-6)
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-4)


@pytest.mark.parametrize(("name", "sign"), [("variance", -1), ("total_variance", 1)])
@pytest.mark.parametrize("listed", [[0, 1, 2], [0, 1]])
@pytest.mark.parametrize("exponent", [0.01, 0.7, 3.0, 8.0])
def test_sweep__weighs_by_the_exponential_of_variances(name, sign, listed, exponent):
    """A word's variance lowers a topic's weight, that of all its words raises it; the background's stays."""
    state, rows = alone([1.0, 1.0, 1.0], [0] * len(listed), listed)
    rows.update(variance=np.zeros((1, 3)), total_variance=np.zeros(3))
    mean = float(rows["row_topic"][0, 0]) + 1.0 if name == "variance" else rows["totals"][0]
    rows[name][..., 0] = 2 * exponent * mean**2
    weight = np.exp(sign * exponent)
    expected = np.array([weight, 1.0, 1.0])[listed] / (weight + 2.0)
    np.testing.assert_allclose(run(state, rows)[0].share / UNIT, expected, atol=STEPS / UNIT)


@pytest.mark.parametrize("exponent", [0.0, 1e-9, 45.0, 58.0, 59.0, 61.0, 1e6])
def test_sweep__bounds_the_exponent(exponent):
    state, rows = alone([1e-12, 1e14], [0, 0])  # squares of which are still numbers in float32
    rows.update(variance=np.zeros((1, 2)), total_variance=np.zeros(2))
    rows["variance"][0, 1] = 2 * exponent * (1e6 + 1.0) ** 2
    ratio = 1e26 * np.exp(-min(exponent, 60.0))
    found = run(state, rows)[0].share / UNIT
    np.testing.assert_allclose(found, [1 / (1 + ratio), ratio / (1 + ratio)], atol=STEPS / UNIT)


@given(listed_shards(max_count=9), st.sampled_from([0.0, 50.0]))
def test_sweep__loses_no_token(state, extra):
    rows = rows_of(state, extra)
    new, row_change, rest_change, running, counts = run(state, rows)
    # Multiples of 2^-15 below 512 are exact in float32, and so are their sums.
    for found, exact in zip(counts, new.counts, strict=True):
        np.testing.assert_array_equal(found, exact)
    owner = np.repeat(np.arange(state.shard.documents), np.diff(state.lists))
    listed = np.bincount(owner, weights=counts[0], minlength=state.shard.documents)
    np.testing.assert_array_equal(listed + counts[1], state.shard.lengths)

    before, after = (naive_active.word_counts(state.shape, *state.given, *one.where) for one in (state, new))
    np.testing.assert_array_equal(row_change, after[0] - before[0])
    np.testing.assert_array_equal(rest_change, after[1] - before[1])
    np.testing.assert_allclose(running - rows["totals"], row_change.sum(axis=0), atol=1e-9)
    held = [q.sum(axis=1) for _, _, q in naive_active.documents(state.shard.offsets, *new.where)]
    assert np.concatenate([np.zeros(1), *held]).max() <= 1.0


@given(listed_shards(), st.sampled_from([0.0, 50.0]))
def test_sweep__goes_on_from_where_it_ended(state, extra):
    """Nothing drifts: after some sweeps the counts that were carried along still equal a recount."""
    rows = rows_of(state, extra)
    for _ in range(3):
        state, row_change, _, running, counts = run(state, rows)
        rows = {**rows, "row_topic": rows["row_topic"] + row_change, "totals": running}
    for found, exact in zip(counts, state.counts, strict=True):
        np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("small", [1e-30, 1e-12, 1e-3])
@pytest.mark.parametrize("certain", [True, False])
@pytest.mark.parametrize("topic", [[0, 1, 2], [0, 1], [2]])
def test_sweep__is_finite_where_priors_vanish(small, certain, topic):
    """And a document that lists all topics keeps its tokens in them, however little they weigh."""
    shard = Shard.of(0, documents_of([{0: 1}, {}, {2: 1}, {0: 2, 1: 1}]))
    sizes = np.array([len(topic), 0, len(topic), len(topic)])
    lists = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    steps = [UNIT] + [0] * (len(topic) - 1) if certain else [UNIT // 3] * len(topic)
    share = np.tile(np.array(steps, dtype=np.uint16), shard.pairs)
    listed = np.tile(np.array(topic, dtype=np.uint16), 3)
    state = Listed(shard, 3, lists, listed, share, np.random.default_rng(0))
    for a in (np.array([0.5, 0.5, small]), np.full(3, small)):
        rows = with_prior({**rows_of(state, 0.0), "b": np.full(3, max(small, 1e-12))}, a)
        new, row_change, rest_change, running, counts = run(state, rows)
        assert all(np.isfinite(values).all() for values in (row_change, rest_change, running, *counts))
        for found, exact in zip(counts, new.counts, strict=True):
            np.testing.assert_array_equal(found, exact)
        if len(topic) == 3:
            assert (counts[1] <= 3.1 / UNIT * shard.lengths).all()


def test_sweep__leaves_its_inputs_alone():
    state, rows = alone([0.2, 0.6, 0.8], [3000, 700], [0, 2])
    rows.update(variance=np.ones((1, 3)), total_variance=np.ones(3))
    names = ("a", "b", "background", "row_topic", "variance", "total_variance")
    held = [*state.given, *state.where, *state.counts, *(rows[name] for name in names)]
    before = [values.copy() for values in held]
    for values in held:
        values.flags.writeable = False
    run(state, rows)
    for values, copy in zip(held, before, strict=True):
        np.testing.assert_array_equal(values, copy)
