"""Checks of the arrays of trees: probabilities by which a document's proportions are divided must be positive."""

from types import SimpleNamespace

import numpy as np
import pytest

from collapsium.storage.errors import DamagedError
from collapsium.workers.arrays.state import CheckContext
from collapsium.workers.families.ncrp.tree import FREE, DocumentEnds

LOCAL = {
    "document_lists": np.array([0, 1, 3]),
    "document_ends": np.array([2, 1, 2], dtype=np.int32),
    "document_masses": np.array([1.0, 0.75, 0.25], dtype=np.float32),
}


def check(masses):
    changed = {**LOCAL, "document_masses": np.array(masses, dtype=np.float32)}
    tree = SimpleNamespace(fitted=SimpleNamespace(node_parent=np.array([-1, 0, 0, FREE])))
    return DocumentEnds.checked(changed, CheckContext({"document": 2, "topic": 4}, tree), "local")


def test_positive_probabilities_of_ends__are_accepted():
    assert check([1.0, 0.75, 0.25]).document_masses.tolist() == [1.0, 0.75, 0.25]


@pytest.mark.parametrize("masses", [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, -0.5, 1.0], [1.0, np.nan, 0.5]])
def test_zero_probabilities_of_ends__are_refused(masses):
    with pytest.raises(DamagedError, match="document_masses"):
        check(masses)
