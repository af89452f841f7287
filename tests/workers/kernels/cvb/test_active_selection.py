from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.storage.corpus.shard import Shard
from collapsium.workers.families.cvb.active_topics import starts_of
from collapsium.workers.kernels.cvb import active_selection
from collapsium.workers.kernels.cvb.active import EXACT_TOKENS
from collapsium.workers.kernels.cvb.active_selection import Selection, SelectionRows
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics
from tests.naive import active as naive_active
from tests.naive import active_topics as naive
from tests.strategies import documents_of
from tests.workers.kernels.cvb.listed import (
    UNIT,
    Listed,
    listed_shards,
    priors_of,
    running_counts,
    tokens_of,
    weighed_shards,
)

pytestmark = pytest.mark.kernels


def select(state, rows, threshold, room, priors=None):
    """Return the selected topics of each document."""
    chosen = np.full(int(room.sum()) + 1, 999, dtype=np.uint16)
    sizes = np.full(room.size, -1, dtype=np.int64)
    active_selection.select(
        state.pairs,
        state.active,
        state.sparse,
        priors or priors_of(rows),
        SelectionRows(rows["row_topic"], rows["background"], rows["totals"]),
        threshold,
        Selection(room.astype(np.int64), chosen, sizes),
    )
    places = np.cumsum([0, *sizes])
    assert (chosen[places[-1] :] == 999).all()
    return [chosen[first:end].astype(np.int64) for first, end in pairwise(places)]


def expected(state, rows):
    parts = rows["background"].astype(np.float64), rows["a"], rows["totals"], *state.where, rows["row_topic"]
    return naive.expected(*state.pair_arrays, rows["b"], *parts)


@given(
    listed_shards() | weighed_shards(),
    st.sampled_from([0.0, 1.0, 50.0]),
    st.sampled_from([0.01, 0.5, 3.0, 100.0]),
    st.data(),
)
def test_select__equals_the_naive_version(state, extra, least, data):
    rows = state.rows(extra)
    threshold = least * state.noise.uniform(0.5, 1.0, state.topics)
    room = np.array([data.draw(st.integers(1, state.topics)) for _ in range(state.shard.documents)])
    counts = expected(state, rows)
    for d, found in enumerate(select(state, rows, threshold, room)):
        if state.shard.lengths[d] == 0:
            assert found.size == 0
            continue
        assert 1 <= found.size <= room[d]
        assert (np.diff(found) > 0).all()
        assert found[-1] < state.topics
        twin = naive.select(counts[d], threshold, room[d])
        if not np.isclose(counts[d], threshold, rtol=1e-4).any():  # otherwise rounding decides how many topics pass
            assert found.size == twin.size
            differs = np.setxor1d(found, twin)
            assert differs.size == 0 or borderline_topics(counts[d], threshold, room[d])[differs].all()


def borderline_topics(count, threshold, room):
    """Return the topics whose selection depends on rounding: as large as the last selected one, or as the largest if
    none passes.

    Counts are summed in float32 from differences that lose a few digits. If there is no room for all, the interval of
    the limit is halved 16 times.
    """
    passing = np.sort(count[count > threshold])[::-1]
    if 0 < passing.size <= room:
        return np.zeros(count.size, dtype=bool)
    last = passing[room - 1] if passing.size else count.max()
    return np.isclose(count, last, rtol=1e-4, atol=1e-5 + count.max() / 2**16)


@given(listed_shards(), st.sampled_from([0.0, 50.0]))
def test_expected_counts__sum_to_the_documents_tokens(state, extra):
    """In the naive version, inactive topics share the background; they get all of it if phi equals the one in S_w."""
    rows = state.rows(extra)
    counts = expected(state, rows)
    for d, (_, active, _) in enumerate(naive_active.documents(state.shard.offsets, *state.where)):
        tokens = state.shard.lengths[d] - (state.counts[1][d] if active.size == state.topics else 0.0)
        assert counts[d].sum() == pytest.approx(tokens, rel=1e-2, abs=1e-6)


@pytest.mark.parametrize("topics", [2, 3, 6])
def test_select__activates_all_topics_if_more_than_half_pass(topics):
    for passing in range(1, topics + 1):
        steps = np.zeros(topics, dtype=np.uint16)
        steps[topics - passing :] = 100
        state = all_active([{0: 9}], steps)
        rows, threshold = state.rows(0.0), np.full(topics, 9 * 50 / UNIT)
        every, passed = np.arange(topics), np.arange(topics - passing, topics)
        found = select(state, rows, threshold, np.array([topics]))[0]
        np.testing.assert_array_equal(found, every if 2 * passing > topics else passed)
        # unless there is no room for all topics
        if passing < topics:
            np.testing.assert_array_equal(select(state, rows, threshold, np.array([topics - 1]))[0], passed)


def all_active(rows, steps):
    """Return documents whose topics are all active, with the same responsibilities in all pairs."""
    shard, topics = Shard.of(0, documents_of(rows)), len(steps)
    offsets = (np.arange(shard.documents + 1) * topics).astype(np.int64)
    topic = np.tile(np.arange(topics, dtype=np.uint16), shard.documents)
    share = np.tile(np.array(steps, dtype=np.uint16), shard.pairs)
    return Listed(shard, topics, offsets, topic, share, np.random.default_rng(0))


