"""Declared arrays of collapsed topics: what the rules between them refuse."""

import numpy as np
import pytest

from collapsium.workers.arrays.array_fields import CheckContext
from collapsium.workers.families.topic_arrays import hdp_sticks


def sticks(**changed):
    """The arrays of sticks and candidates."""
    none = np.zeros(0)
    sound = {"stick_order": np.array([2, 0, 1]), "stick_posterior": none.reshape(0, 2), "beta_posterior": none}
    return {**sound, "delete_candidates": np.array([0, 2]), **changed}


def test_distinct_topics__are_sound():
    assert hdp_sticks(sticks(), CheckContext({})) is None
    without = {name: values for name, values in sticks().items() if name != "delete_candidates"}
    assert hdp_sticks(without, CheckContext({})) is None


@pytest.mark.parametrize("name", ["stick_order", "delete_candidates"])
def test_topics_that_come_twice__are_refused(name):
    """A kernel would index by the second of them what is only filled for the first."""
    fault = hdp_sticks(sticks(**{name: np.array([1, 1, 2])}), CheckContext({}))
    assert fault == f"expected each topic once in '{name}'"
