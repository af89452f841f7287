"""The size of documents' active sets, and the selection of their topics."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.families.cvb.active_topics import (
    BASE_ROOM,
    MAX_COMPLETE_TOPICS,
    MAX_RESPONSIBILITIES,
    MIN_LONG_ROOM,
    MIN_ROOM,
    MIN_TOKENS,
    PAIRS_PER_TOPIC,
    begins_complete,
    carry,
    document_chunks,
    max_active,
    max_active_for,
    max_small,
    select,
)
from collapsium.workers.families.cvb.global_state import SCORED_GROUPS, SMALL_SETS, SmallActiveSets
from collapsium.workers.families.cvb.parameters import ActiveSettings, Parameters, SweptRows
from collapsium.workers.families.cvb.states import CollapsedRows
from tests.naive import active as naive
from tests.workers.kernels.cvb.listed import listed_shards

TOPICS, MOST = st.integers(1, 3000), st.sampled_from([0, 0, 1, 5, 24, 200, 5000])


def offsets_of(lengths):
    return np.concatenate([[0], np.cumsum(np.array(lengths, dtype=np.int64))]).astype(np.int64)


@given(st.lists(st.integers(0, 2000), max_size=6), TOPICS, MOST)
def test_max_active__is_the_limit_that_max_active_for_gives_each_document(lengths, topics, limit):
    found = max_active(offsets_of(lengths), topics, limit)
    assert found.dtype == np.int64
    assert found.tolist() == [min(max_active_for(length, topics, limit), topics) for length in lengths]
    assert ((found >= 1) & (found <= topics)).all()
    if limit:
        assert (found == min(limit, topics)).all()


SHORT = MAX_RESPONSIBILITIES // MAX_COMPLETE_TOPICS  # documents with at most this many pairs are not long


@given(st.integers(0, SHORT), st.integers(0, SHORT), TOPICS, MOST)
def test_max_active__does_not_shrink_with_pairs_of_short_documents(first, second, topics, limit):
    found = max_active(offsets_of(sorted((first, second))), topics, limit)
    assert found[0] <= found[1]


@given(st.integers(SHORT, 10**6), st.integers(SHORT, 10**6), TOPICS, MOST)
def test_max_active__limits_the_responsibilities_of_long_documents(first, second, topics, limit):
    lengths = sorted((first, second))
    found = max_active(offsets_of(lengths), topics, limit)
    assert limit or ((found <= MIN_LONG_ROOM) | (found * lengths <= MAX_RESPONSIBILITIES)).all()
    assert (found >= min(topics, limit or MIN_LONG_ROOM)).all()


@given(st.integers(0, SHORT), st.integers(1, MAX_COMPLETE_TOPICS))
def test_max_active__allows_all_topics_if_there_are_few(pairs, topics):
    assert max_active(offsets_of([pairs]), topics, 0).tolist() == [topics]


def test_begins_complete__depends_on_the_documents_with_most_of_the_pairs():
    assert begins_complete(np.array([SHORT, SHORT, 2 * SHORT]), MAX_COMPLETE_TOPICS, 0)
    assert not begins_complete(np.array([SHORT, 2 * SHORT]), MAX_COMPLETE_TOPICS, 0)
    assert not begins_complete(np.array([SHORT, SHORT]), MAX_COMPLETE_TOPICS + 1, 0)
    assert begins_complete(np.array([10**6]), MIN_LONG_ROOM, 0)
    assert begins_complete(np.zeros(0, dtype=np.int64), 5, 0)
    assert not begins_complete(np.array([9]), 20, 10)


@pytest.mark.parametrize(
    ("pairs", "topics", "limit", "expected"),
    [
        (0, MAX_COMPLETE_TOPICS, 0, MAX_COMPLETE_TOPICS),
        (0, MAX_COMPLETE_TOPICS + 1, 0, MIN_ROOM),
        (4 * PAIRS_PER_TOPIC - 1, 1000, 0, MIN_ROOM),
        (44 * PAIRS_PER_TOPIC - 1, 1000, 0, MIN_ROOM),
        (44 * PAIRS_PER_TOPIC, 1000, 0, MIN_ROOM + 8),
        (85 * PAIRS_PER_TOPIC, 1000, 0, BASE_ROOM + 88),
        (10**6, 1000, 0, MIN_LONG_ROOM),
        (4096, 1000, 0, 24),
        (4500, 40, 0, 16),
        (4500, 10, 0, 10),
        (10**6, 1000, 30, 30),
        (3, 1000, 30, 30),
        (3, 20, 30, 20),
        (3, 100, 30, 30),
    ],
)
def test_max_active__examples(pairs, topics, limit, expected):
    assert max_active(offsets_of([pairs]), topics, limit).tolist() == [expected]


def test_max_active__is_the_same_in_the_plan_of_a_fit():
    """A plan passes the documents' mean length, which need not be an integer."""
    for topics in (5, 1000):
        assert max_active_for(20.9, topics, 0) == max_active_for(20, topics, 0)


# Selection -----------------------------------------------------------------------------------------------------------


def parameters_of(state, rows, max_topics=0):
    """Return parameters for a shard of `listed_shards`."""
    topics, total = state.topics, 20.0
    settings = ActiveSettings(
        max_topics=max_topics, inverse_temperature=1.0, annealed=True, momentum=0.0, totals=rows["totals"] - total, even=rows["even"],
        weight=rows["weight"], following=np.ones(topics),
    )  # fmt: skip
    return Parameters(rows["a"], float(rows["a"].sum()), rows["b"], total, active=settings)


