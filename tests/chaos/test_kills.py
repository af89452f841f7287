"""Kills of real workers, schedulers and drivers, in a short form; `make chaos` kills a hundred."""

import pytest

from tests.chaos.kills import main


@pytest.mark.long
def test_a_run_under_fire__ends_with_the_same_bits(capsys):
    assert main(["2", "1"]) == 0
    assert "2 killed" in capsys.readouterr().out
