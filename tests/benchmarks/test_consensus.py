"""The command that compares consensuses with their members."""

import pytest

from collapsium.pipeline import fit
from tests.benchmarks import consensus


@pytest.mark.long
def test_the_table__has_scores_and_stability_for_disjoint_seeds(small, tmp_path, capsys):
    runs = [str(tmp_path / str(seed)) for seed in (0, 1)]
    options = {"family": "lda", "topics": 3, "iterations": 4, "restarts": 2, "combine": "consensus"}
    for seed, run in enumerate(runs):
        fit(small[0], run, seed=seed, **options)
    row = consensus.measure(small[1], runs)
    assert row["worst"] <= row["mean"] <= row["best"]
    assert row["averaged"] >= row["mean"]
    assert 0.0 < row["consensus_stability"] <= 1.0
    consensus.main([small[1], *runs])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert len({line.count("|") for line in lines}) == 1
    with pytest.raises(SystemExit, match="different seeds"):
        consensus.main([small[1], runs[0], runs[0]])
