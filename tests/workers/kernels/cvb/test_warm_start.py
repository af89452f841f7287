from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.families.cvb.active import first_lists
from collapsium.workers.families.cvb.active_topics import starts_of
from collapsium.workers.families.document_entries import document_pairs
from collapsium.workers.kernels.cvb import warm_start as warming
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics, DocumentModel, RowChanges
from tests.naive import active as naive_active
from tests.naive import warm_start as naive
from tests.naive.active import UNIT
from tests.strategies import pair_totals, shards, with_token_weights

pytestmark = pytest.mark.kernels


@st.composite
def known(draw):
    """Draw a shard, and proportions and topics of another run, some of which are zero."""
    shard, _ = draw(shards(max_documents=4))
    topics, seed = draw(st.integers(1, 5)), draw(st.integers(0, 2**31))
    generator = np.random.default_rng(seed)
    theta = generator.dirichlet(np.full(topics, 0.3), size=shard.documents).astype(np.float32)
    phi = generator.dirichlet(np.full(shard.words.size, 0.3), size=topics).T.astype(np.float32)
    phi[generator.random(phi.shape) < 0.2] = 0.0
    return shard, theta.reshape(shard.documents, topics), np.ascontiguousarray(phi), generator


def pairs_of(shard):
    return document_pairs(shard)


@pytest.mark.parametrize("weights", [False, True])
@given(given_=known(), seed=st.integers(0, 1000))
def test_expected_counts__equals_the_naive_version(given_, seed, weights):
    shard, theta, phi, _ = given_
    shard = with_token_weights(shard, seed) if weights else shard
    found = np.full(theta.shape, 9.0)
    warming.expected_counts(pairs_of(shard), DocumentModel(theta, phi), found)
    expected = naive.expected(shard.offsets, shard.position, pair_totals(shard), theta, phi)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-12)


@given(known(), st.integers(0, 2))
def test_initialise_dense__equals_the_naive_version(given_, more):
    shard, theta, phi, _ = given_
    found = np.full((shard.pairs, theta.shape[1] + more), 9.0, dtype=np.float32)
    warming.initialise_dense(pairs_of(shard), DocumentModel(theta, phi), found)
    q = naive.responsibilities(shard.offsets, shard.position, theta, phi)
    expected = np.where(np.isnan(q), 1.0 / theta.shape[1], q)
    np.testing.assert_allclose(found[:, : theta.shape[1]], expected, rtol=1e-5, atol=1e-12)
    assert (found[:, theta.shape[1] :] == 0.0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-6)


@pytest.mark.parametrize("weights", [False, True])
@given(given_=known(), more=st.integers(0, 2))
def test_initialise_active__equals_the_naive_version_and_a_recount(given_, more, weights):
    shard, theta, phi, generator = given_
    shard = with_token_weights(shard, more) if weights else shard
    # With so few tokens, sums of steps are exact unless tokens are weighted.
    rounding = 1e-5 if weights else 0.0
    topics = theta.shape[1] + more
    chosen = [np.flatnonzero(generator.random(topics) < 0.6) if n else np.zeros(0, int) for n in shard.lengths]
    topic = np.concatenate([*chosen, np.zeros(0)]).astype(np.uint16)
    lists = np.cumsum([0, *(topics.size for topics in chosen)]).astype(np.int64)
    starts = starts_of(shard.offsets, lists)
    share = np.full(int(starts[-1]), 999, dtype=np.uint16)
    count, rest = np.full(topic.size, 9.0), np.full(shard.documents, 9.0)
    rows, row_rest = np.zeros((shard.words.size, topics), dtype=np.float32), np.zeros(shard.words.size)
    given_arrays = shard.offsets, shard.position, pair_totals(shard)
    active, changes = ActiveTopics(lists, topic), RowChanges(rows, row_rest)
    state = ActiveState(starts, share, count, rest)
    warming.initialise_active(pairs_of(shard), DocumentModel(theta, phi), active, state, changes)
    expected = naive.steps(shard.offsets, shard.position, theta, phi, lists, topic)
    assert np.abs(share - expected).max(initial=0.0) <= 1
    where = lists, topic, starts, share
    counts = naive_active.document_counts(shard.offsets, pair_totals(shard), *where)
    for found, recounted in zip((count, rest), counts, strict=True):
        np.testing.assert_allclose(found, recounted, rtol=rounding, atol=rounding)
    words = naive_active.word_counts(rows.shape, *given_arrays, *where)
    np.testing.assert_allclose(rows, words[0], rtol=rounding, atol=rounding)
    np.testing.assert_allclose(row_rest, words[1], rtol=rounding, atol=rounding)
    counted = np.zeros_like(rows), np.zeros_like(row_rest)
    # as when another fit continues from these responsibilities
    warming.count_active(pairs_of(shard), active, ActiveState(*state), RowChanges(*counted))
    for found, recounted in zip(counted, words, strict=True):
        np.testing.assert_allclose(found, recounted, rtol=rounding, atol=rounding)
    for (low, high), (first, last) in zip(pairwise(starts), pairwise(shard.offsets), strict=True):
        pairs = share[low:high].astype(int).reshape(max(last - first, 1), -1)
        assert (pairs.sum(axis=1) <= UNIT).all()


def listed_by(expected, prior, places, occupied=None):
    documents = len(expected)
    occupied = np.ones(documents, bool) if occupied is None else np.array(occupied)
    topic, sizes = first_lists(np.array(expected), np.array(prior), np.array(places), occupied)
    cuts = np.cumsum([0, *sizes])
    return [topic[first:last].tolist() for first, last in pairwise(cuts)]


def test_first_active_topics__are_the_largest_that_fit():
    expected = [[5.0, 0.1, 3.0, 4.0, 0.0], [0.0, 0.01, 0.02, 0.0, 0.0], [9.0, 9.0, 9.0, 9.0, 9.0]]
    prior = [0.2] * 7
    assert listed_by(expected, prior, [2, 2, 3]) == [[0, 3], [2], [0, 1, 2]]
    assert listed_by(expected, prior, [4, 4, 4], [True, False, True]) == [[0, 2, 3], [], [0, 1, 2, 3]]
    # If more than half of the topics would be active, all are.
    assert listed_by(expected, prior, [7, 7, 7]) == [[0, 2, 3], [2], [0, 1, 2, 3, 4, 5, 6]]
    assert listed_by(expected[:1], [6.0, 0.05, 0.05, 0.05, 0.05], [4]) == [[1, 2, 3]]
