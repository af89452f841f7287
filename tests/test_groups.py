"""Tests of a module or group run in one process, so that shared fixtures are built once."""

import pytest

from tests.scheduling import ModuleScheduling


def test_modules_and_groups__stay_together():
    scope_of = object.__new__(ModuleScheduling)._split_scope
    assert scope_of("tests/storage/test_it.py::TestIt::test_it[a::b]") == "tests/storage/test_it.py"
    assert scope_of("tests/storage/test_it.py::test_it[a]@clusters") == "clusters"


@pytest.mark.xdist_group("looked at")
def test_groups__are_part_of_the_node_ids_that_xdist_distributes(request):
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("tests are not dealt out by group")
    assert request.node.nodeid.endswith("@looked at")