def single_chunk(state):
    """Return all documents as one chunk."""
    count, rest = state.counts
    local = {"document_lists": state.lists, "document_topics": state.topic, "document_counts": count}
    return next(document_chunks(state.shard, {**local, "document_rest": rest, "pair_shares": state.share}))


def working_of(state, rows, parameters):
    return SweptRows(state.shard, CollapsedRows(word_active=rows["active"], word_rest=rows["rest"]), parameters)


@given(listed_shards(), st.sampled_from([0.0, 50.0]), st.integers(0, 6))
def test_select__returns_sorted_active_sets_within_their_limits(state, extra, limit):
    rows = state.rows(extra)
    parameters = parameters_of(state, rows, limit)
    topic, sizes = select(single_chunk(state), working_of(state, rows, parameters), parameters)
    assert (topic.dtype, sizes.dtype) == (np.uint16, np.int64)
    assert topic.size == sizes.sum()
    lengths = np.diff(state.shard.offsets)
    assert (sizes <= max_active(state.shard.offsets, state.topics, limit)).all()
    np.testing.assert_array_equal(sizes > 0, lengths > 0)  # empty documents have no active topics, all others have some
    for chosen in np.split(topic.astype(np.int64), np.cumsum(sizes)[:-1]):
        assert (np.diff(chosen) > 0).all()
        assert (chosen < state.topics).all()


@given(listed_shards(), st.sampled_from([0.0, 50.0]), st.integers(0, 7), st.sampled_from(list(SmallActiveSets)))
def test_select__limits_the_active_sets_of_the_groups_that_the_trial_chose(state, extra, first, small):
    rows = state.rows(extra)
    plain = parameters_of(state, rows)
    parameters = replace(plain, active=replace(plain.active, small_sets=small))
    chunk, working = replace(single_chunk(state), document=first), working_of(state, rows, plain)
    found, expected = select(chunk, working, parameters), select(chunk, working, plain)
    limits = max_active(state.shard.offsets, state.topics, 0)
    group = (first + np.arange(limits.size)) % SCORED_GROUPS
    is_small = {0: group < 0, 1: np.isin(group, SMALL_SETS), 2: group >= 0}[small]
    assert (found[1][is_small] <= max_small(limits)[is_small]).all()
    for small_set, full_set, kept in zip(
        *(np.split(topic, np.cumsum(sizes)) for topic, sizes in (found, expected)), [*~is_small, True], strict=True
    ):
        assert set(small_set.tolist()) <= set(full_set.tolist())
        assert not kept or small_set.tolist() == full_set.tolist()


@given(listed_shards(), st.sampled_from([0.0, 50.0]))
def test_select__retains_topics_with_more_than_their_prior(state, extra):
    """A topic stays active if its count exceeds both its prior and MIN_TOKENS, provided that the document may have all
    topics active."""
    rows = state.rows(extra)
    parameters = parameters_of(state, rows)
    topic, sizes = select(single_chunk(state), working_of(state, rows, parameters), parameters)
    chosen = [set(topics.tolist()) for topics in np.split(topic, np.cumsum(sizes)[:-1])]
    owner = np.repeat(np.arange(state.shard.documents), np.diff(state.lists))
    for document, k, count in zip(owner, state.topic, state.counts[0], strict=True):
        if count > max(rows["a"][k], MIN_TOKENS) * (1 + 1e-5):
            assert int(k) in chosen[document]


@given(listed_shards(), st.sampled_from([0.0, 50.0]), st.data())
def test_carry__moves_the_counts_of_dropped_topics_to_the_background(state, extra, data):
    rows = state.rows(extra)
    parameters = parameters_of(state, rows)
    chunk, working = single_chunk(state), working_of(state, rows, parameters)
    new = [
        sorted(data.draw(st.sets(st.integers(0, state.topics - 1)))) if length else []
        for length in np.diff(state.shard.offsets)
    ]
    topic = np.array([k for active in new for k in active], dtype=np.uint16)
    after = carry(chunk, working, (topic, np.array([len(active) for active in new], dtype=np.int64)))
    np.testing.assert_array_equal(after.active.topics, topic)
    before_counts, before_rest = naive.word_counts(state.shape, *state.pair_arrays, *state.where)
    where = *after.active, after.state.starts, after.state.responsibilities
    counts, rest = naive.word_counts(state.shape, *state.pair_arrays, *where)
    changes = {name: part.values for name, part in working.changes().items()}
    np.testing.assert_array_equal(changes["word_active"], counts - before_counts)
    np.testing.assert_array_equal(changes["word_rest"], rest - before_rest)
    assert (changes["word_active"] <= 0.0).all()
    tokens = naive.document_counts(state.shard.offsets, state.shard.counts, *where)
    np.testing.assert_array_equal(after.state.counts, tokens[0])
    np.testing.assert_array_equal(after.state.background, tokens[1])
    # Topics that stay active retain their responsibilities.
    old = {
        (d, int(k)): q[:, j] for d, (_, active, q) in enumerate(documents(state, chunk)) for j, k in enumerate(active)
    }
    for d, (_, active, q) in enumerate(documents(state, after)):
        for j, k in enumerate(active):
            np.testing.assert_array_equal(q[:, j], old.get((d, int(k)), np.zeros(len(q))))


def documents(state, chunk):
    where = *chunk.active, chunk.state.starts, chunk.state.responsibilities
    return naive.documents(state.shard.offsets, *where)


@given(listed_shards())
def test_carry__to_the_same_active_topics_changes_nothing(state):
    rows = state.rows(0.0)
    chunk, working = single_chunk(state), working_of(state, rows, parameters_of(state, rows))
    assert carry(chunk, working, (state.topic, np.diff(state.lists))) is chunk
    assert not any(part.values.any() for part in working.changes().values())
