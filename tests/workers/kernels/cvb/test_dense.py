import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.kernels.cvb.dense import (
    BoundTerms,
    MomentChanges,
    RowMoments,
    Tables,
    sweep_second,
    sweep_zeroth,
)
from collapsium.workers.kernels.cvb.records import DenseState, Priors
from tests.naive import assign as naive
from tests.naive import moments as exact
from tests.strategies import pair_totals, shards, with_token_weights

pytestmark = pytest.mark.kernels


def state(shard, q, extra, seed):
    """Return counts of the shard and of other shards; `extra` scales the latter."""
    # The kernel divides by a topic's tokens without the excluded copy by a series that is exact to the copy's fourth power.
    prior_total = 7.0 if shard.weights is None else 40.0
    generator = np.random.default_rng(seed)
    rows, topics = shard.words.size, q.shape[1]
    elsewhere = extra * generator.random((rows, topics))
    mean = naive.word_topic(rows, shard.position, pair_totals(shard), q)
    variance = naive.word_variance(rows, shard.position, pair_totals(shard), q)
    return {
        "word": mean + elsewhere,
        "variance": variance + 0.3 * elsewhere,
        "a": generator.uniform(0.05, 2.0, topics),
        "b": generator.uniform(0.01, 1.0, rows),
        "totals": np.stack(
            [mean.sum(axis=0) + elsewhere.sum(axis=0) + prior_total, variance.sum(axis=0) + 0.3 * elsewhere.sum(axis=0)]
        ),
    }


def outputs(shard, topics):
    return (
        np.empty((shard.pairs, topics), dtype=np.float32),
        np.empty((shard.documents, topics), dtype=np.float32),
        np.zeros((shard.words.size, topics)),
    )


def run(order, shard, q, given_state):
    topics = q.shape[1]
    document_topic = naive.document_topic(shard.offsets, pair_totals(shard), q).astype(np.float32).reshape(-1, topics)
    base = given_state["word"].astype(np.float32)
    new, counts, change = outputs(shard, topics)
    tables, sums, spread = np.zeros(topics), np.zeros(2), np.zeros_like(change)
    pairs = document_pairs(shard)
    a, totals = given_state["a"], given_state["totals"]
    priors, before, after = Priors(a, given_state["b"], 0.0), DenseState(q, document_topic), DenseState(new, counts)
    if order == 0:
        sweep_zeroth(pairs, base, priors, totals[0], before, after, change, Tables(a, tables))
    else:
        rows = RowMoments(base, given_state["variance"].astype(np.float32))
        changes, terms = MomentChanges(change, spread), BoundTerms(tables, sums)
        sweep_second(pairs, rows, priors, totals, before, after, changes, terms)
    return new, counts, change, spread, tables, sums


