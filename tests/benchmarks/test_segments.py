"""The experiments on segments: their texts, their metrics, and a tiny run of a command."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks import segments
from tests.benchmarks.segments_texts import body, neighbours


def test_papers__lose_heads_references_and_hyphens():
    text = "A Title \nAn Author \nAbstract \nWe learn net- \nworks. References to others abound. And so on and on. \n"
    assert body(text + "References \n[1] Somebody 1990").strip() == text[text.index("We") :].replace("- \n", "").strip()
    assert body("No such thing") == "No such thing"


@given(st.integers(0, 1000))
def test_distances_of_neighbours__are_at_most_one(seed):
    theta = np.random.default_rng(seed).dirichlet(np.full(4, 0.3), 6)
    assert 0.0 <= neighbours(theta) <= 1.0
    assert neighbours(np.tile(theta[:1], (3, 1))) == pytest.approx(0.0, abs=1e-7)
    assert neighbours(np.eye(4)) == pytest.approx(1.0)


@pytest.mark.long
def test_a_tiny_experiment__writes_a_table(tmp_path, capsys):
    out = tmp_path / "out"
    sizes = {"documents": 20, "segments": 4, "tokens": 30, "topics": 2, "words": 20, "iterations": 20, "seeds": 1}
    segments.main(["planted", str(out), *(str(word) for name, size in sizes.items() for word in (f"--{name}", size))])
    rows = json.loads((out / "planted.json").read_text())["rows"]
    assert [row["family"] for row in rows] == ["segmented-lda", "sequential-lda"]
    assert all(0.0 < row["segments"] < 1.0 and row["found b"] > 0.0 for row in rows)
    assert (out / "planted.md").read_text().startswith("| family")
    assert "seeds hold" in capsys.readouterr().out
