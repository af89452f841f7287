"""Blocks of the vocabulary, and deltas of a group that wait to be added."""

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from collapsium.pipeline.engine.state import (
    BLOCK_BYTES,
    GROUP_SHARDS,
    MOST_WAITING,
    WAITING_BYTES,
    block_bounds,
    most_from_elsewhere,
    waiting_deltas,
)
from collapsium.workers.families.family import Footprint


def footprint(shown):
    return Footprint(rows=2 * shown, shown=shown, swept=shown, delta=shown, pair=1, document=1, chunk=1)


@given(st.integers(1, 3_000_000), st.floats(1, 1.6e6))
def test_block_bounds__cover_the_vocabulary_once_in_blocks_of_bounded_size(words, shown):
    """Rows have up to 65535 topics, the most that 16 bits can index, with variances."""
    assume(words * shown < 1e12)
    found = block_bounds(words, footprint(shown))
    assert (found[0], found[-1]) == (0, words)
    sizes = np.diff(found)
    assert sizes.min() >= 1  # no block is empty, and each word is in exactly one
    assert sizes.sum() == words
    assert sizes.max() - sizes.min() <= 1
    assert (sizes.max() - 1) * shown <= BLOCK_BYTES
    # there are no more blocks than necessary
    assert len(sizes) == 1 or words * shown / (len(sizes) - 1) > BLOCK_BYTES * (1 - 1e-9)


@given(st.integers(1, 10**6), st.floats(1, 1e5))
def test_waiting_deltas__take_bounded_memory(words, delta):
    found = waiting_deltas(words, footprint(delta))
    assert 1 <= found <= MOST_WAITING
    assert found == 1 or found * words * delta <= WAITING_BYTES


@given(st.integers(1, 100), st.integers(1, 9))
def test_most_from_elsewhere__counts_deltas_of_groups_that_began_in_another_process(shards, processes):
    process_of, group = [number * processes // shards for number in range(shards)], GROUP_SHARDS
    waiting = [
        sum(process_of[number // group * group] != process_of[number] == process for number in range(shards))
        for process in range(processes)
    ]
    assert most_from_elsewhere(shards, processes) == max(waiting)


def test_block_bounds__leave_a_small_vocabulary_whole():
    assert block_bounds(7000, footprint(8000)) == (0, 7000)
    assert block_bounds(1, footprint(1e6)) == (0, 1)
    assert block_bounds(16_001, footprint(4000)) == (0, 8000, 16_001)