@pytest.mark.parametrize("order", [0, 2])
@pytest.mark.parametrize("weights", [False, True])
@given(shards(), st.sampled_from([0.0, 1.0, 50.0]), st.integers(0, 1000))
def test_sweep__equals_the_naive_version(order, weights, drawn, extra, seed):
    shard, q = drawn
    shard = with_token_weights(shard, seed) if weights else shard
    counts_of_pairs = pair_totals(shard)
    given_state = state(shard, q, extra, seed)
    new, counts, change, spread, tables, sums = run(order, shard, q, given_state)
    twin = naive.sweep(
        order, shard.offsets, shard.position, counts_of_pairs, given_state["word"], given_state["variance"],
        given_state["a"], given_state["b"], given_state["totals"], q, shard.weights,
    )  # fmt: skip
    np.testing.assert_allclose(new, twin, rtol=2e-3, atol=2e-5)
    np.testing.assert_allclose(new.sum(axis=1), 1.0, rtol=1e-5)

    rows = shard.words.size
    recount = [
        naive.word_topic(rows, shard.position, counts_of_pairs, responsibilities) for responsibilities in (new, q)
    ]
    np.testing.assert_allclose(change, recount[0] - recount[1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        counts, naive.document_topic(shard.offsets, counts_of_pairs, new).reshape(counts.shape), rtol=1e-5, atol=1e-6
    )
    documents = list(zip(shard.offsets, shard.offsets[1:], strict=False))
    moments = [exact.moments(new[i:j], counts_of_pairs[i:j]) for i, j in documents if j > i]
    expected = sum(exact.tables(given_state["a"], *moment) for moment in moments)
    np.testing.assert_allclose(tables, expected, rtol=1e-4, atol=1e-6)
    if order == 2:
        widths = [
            naive.word_variance(rows, shard.position, counts_of_pairs, responsibilities)
            for responsibilities in (new, q)
        ]
        np.testing.assert_allclose(spread, widths[0] - widths[1], rtol=1e-6, atol=1e-9)
        rising = sum(exact.log_rising(given_state["a"], *moment).sum() for moment in moments)
        entropy = -(counts_of_pairs[:, np.newaxis] * new * np.log(np.maximum(new, 1e-300), dtype=np.float64)).sum()
        np.testing.assert_allclose(sums, [rising, entropy], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("order", [0, 2])
def test_sweep__does_not_change_its_inputs(order):
    generator = np.random.default_rng(0)
    from collapsium.storage.corpus.shard import Shard
    from tests.strategies import documents_of

    shard = Shard.of(0, documents_of([{0: 2, 1: 1}, {}, {1: 3}]))
    q = generator.dirichlet(np.ones(3), size=3).astype(np.float32)
    given_state = state(shard, q, 5.0, 1)
    before = q.copy()
    q.flags.writeable = False
    run(order, shard, q, given_state)
    np.testing.assert_array_equal(q, before)


def test_sweep_of_the_only_pair_of_a_corpus__follows_the_prior():
    from collapsium.storage.corpus.shard import Shard
    from tests.strategies import documents_of

    shard = Shard.of(0, documents_of([{0: 1}]))
    q = np.array([[0.9, 0.1]], dtype=np.float32)
    given_state = state(shard, q, 0.0, 1)
    given_state.update(
        a=np.array([0.2, 0.6]), b=np.array([0.5]), totals=np.array([[0.9 + 4.0, 0.1 + 4.0], [0.09, 0.09]])
    )
    new = run(0, shard, q, given_state)[0]
    np.testing.assert_allclose(new[0], [0.25, 0.75], rtol=1e-2)


@pytest.mark.parametrize("order", [0, 2])
@pytest.mark.parametrize("certain", [True, False])
@pytest.mark.parametrize("small", [1e-30, 1e-12, 1e-3])
def test_sweep__is_finite_with_vanishing_priors(order, certain, small):
    """Priors of topics without tokens may vanish, and documents may have a single token."""
    from collapsium.storage.corpus.shard import Shard
    from tests.strategies import documents_of

    shard = Shard.of(0, documents_of([{0: 1}, {}, {1: 1}, {0: 2, 1: 1}]))
    q = np.full((shard.pairs, 3), 1 / 3, dtype=np.float32)
    if certain:
        q[:] = np.array([1.0, 0.0, 0.0])
    for a in (np.array([0.5, 0.5, small]), np.full(3, small)):
        given_state = {**state(shard, q, 0.0, 1), "a": a, "b": np.full(2, max(small, 1e-12))}
        new, counts, change, spread, tables, sums = run(order, shard, q, given_state)
        assert all(np.isfinite(values).all() for values in (new, counts, change, spread, tables, sums))
        np.testing.assert_allclose(new.sum(axis=1), 1.0, rtol=1e-5)


def test_small_priors__are_not_lost_to_rounding_when_the_own_copy_is_excluded():
    from collapsium.storage.corpus.shard import Shard
    from tests.strategies import documents_of

    shard = Shard.of(0, documents_of([{0: 1}]))
    q = np.array([[0.7, 0.3]], dtype=np.float32)
    given_state = {**state(shard, q, 0.0, 1), "a": np.array([1e-9, 3e-9]), "b": np.array([1e-10])}
    given_state["totals"] = np.array([[1000.7, 1000.3], [0.2, 0.2]])
    np.testing.assert_allclose(run(0, shard, q, given_state)[0][0], [0.25, 0.75], rtol=1e-2)
