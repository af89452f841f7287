"""A short run of the kills of real workers, schedulers and drivers; `make chaos` kills a hundred processes."""

import pytest

from tests.chaos.kills import main


@pytest.mark.long
def test_a_run_whose_processes_are_killed__ends_with_the_same_bits(capsys):
    assert main(["2", "1"]) == 0
    assert "2 killed" in capsys.readouterr().out
