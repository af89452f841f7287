"""Comparisons: the measurements of cells, the contents of the files, and the output of the command."""

import json
import math
import statistics
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from collapsium.pipeline import compare, evaluate, fit, topics
from collapsium.pipeline.analysis.metrics.topic_words import coherence
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.reporting.plots.comparison import label_of
from collapsium.storage.runs.members import member_seed
from collapsium.storage.runs.run import Run

pytestmark = pytest.mark.xdist_group("comparing")  # compared models are fitted once


def test_the_table__agrees_with_evaluate_and_the_events(small, compared):
    assert [row["cell"] for row in compared.rows] == ["lda-2", "lda-3", "gibbs-lda-2", "gibbs-lda-3"]
    for row in compared.rows:
        place = Path(compared.folder) / "runs" / row["cell"]
        members = [place / "members/000", place / "members/001"]
        scores = [evaluate(member, heldout=small[1]).score for member in members]
        if row["family"] == "lda":
            events = [
                [event for event in Run(member).events() if event["event"] == "iteration"][-1] for member in members
            ]
            assert row["scores"] == [event["score"] for event in events]
            assert (row["samples"], row["objective"]) == (0, None)
        else:
            assert len(list((members[0] / "members").iterdir())) == row["samples"] == 2
            events = [
                [event for event in Run(member).events() if event["event"] == "iteration"][-1] for member in members
            ]
            assert row["objective"] == statistics.fmean(event["objective"] for event in events)
            assert row["objective_error"] == pytest.approx(np.std([event["objective"] for event in events]))
        np.testing.assert_allclose(row["scores"], scores, rtol=1e-6)
        assert row["score"] == pytest.approx(np.mean(scores), rel=1e-6)
        assert row["score_error"] == pytest.approx(abs(scores[0] - scores[1]) / 2, rel=1e-3)
        assert row["ensemble_score"] == pytest.approx(evaluate(place, heldout=small[1]).score, rel=1e-12)
        assert row["ensemble_score"] > row["score"]
        assert row["perplexity"] == math.exp(-row["score"])
        assert row["npmi"] == np.mean([coherence(member, small[0]).npmi for member in members])
        assert row["diversity"] == np.mean([coherence(member, small[0]).diversity for member in members])
        shares = [sorted((topic.share for topic in topics(member)), reverse=True) for member in members]
        held = [1 + sum(part < 0.99 for part in np.cumsum(sizes) / sum(sizes)) for sizes in shares]
        assert row["topics_99"] == np.mean(held)
        assert 0 < row["seconds"] <= row["cell_seconds"] * 8


@pytest.mark.long
def test_the_fits_of_cells__equal_fit(small, compared, tmp_path):
    options = {"topics": 3, "beta": 3.0, "iterations": 4, "seed": member_seed(3, 1)}
    fit(small[0], tmp_path / "one", family="lda", heldout=small[1], **options)
    last = Run(tmp_path / "one").events()[-2]
    assert compared.rows[1]["scores"][1] == last["score"]


def test_files_of_all_formats__have_the_same_rows(compared):
    place = Path(compared.folder)
    kept = pq.read_table(place / "table.parquet").to_pylist()
    assert kept == [{name: row[name] for name in kept[0]} for row in compared.rows]
    text = (place / "table.md").read_text()
    for row in kept:
        assert f"{row['score']:.4f} ± {row['score_error']:.4f}" in text
    for word in (
        "**Score**: document completion",
        "**Ensemble**",
        "**Perplexity**",
        "standard error",
        "**Seconds**",
        "**npmi**",
    ):
        assert word in text
    assert not (place / "lock").exists()


def test_a_corpus__is_split_if_no_held_out_tokens_are_given(small, tmp_path):
    found = compare(small[0], tmp_path / "out", fraction=0.2, families=("lda",), topics=(2,), restarts=1, iterations=2)
    parts = [json.loads((tmp_path / "out" / name / "manifest.json").read_text()) for name in ("train", "heldout")]
    whole = json.loads((Path(small[0]) / "manifest.json").read_text())
    assert sum(part["tokens"] for part in parts) == whole["tokens"]
    assert 0.1 < parts[1]["tokens"] / whole["tokens"] < 0.3
    assert found.rows[0]["score_error"] is None
    assert found.rows[0]["ensemble_score"] == pytest.approx(found.rows[0]["score"], rel=1e-6)


def test_families_that_find_their_topics__are_reported_with_the_number_found(small, tmp_path):
    options = {"families": ("gibbs-hdp",), "init_topics": (1, 6), "restarts": 1, "iterations": 5}
    found = compare(small[0], tmp_path / "out", heldout=small[1], **options)
    assert [(row["start"], row["topics"]) for row in found.rows] == [("from 1 topic", None), ("from 6 topics", None)]
    assert all(1 <= row["topics_99"] <= 20 for row in found.rows)


@pytest.mark.parametrize(("init", "starts"), [(None, ["quick-clusters", "random"]), ("documents", ["documents"])])
def test_the_start__is_the_initialisation_of_the_fits(small, tmp_path, init, starts):
    options = {"families": ("lda", "gibbs-lda")[: len(starts)], "topics": (2,), "restarts": 1, "iterations": 2}
    found = compare(small[0], tmp_path / "out", heldout=small[1], init=init, **options)
    assert [row["start"] for row in found.rows] == starts
    assert [label_of(row) for row in found.rows] == [f"{family}, K = 2" for family in options["families"]]


def test_texts__describe_the_comparison(small, compared):
    text = (Path(compared.folder) / "table.md").read_text()
    assert f"Corpus: {small[0]}, 60 documents, 30 words; fitted to" in text
    assert f"tokens of {small[1]}. Seed 3." in text
    assert "Options: lda.beta=3.0 gibbs-lda.beta=3.0; defaults otherwise." in text


def test_the_command__prints_the_table_and_says_how_to_continue(small, tmp_path, capsys, monkeypatch):
    words = ["compare", small[0], str(tmp_path / "out dir"), "--heldout", small[1], "--families", "lda"]
    words += [
        "--topics",
        "2,3",
        "--restarts",
        "2",
        "--iterations",
        "3",
        "--set",
        "lda.alpha=0.2/K",
        "--set",
        "lda.beta=3",
    ]

    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("collapsium.pipeline.workflows.compare.measured_row", stopped)
        assert main(words) == 130
    err = capsys.readouterr().err
    assert "lda-2 (1 of 2): 2 fits of 3 iterations" in err
    assert "the finished fits are kept; continue with `collapsium compare " in err
    assert f"'{tmp_path}/out dir' --heldout" in err
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "| lda | quick-clusters | 2 | 2 | 3 |" in out
    assert "lda-3: " in err
    assert "(2 of 2 done)" in err
    assert main([*words, "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    rows = json.loads(out)["cells"]
    assert err == ""
    assert [json.loads(row["options"])["alpha"] for row in rows] == [0.1, 0.2 / 3]
    assert main([*words, "--seed", "1"]) == 2
    assert "error: --seed: the comparison in" in capsys.readouterr().err
    assert main(["compare", small[0], str(tmp_path / "x"), "--topics", "2;3"]) == 2
    assert "--topics: expected whole numbers separated by commas, found '2;3'" in capsys.readouterr().err
    assert main(["compare", small[0], str(tmp_path / "x"), "--set", "alpha=3"]) == 2
    assert "--set: expected FAMILY.OPTION=VALUE, found 'alpha=3'" in capsys.readouterr().err
