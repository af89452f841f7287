from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collapsium.workers.arrays.spill import SpillFiles, spill
from collapsium.workers.families.cvb import active_topics as module
from collapsium.workers.families.cvb import split_merge
from collapsium.workers.families.cvb.active_topics import LocalStateBuilder, chunk_bounds, document_chunks, starts_of
from collapsium.workers.families.cvb.global_state import SCORED_GROUPS
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics
from tests.naive import topic_moves as naive
from tests.workers.families.cvb.test_active_topics import parameters_of, working_of
from tests.workers.kernels.cvb.listed import held_out, listed_shards

SIZES = [1, 3, 40, 1 << 24]  # responsibilities per chunk: from one document per chunk to all documents in one


def local_of(state):
    """Return a shard's local state."""
    count, rest = state.counts
    local = {"document_lists": state.lists, "document_topics": state.topic, "document_counts": count}
    return {**local, "document_rest": rest, "pair_shares": state.share, "age": np.array(3)}


def check_equal(found, expected):
    assert set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
        assert found[name].dtype == values.dtype
        assert found[name].shape == values.shape


def arrays_of(chunk):
    """Return a chunk's arrays by name."""
    offsets, position, counts, _ = chunk.pairs
    lists, topic = chunk.active
    _, share, count, rest, _ = chunk.state
    arrays = {"offsets": offsets, "position": position, "counts": counts, "lists": lists, "topic": topic}
    return {**arrays, "share": share, "count": count, "rest": rest}


def without_last_topics(chunk):
    """Return a chunk without the last active topic of each document."""
    offsets, topics = chunk.active
    starts, responsibilities, counts, background, _ = chunk.state
    keep = np.ones(topics.size, dtype=bool)
    keep[offsets[1:][np.diff(offsets) > 0] - 1] = False
    lists = np.concatenate([[0], np.cumsum(keep)])[offsets].astype(np.int64)
    pieces = []
    for (first, last), (low, high), at in zip(pairwise(chunk.pairs.offsets), pairwise(offsets), starts, strict=False):
        share = responsibilities[at : at + (last - first) * (high - low)].reshape(last - first, high - low)
        pieces.append(share[:, :-1].ravel())
    share = np.concatenate([np.zeros(0, dtype=np.uint16), *pieces])
    state = ActiveState(starts_of(chunk.pairs.offsets, lists), share, counts[keep], background)
    return replace(chunk, active=ActiveTopics(lists, topics[keep]), state=state)


def rebuilt(shard, before, change, age=4):
    """Change each chunk of a local state, and build a new local state of the changed chunks."""
    changed = [change(chunk) for chunk in document_chunks(shard, before)]
    after = LocalStateBuilder(
        shard, before, [(chunk.active.topics, np.diff(chunk.active.offsets)) for chunk in changed], same=False
    )
    for chunk in changed:
        allocated = after.allocate(chunk)
        for values, given_ in zip(allocated[1:], chunk.state[1:], strict=True):
            values[:] = given_
        after.add(replace(chunk, state=ActiveState(*allocated)))
    return after.finish(age)


@given(listed_shards(), st.sampled_from(SIZES))
def test_chunk_bounds__cover_all_documents_in_chunks_as_long_as_allowed(state, size):
    starts = starts_of(state.shard.offsets, state.lists)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_RESPONSIBILITIES", size)
        runs = chunk_bounds(state.shard.offsets, state.lists)
    assert [first for first, _ in runs] == [0, *(last for _, last in runs[:-1])]
    assert runs[-1][1] == state.shard.documents
    for first, last in runs:
        assert last > first
        assert starts[last] - starts[first] <= size or last == first + 1
        if last < state.shard.documents:
            assert starts[last + 1] - starts[first] > size


@given(listed_shards(), st.sampled_from(SIZES), st.booleans())
def test_document_chunks__contain_all_documents_in_order(tmp_path, state, size, on_disk):
    local = local_of(state)
    before = spill(local, str(tmp_path)) if on_disk else local
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_RESPONSIBILITIES", size)
        found = list(document_chunks(state.shard, before))
    for name, values in {
        "position": state.shard.position,
        "counts": state.shard.counts,
        "topic": state.topic,
        "count": local["document_counts"],
        "rest": local["document_rest"],
        "share": state.share,
    }.items():
        joined = np.concatenate([arrays_of(chunk)[name] for chunk in found])
        np.testing.assert_array_equal(joined, values)
        assert joined.dtype == values.dtype
    for chunk in found:
        offsets, lists, starts = chunk.pairs.offsets, chunk.active.offsets, chunk.state.starts
        assert offsets[0] == lists[0] == starts[0] == 0
        assert offsets.size == lists.size == chunk.state.background.size + 1
        sizes = chunk.pairs.counts.size, chunk.active.topics.size, chunk.state.responsibilities.size
        assert (offsets[-1], lists[-1], starts[-1]) == sizes
    for name, values in (("offsets", state.shard.offsets), ("lists", state.lists)):
        sizes = np.concatenate([np.diff(arrays_of(chunk)[name]) for chunk in found])
        np.testing.assert_array_equal(sizes, np.diff(values))


