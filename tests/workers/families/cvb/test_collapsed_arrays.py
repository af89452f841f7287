"""Checks of collapsed topics from disk: a topic that occurs twice among sticks or merge candidates is refused."""

from dataclasses import replace

import numpy as np
import pytest

from collapsium.pipeline.models.registry import recorded_family
from collapsium.storage.errors import DamagedError
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.arrays.state import CheckContext
from collapsium.workers.families.cvb.global_state import HdpGlobalState, MovesState
from collapsium.workers.families.family import Summary


def state():
    """The initial state of a fit with split-merge moves."""
    family, none = recorded_family("hdp", {"topics": 3}), np.zeros((2, 0), dtype=np.int64)
    moves = MovesState(
        topic_alive=np.ones(3, dtype=bool),
        moves_into=np.arange(3),
        moves_split=np.full(3, -1),
        merge_candidates=none,
        delete_candidates=np.array([0, 2]),
        delete_spill=np.zeros((2, 3)),
        moves_last=9,
        moves_best=-1.0,
        split_pairs=none,
    )
    return replace(family.initialise(Summary(20, 8, 200), Stream(1)), moves=moves)


def check(global_state):
    return HdpGlobalState.checked(global_state.to_arrays(), CheckContext({}), "global_state")


def test_distinct_topics__are_accepted():
    documents = state()
    assert check(documents).moves is not None
    assert check(replace(documents, moves=None)).moves is None


def test_topics_that_occur_twice__are_refused():
    """A kernel would index memory by the second occurrence that is only filled for the first."""
    documents = state()
    with pytest.raises(DamagedError, match="expected each topic once in 'stick_order'"):
        check(replace(documents, stick_order=np.array([1, 1, 2])))
    moves = replace(documents.moves, delete_candidates=np.array([0, 0]))
    with pytest.raises(DamagedError, match="expected each topic once in 'delete_candidates'"):
        check(replace(documents, moves=moves))


def test_incomplete_moves__are_refused():
    arrays = {name: values for name, values in state().to_arrays().items() if name != "moves_into"}
    with pytest.raises(DamagedError, match="moves_into: the array is missing"):
        HdpGlobalState.checked(arrays, CheckContext({}), "global_state")
