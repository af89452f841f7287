"""Local states after moves of topics: kernels against naive versions, and their properties."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.shard import Shard
from collapsium.workers.families.cvb.active_topics import starts_of
from collapsium.workers.kernels.cvb import topic_moves as moves
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics, RunningCounts
from collapsium.workers.kernels.cvb.topic_moves import Moves
from tests.naive import active as naive_active
from tests.naive import topic_moves as naive
from tests.strategies import documents_of, pair_totals
from tests.workers.kernels.cvb.listed import (
    KEYS,
    UNIT,
    Listed,
    held_out,
    listed_shards,
    sweep_rows,
    tokens_of,
    weighed_shards,
)

# Hashes are products and sums of 64-bit integers, whose overflow NumPy reports for scalars, but not for arrays.
pytestmark = [pytest.mark.kernels, pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")]


@st.composite
def moves_of(draw, topics):
    """Draw disjoint merges, deletes and splits: the topic that each topic becomes, and the one in half of the
    documents."""
    into, split = np.arange(topics), np.full(topics, -1)
    free = list(draw(st.permutations(range(topics))))
    while len(free) >= 2:
        removed, target = free.pop(), free.pop()
        kind = draw(st.sampled_from(["merge", "delete", "split", "none"]))
        if kind == "merge":
            into[removed] = target
        elif kind == "delete":
            into[removed] = -1
        elif kind == "split":
            # The new topic of a split usually had no tokens before.
            into[removed], split[target] = draw(st.sampled_from([-1, removed])), removed
    return into, split


def after_moves(state, more, into, split, key, first=0, pseudo=0.0):
    """Return the active topics and the result of `move_responsibilities`.

    The documents have the numbers from `first` on in their shard. Before, `more` tokens were held out, and the active
    topics had the given pseudo-counts.
    """
    counts = pair_totals(replace(state.shard, counts=state.shard.counts - more))
    counted = naive_active.document_counts(state.shard.offsets, counts, *state.where)[0]
    start = np.full(state.topic.size if pseudo else 0, pseudo, np.float32)
    sparse = state.sparse._replace(counts=counted, pseudo=start)
    chosen, sizes = np.full_like(state.topic, 999), np.full(state.shard.documents, -1, dtype=np.int64)
    accepted = Moves(into, split, np.uint64(key), first)
    moves.move_topics(state.active, accepted, chosen, sizes)
    spans = np.diff(state.lists)
    within = np.arange(chosen.size) - np.repeat(state.lists[:-1], spans) < np.repeat(sizes, spans)
    assert (chosen[~within] == 999).all()
    topic, lists = chosen[within], np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    starts = starts_of(state.shard.offsets, lists)
    share = np.zeros(int(starts[-1]), dtype=np.uint16)
    ratio, start = np.linspace(0.1, 1.0, state.topics), np.full(state.shape, 9.0)
    running = RunningCounts(np.zeros(state.topics), ratio, sweep_rows(start))
    count, rest, stays = np.zeros(topic.size), np.zeros(state.shard.documents), np.zeros(topic.size, np.float32)
    moves.move_responsibilities(
        state.pairs, more, state.active, sparse, accepted, ActiveTopics(lists, topic),
        running, ActiveState(starts, share, count, rest, stays),
    )  # fmt: skip
    change, rest_change = tokens_of(running.rows, start), running.rows.background
    np.testing.assert_allclose(running.rows.background_weight, change @ ratio, atol=1e-3)
    np.testing.assert_allclose(running.totals, change.sum(axis=0), rtol=1e-5, atol=1e-3)
    new = Listed(state.shard, state.topics, lists, topic, share, state.noise)
    return new, change, rest_change, count + stays, rest


@given(weighed_shards(max_count=9), KEYS, st.sampled_from([0.0, 0.3, 1.0]), st.data())
def test_moved_states__of_weighted_tokens_equal_the_naive_version(state, key, share, data):
    into, split = data.draw(moves_of(state.topics))
    more = held_out(state.shard, key, share)
    new, change, rest_change, count, rest = after_moves(state, more, into, split, key)
    weights = more * state.shard.weights.astype(np.float64)
    _, shares, twin, twin_rest = naive.moved(
        state.shape, *state.pair_arrays, weights, *state.where, into, split, key, 0
    )
    np.testing.assert_array_equal(new.share, shares)
    np.testing.assert_allclose(change, twin, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(rest_change, twin_rest, rtol=1e-5, atol=1e-4)
    for found, exact in zip((count, rest), new.counts, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-4)


@given(listed_shards(max_count=9), KEYS, st.integers(0, 5), st.sampled_from([0.0, 0.3, 1.0]), st.data())
def test_moved_states__equal_the_naive_version_and_conserve_tokens(state, key, first, share, data):
    into, split = data.draw(moves_of(state.topics))
    more = held_out(state.shard, key, share)
    new, change, rest_change, count, rest = after_moves(state, more, into, split, key, first)
    lists, shares, twin, twin_rest = naive.moved(
        state.shape, *state.pair_arrays, more, *state.where, into, split, key, first
    )
    np.testing.assert_array_equal(np.diff(new.lists), [topics.size for topics in lists])
    np.testing.assert_array_equal(new.topic, np.concatenate([np.zeros(0), *lists]))
    np.testing.assert_array_equal(new.share, shares)
    np.testing.assert_array_equal(change, twin)
    np.testing.assert_array_equal(rest_change, twin_rest)
    # E[n_dk] and the background of all tokens that count after the moves
    for found, exact in zip((count, rest), naive_active.document_counts(*counts_of(new)), strict=True):
        np.testing.assert_array_equal(found, exact)
    tokens = np.bincount(state.shard.position, weights=more, minlength=state.shape[0])
    np.testing.assert_array_equal(change.sum(axis=1, dtype=np.float64) + rest_change, tokens)
    owner = np.repeat(np.arange(state.shard.documents), np.diff(new.lists))
    listed = np.bincount(owner, weights=count, minlength=state.shard.documents)
    np.testing.assert_array_equal(listed + rest, state.shard.lengths)


@given(listed_shards(max_count=9), KEYS, st.sampled_from([0.0, 0.3]), st.data())
def test_pseudo_counts_of_an_initialisation__move_with_their_topics(state, key, share, data):
    into, split = data.draw(moves_of(state.topics))
    more = held_out(state.shard, key, share)
    plain, _, _, count, rest = after_moves(state, more, into, split, key)
    _, _, _, raised, same = after_moves(state, more, into, split, key, pseudo=64.0)
    sources = [
        [naive.target(k, into, split, key, d) for k in state.topic[low:high]]
        for d, (low, high) in enumerate(pairwise(state.lists))
    ]
    lists = [plain.topic[low:high] for low, high in pairwise(plain.lists)]
    expected = [64.0 * from_.count(k) for from_, topics in zip(sources, lists, strict=True) for k in topics]
    np.testing.assert_allclose(raised - count, np.array(expected), atol=1e-3)
    np.testing.assert_array_equal(same, rest)


def counts_of(state):
    return state.shard.offsets, state.shard.counts, *state.where


def dense(state):
    """Return the responsibilities of all topics, shape (pairs, topics)."""
    blocks = [np.zeros((0, state.topics))]
    for _, active, q in naive_active.documents(state.shard.offsets, *state.where):
        block = np.zeros((len(q), state.topics))
        block[:, active] = q
        blocks.append(block)
    return np.concatenate(blocks)


@given(listed_shards(max_count=9), KEYS, st.data())
def test_moved_states__add_merged_topics_drop_deleted_ones_and_split_whole_documents(state, key, data):
    into, split = data.draw(moves_of(state.topics))
    none = np.zeros(state.shard.pairs, dtype=np.int32)
    new, change, _, _, _ = after_moves(state, none, into, split, key)
    before, after, expected = dense(state), dense(new), np.zeros((state.shard.pairs, state.topics))
    owner = np.repeat(np.arange(state.shard.documents), np.diff(state.shard.offsets))
    for k in range(state.topics):
        if split[k] >= 0:  # a document keeps the topic in all pairs, or has the new one in all pairs
            left = np.isin(owner, owner[after[:, k] > 0])
            expected[:, k] += np.where(left, before[:, k], 0.0)
            expected[:, split[k]] += np.where(left, 0.0, before[:, k])
        elif into[k] >= 0:
            expected[:, into[k]] += before[:, k]
    np.testing.assert_array_equal(after, expected)
    counts = [naive_active.word_counts(state.shape, *state.pair_arrays, *sample.where)[0] for sample in (state, new)]
    np.testing.assert_array_equal(change, counts[1] - counts[0])
    gone = [k for k in range(state.topics) if into[k] != k and k not in split]
    assert not set(new.topic) & set(gone)


@given(listed_shards(max_count=9), KEYS, st.data())
def test_moved_states_of_successive_documents__equal_those_of_all_at_once(state, key, data):
    into, split = data.draw(moves_of(state.topics))
    more, cut = held_out(state.shard, key, 0.3), data.draw(st.integers(0, state.shard.documents))
    whole = after_moves(state, more, into, split, key)
    parts = []
    for first, last in ((0, cut), (cut, state.shard.documents)):
        pairs = slice(*state.shard.offsets[[first, last]])
        rows = [
            {int(state.shard.words[state.shard.position[p]]): int(state.shard.counts[p]) for p in range(*where)}
            for where in zip(state.shard.offsets[first:last], state.shard.offsets[first + 1 : last + 1], strict=True)
        ]
        listed, held = slice(*state.lists[[first, last]]), slice(*state.starts[[first, last]])
        lists = state.lists[first : last + 1] - state.lists[first]
        run = Listed(
            Shard.of(0, documents_of(rows)), state.topics, lists, state.topic[listed], state.share[held], state.noise
        )
        parts.append(after_moves(run, more[pairs], into, split, key, first))
    for name in ("topic", "share"):
        found = np.concatenate([getattr(part[0], name) for part in parts])
        np.testing.assert_array_equal(found, getattr(whole[0], name))
    for place in (3, 4):
        np.testing.assert_array_equal(np.concatenate([part[place] for part in parts]), whole[place])
    assert sum(part[2].sum() for part in parts) == whole[2].sum()


@given(listed_shards(max_count=9), KEYS)
def test_moved_states_without_moves__are_unchanged(state, key):
    none = np.zeros(state.shard.pairs, dtype=np.int32)
    into, split = np.arange(state.topics), np.full(state.topics, -1)
    new, change, rest_change, _, _ = after_moves(state, none, into, split, key)
    for name in ("lists", "topic", "share"):
        np.testing.assert_array_equal(getattr(new, name), getattr(state, name))
    assert not change.any()
    assert not rest_change.any()


def test_a_split__moves_the_same_half_of_the_documents_each_time():
    documents = 400
    shard = Shard.of(0, documents_of([{0: 1}] * documents))
    topic = np.zeros(documents, dtype=np.uint16)
    share = np.full(documents, UNIT, dtype=np.uint16)
    state = Listed(shard, 2, np.arange(documents + 1), topic, share, np.random.default_rng(0))
    into, split = np.arange(2), np.array([1, -1])
    none = np.zeros(documents, dtype=np.int32)
    halves = [after_moves(state, none, into, split, key)[0].topic for key in (1, 1, 2)]
    np.testing.assert_array_equal(halves[0], halves[1])
    for half in halves:
        assert abs(half.mean() - 0.5) < 4 * 0.5 / np.sqrt(documents)
    assert abs((halves[0] == halves[2]).mean() - 0.5) < 4 * 0.5 / np.sqrt(documents)


@given(st.integers(0, 9), st.integers(1, 6), st.sampled_from([0.0, 0.1, 2.0, 100.0]), st.integers(0, 2**31))
def test_gram__equals_the_naive_version(words, topics, least, seed):
    noise = np.random.default_rng(seed)
    rows = (noise.gamma(0.3, 3.0, (words, topics)) * (noise.random((words, topics)) < 0.7)).astype(np.float32)
    found = np.ones((topics, topics))
    moves.gram(rows, least, found)
    np.testing.assert_allclose(found - 1, naive.gram(rows, np.float32(least)), rtol=1e-9, atol=1e-9)
