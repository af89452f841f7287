"""The benchmark of loading runs, and has a row for each kind of state."""

import sys

import pytest

from tests.benchmarks import loads


@pytest.mark.long
def test_loads__prints_the_shares_of_checks(tmp_path, monkeypatch, capsys):
    words = ["loads", str(tmp_path), "gibbs-lda", "--tokens", "20000", "--topics", "5", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", words)
    loads.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(loads.CASES["gibbs-lda"])
    assert all(row.count("|") == lines[0].count("|") for row in lines)
