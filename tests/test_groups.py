"""Tests of a group run in one process, as what they look at is then made once."""

import pytest


@pytest.mark.xdist_group("of tests that are looked at")
def test_groups__are_a_part_of_the_names_that_processes_deal_out(request):
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("tests are not dealt out by group")
    assert request.node.nodeid.endswith("@of tests that are looked at")