@given(listed_shards(), st.sampled_from(SIZES), st.booleans(), st.booleans())
def test_local_state_builder__assembles_the_arrays_of_its_chunks(tmp_path, state, size, on_disk, same):
    local = local_of(state)
    before = spill(local, str(tmp_path)) if on_disk else local
    noise = np.random.default_rng(0)
    expected = {**local, "age": np.array(4)}
    for name in module.SWEPT_ARRAYS:
        expected[name] = noise.integers(0, 9, local[name].size).astype(local[name].dtype)
    done = dict.fromkeys(module.SWEPT_ARRAYS, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_RESPONSIBILITIES", size)
        lists = [(chunk.active.topics, np.diff(chunk.active.offsets)) for chunk in document_chunks(state.shard, before)]
        after = LocalStateBuilder(state.shard, before, [] if same else lists, same=same)
        for chunk in document_chunks(state.shard, before):
            allocated = after.allocate(chunk)
            for name, values, old in zip(module.SWEPT_ARRAYS, allocated[1:4], chunk.state[1:4], strict=True):
                assert (values.dtype, values.shape) == (old.dtype, old.shape)
                values[:] = expected[name][done[name] : done[name] + values.size]
                done[name] += values.size
            after.add(replace(chunk, state=ActiveState(*allocated)))
        found = after.finish(4)
    assert isinstance(found, SpillFiles) == on_disk
    check_equal(found, expected)
    check_equal(before, local)


@given(listed_shards(), st.sampled_from(SIZES), st.sampled_from(SIZES))
def test_local_state_builder__gives_the_same_arrays_in_memory_and_on_disk_for_any_chunk_size(
    tmp_path, state, size, chunk_size
):
    local = local_of(state)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_RESPONSIBILITIES", size)
        memory = rebuilt(state.shard, local, without_last_topics)
        patch.setattr(module, "CHUNK_RESPONSIBILITIES", chunk_size)
        disk = rebuilt(state.shard, spill(local, str(tmp_path)), without_last_topics)
    assert isinstance(memory, dict)
    assert isinstance(disk, SpillFiles)
    check_equal(disk, memory)
    np.testing.assert_array_equal(np.diff(memory["document_lists"]), np.maximum(np.diff(state.lists) - 1, 0))
    starts = starts_of(state.shard.offsets, memory["document_lists"])
    assert memory["pair_shares"].size == starts[-1]
    check_equal(local, local_of(state))


@given(listed_shards())
def test_a_single_chunk__consists_of_views(state):
    """In memory nothing is copied: a sweep reads the arrays of the local state itself."""
    local = local_of(state)
    (chunk,) = document_chunks(state.shard, local)
    assert (chunk.document, chunk.pair) == (0, 0)
    assert all(isinstance(values, np.ndarray) for values in arrays_of(chunk).values())
    for values, name in ((chunk.state.responsibilities, "pair_shares"), (chunk.active.topics, "document_topics")):
        assert np.shares_memory(values, local[name]) or values.size == 0


@given(listed_shards(), st.sampled_from(SIZES), st.sampled_from([0.0, 50.0]))
def test_held_out_tokens__are_scored_by_the_group_of_their_document(state, size, extra):
    """Groups depend on the document's index in its shard, however the shard is cut into chunks; scores equal the naive
    version's."""
    rows = state.rows(extra)
    parameters = parameters_of(state, rows)
    working, held = working_of(state, rows, parameters), held_out(state.shard, 7, 0.5)
    sums = split_merge.HeldScore(held, np.zeros(0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_RESPONSIBILITIES", size)
        for chunk in document_chunks(state.shard, local_of(state)):
            sums.add(chunk, working, parameters)
    found = sums.parts()["search_score"].values
    group = np.repeat(np.arange(state.shard.documents), np.diff(state.shard.offsets)) % SCORED_GROUPS
    counts, of_topics = working.topics.rows.astype(np.float64), working.topics.totals
    assert found.shape == (2, SCORED_GROUPS)
    for place in range(SCORED_GROUPS):
        some = np.where(group == place, held, 0)
        given_ = (
            *state.pair_arrays[:2],
            some,
            state.lists,
            state.topic,
            *state.counts,
            rows["a"],
            rows["b"],
            of_topics,
            counts,
        )
        np.testing.assert_allclose(found[:, place], naive.score(*given_), rtol=1e-6, atol=1e-9)
