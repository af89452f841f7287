"""The comparison with other libraries: their scores, and the output of its command."""

import json
import math
import types

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from collapsium.pipeline import topics
from collapsium.storage.errors import OptionError
from tests.benchmarks.comparison import __main__ as command
from tests.benchmarks.comparison.base import Data
from tests.benchmarks.comparison.libraries import (
    ALL,
    HDPS,
    LIBRARIES,
    PEERS,
    installed,
    library_fits,
    score,
    with_new,
)

RECORD = {"topics": [4, 8], "start_topics": [1, 5], "iterations": 20, "samples": 0, "sample_every": 0}


def test_the_catalogue__names_existing_libraries():
    assert set(ALL) == set(LIBRARIES)
    assert {name for name, library in LIBRARIES.items() if library.finds_topics} == set(HDPS)


def test_scores_of_libraries__are_means_over_tokens():
    held = Data(np.array([0, 2, 2, 3]), np.array([0, 2, 1]), np.array([3, 1, 2]), 3)
    theta, phi = np.array([[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]]), np.array([[0.5, 0.25, 0.25], [0.2, 0.4, 0.4]])
    expected = (3 * math.log(0.5) + math.log(0.25) + 2 * math.log(0.25 * 0.25 + 0.75 * 0.4)) / 6
    assert score(held, theta, phi) == pytest.approx(expected, rel=1e-14)


def compared(small, out, peers, *further):
    """The rows of a comparison of other libraries with a fit of lda, by the command."""
    words = [small[0], str(out), "--heldout", small[1], "--families", "lda", "--workers", "1", "--quiet"]
    rows, left_out = command.main([*words, "--iterations", "6", "--peers", peers, *further])
    return [row for row in rows if "baseline" in row], left_out


@pytest.mark.parametrize("peer", ["scikit-learn", "gensim", "tomotopy", "topica"])
def test_the_command__adds_libraries_to_a_comparison(small, tmp_path, peer):
    if not installed(LIBRARIES[peer].module):
        pytest.skip(f"{peer} is not installed")
    options = ("--topics", "3", "--restarts", "1", "--samples", "2", "--sample-every", "2")
    options = (*options, "--peer-set", f"{peer}.beta=3.0")
    ((row,), left_out) = compared(small, tmp_path / "out", peer, *options)
    assert left_out == []
    assert -20.0 < row["score"] < -1.0
    if peer == "scikit-learn":  # libraries whose fits do not depend on the machine
        settings = types.SimpleNamespace(topics=3, alpha=0.1, beta=3.0, workers=1, seed=0)
        model = PEERS[peer](Data.read(small[0]), settings)
        model.step(6)
        assert row["score"] == pytest.approx(score(Data.read(small[1]), *model.estimate()), rel=1e-6)
    assert row["perplexity"] == math.exp(-row["score"])
    assert row["samples"] == (2 if peer == "tomotopy" else 0)
    assert [len(set(words)) for words in row["words"]] == [10, 10, 10]
    text = (tmp_path / "out/peers.md").read_text()
    assert f"| {peer} | 6" in text
    assert f"{row['score']:.4f}" in text
    ours = [word for word, _ in topics(tmp_path / "out/runs/lda-3")[0].words]
    assert f"1. lda: {' '.join(f'`{word}`' for word in ours)}" in text
    assert json.loads((tmp_path / f"out/baselines/{peer}-3.json").read_text()) == row
    assert (tmp_path / "out/plots/score-by-seconds.svg").exists()


@pytest.mark.long
@pytest.mark.parametrize("peer", HDPS)
def test_libraries_that_determine_the_number_of_topics__are_listed_with_collapsium(small, tmp_path, peer):
    if not installed(LIBRARIES[peer].module):
        pytest.skip(f"{peer} is not installed")
    options = ("--topics", "3", "--restarts", "2", "--init-topics", "2,3", "--peer-set", f"{peer}.beta=3.0")
    rows, _ = compared(small, tmp_path / "out", peer, *options)
    starts = ["from 2 topics", "from 3 topics"] if peer == "tomotopy-hdp" else ["random"]
    assert [row["start"] for row in rows] == starts
    assert all(row["topics"] is None and -20.0 < row["score"] < -1.0 for row in rows)
    assert all(1 <= row["topics_99"] <= len(row["words"]) for row in rows)
    text = (tmp_path / "out/peers.md").read_text()
    assert "## Number of topics determined by the model" in text
    assert "| lda, K = 3, 2 restarts averaged | 6 |" in text


@drawn(st.integers(1, 4), st.integers(1, 3), st.floats(0.01, 10), st.floats(0.01, 10), st.integers(0, 2**32 - 1))
def test_smoothing_for_new_topics__gives_valid_probabilities(documents, topics, alpha, gamma, seed):
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 3, (documents, topics)).astype(float)
    theta, phi = with_new(counts, alpha, gamma, generator.dirichlet(np.ones(5), topics))
    assert np.allclose(theta.sum(axis=1), 1.0)
    assert np.allclose(phi.sum(axis=1), 1.0)
    assert (theta[:, -1] > 0).all()
    assert np.allclose(
        theta[:, :-1] * (counts.sum(axis=1, keepdims=True) + alpha) - counts,
        (alpha * (counts > 0).sum(axis=0) / ((counts > 0).sum() + gamma)),
    )


def test_missing_or_failing_libraries__are_left_out_with_a_reason(small, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.benchmarks.comparison.libraries.installed", lambda name: name != "gensim")
    monkeypatch.setattr("tests.benchmarks.comparison.base.sys.executable", "false")
    rows, left_out = compared(small, tmp_path / "out", "gensim,topica", "--topics", "2", "--restarts", "1")
    assert left_out == ["gensim-2: gensim is not installed", "topica-2: its process ended with code 1"]
    assert rows == []
    assert "Left out: gensim" in (tmp_path / "out/peers.md").read_text()


def test_fits_of_libraries_that_determine_the_number_of_topics__differ_in_their_initial_topics():
    fits = library_fits(("tomotopy-hdp", "gensim-hdp", "topica"), RECORD, {})
    assert [(fit.name, fit.topics, fit.start_topics) for fit in fits] == [
        ("tomotopy-hdp-from-1", None, 1),
        ("tomotopy-hdp-from-5", None, 5),
        ("gensim-hdp", None, 1),
        ("topica-4", 4, 4),
        ("topica-8", 8, 8),
    ]


def test_fits_of_libraries__have_their_own_options_and_divide_by_k():
    settings = {"tomotopy": {"optim_interval": 10}, "topica": {"sampler": "warp"}, "gensim": {"alpha": "1/K"}}
    fits = {fit.name: fit.options for fit in library_fits(("tomotopy", "topica", "gensim"), RECORD, settings)}
    assert [fits[f"{name}-4"].get("optim_interval") for name in settings] == [10, None, None]
    assert [fits[f"{name}-4"].get("sampler") for name in settings] == [None, "warp", None]
    assert [fits[f"gensim-{count}"]["alpha"] for count in (4, 8)] == [0.25, 0.125]


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        (("sklearn",), {}, r"unknown library 'sklearn' .did you mean 'scikit-learn'"),
        (("gensim",), {"gensim": {"passes": 2}}, "gensim.passes: unknown option of 'gensim'"),
        (("gensim",), {"gensim": {"alpha": "x"}}, "gensim.alpha: expected a number"),
        (("topica",), {"topica": {"sampler": 3}}, "topica.sampler: expected a string, found 3"),
    ],
)
def test_unknown_libraries_and_options__are_refused(names, settings, message):
    with pytest.raises(OptionError, match=message):
        library_fits(names, RECORD, settings)