def test_select__selects_the_largest_topics_that_fit_or_the_largest_if_none_passes():
    steps = [100, 9000, 300, 9001, 200, 8000]
    state = all_active([{0: 1, 1: 2}], steps)
    rows = state.rows(0.0)
    for room in range(1, 6):
        found = select(state, rows, np.full(6, 1e-4), np.array([room]))[0]
        np.testing.assert_array_equal(found, np.sort(np.argsort(steps)[::-1][:room]))
        np.testing.assert_array_equal(select(state, rows, np.full(6, 10.0), np.array([room]))[0], [3])


@given(
    st.lists(st.sampled_from([0, 700, 701, 4000, 5000]), min_size=1, max_size=6), st.sampled_from([0.0, 0.1]), st.data()
)
def test_select__prefers_the_first_topics_among_equal_counts(steps, least, data):
    state, room = all_active([{0: 1}], steps), data.draw(st.integers(1, len(steps)))
    found = select(state, state.rows(0.0), np.full(len(steps), least), np.array([room]))[0]
    np.testing.assert_array_equal(found, naive.select(np.array(steps) / UNIT, least, room))


@pytest.mark.parametrize("room", [1, 2, 3, 4])
def test_select_of_equal_topics__fills_the_room(room):
    state = all_active([{0: 1}], [1000] * 5)
    found = select(state, state.rows(0.0), np.full(5, 1e-4), np.array([room]))[0]
    np.testing.assert_array_equal(found, np.arange(room))


@given(
    listed_shards(max_count=9) | weighed_shards(max_count=9) | listed_shards(max_count=900),
    st.sampled_from([0.0, 50.0]),
    st.integers(0, 2**31),
)
def test_carry__equals_the_naive_version_and_conserves_tokens(state, extra, seed):
    # Sums of steps are exact below 512 tokens of a word, and rounded above; sums of weights are always rounded to steps.
    rounded = (state.topics * state.shard.documents + 1) / UNIT
    close = partial(np.testing.assert_allclose, rtol=1e-5, atol=rounded)
    rounds = state.shard.weights is not None or state.shard.counts.max(initial=0) > EXACT_TOKENS
    same = close if state.shard.weights is not None else np.testing.assert_array_equal
    equal = close if rounds else np.testing.assert_array_equal
    noise, rows, documents = np.random.default_rng(seed), state.rows(extra), state.shard.documents
    new = [
        np.sort(noise.choice(state.topics, noise.integers(0 if length == 0 else 1, state.topics + 1), replace=False))
        for length in state.shard.lengths
    ]
    new_lists = np.cumsum([0, *(chosen_topics.size for chosen_topics in new)]).astype(np.int64)
    new_topic = np.concatenate(new).astype(np.uint16)
    new_starts = starts_of(state.shard.offsets, new_lists)
    share, running = np.full(int(new_starts[-1]), 999, dtype=np.uint16), running_counts(rows)
    count, rest = np.full(new_topic.size, np.nan), np.full(documents, np.nan)
    topics = ActiveTopics(new_lists, new_topic)
    after = ActiveState(new_starts, share, count, rest)
    active_selection.carry(state.pairs, state.active, state.sparse, topics, running, after)
    row_change, rest_change = tokens_of(running.rows, rows["row_topic"]), running.rows.background
    twin, dropped = naive.carry(state.shape, *state.pair_arrays, *state.where, new_lists, new_topic)
    np.testing.assert_array_equal(share, twin)
    equal(row_change, -dropped)
    equal(rest_change, dropped.sum(axis=1))
    # The remainder of a weight in single precision is as precise as the weight.
    weight = rows["background"]
    close(running.rows.background_weight, weight - dropped @ rows["ratio"], atol=1e-6 * np.abs(weight).max(initial=0))

    carried = replace(state, lists=new_lists, topic=new_topic, share=share)
    for found, exact in zip((count, rest), carried.counts, strict=True):
        same(found, exact)
    owner = np.repeat(np.arange(documents), np.diff(new_lists))
    tokens = np.bincount(owner, weights=count, minlength=documents) + rest
    same(tokens, state.shard.weighted_lengths)
    equal(row_change.sum(axis=1) + rest_change, 0.0)
    least = -rounded - 1e-6 * rows["active"].max(initial=0.0) if rounds else 0.0
    assert (rows["active"] + row_change).min(initial=0.0) >= least


@given(listed_shards(), st.sampled_from([0.0, 64.0]))
def test_carry_to_the_same_active_topics__changes_nothing(state, pseudo):
    # a topic without tokens, which is active because of the prior
    start = np.full(state.topic.size if pseudo else 0, pseudo, np.float32)
    share, count, rest = np.full_like(state.share, 999), *(np.full_like(array, np.nan) for array in state.counts)
    rows, stays = state.rows(0.0), np.full_like(start, np.nan)
    running, after = running_counts(rows), ActiveState(state.starts, share, count, rest, stays)
    before = state.sparse._replace(pseudo=start)
    active_selection.carry(state.pairs, state.active, before, state.active, running, after)
    for found, exact in zip((share, count, rest, stays), (state.share, *state.counts, start), strict=True):
        np.testing.assert_array_equal(found, exact)
    for found, exact in zip(running.rows, running_counts(rows).rows, strict=True):
        np.testing.assert_array_equal(found, exact)
