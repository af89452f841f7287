"""Other libraries beside ours: how they are scored, and that each is told."""

import math
import types

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from collapsium.pipeline import compare, topics
from collapsium.pipeline.workflows.compare.baselines.base import Data
from collapsium.pipeline.workflows.compare.baselines.libraries import ALL, HDPS, PEERS, score, with_new
from collapsium.pipeline.workflows.compare.options import LIBRARIES, installed


def test_the_catalogue__names_the_libraries_that_there_are():
    assert set(ALL) == set(LIBRARIES)
    assert {name for name, library in LIBRARIES.items() if library.finds_topics} == set(HDPS)


def test_scores_of_peers__are_means_over_tokens():
    held = Data(np.array([0, 2, 2, 3]), np.array([0, 2, 1]), np.array([3, 1, 2]), 3)
    theta, phi = np.array([[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]]), np.array([[0.5, 0.25, 0.25], [0.2, 0.4, 0.4]])
    expected = (3 * math.log(0.5) + math.log(0.25) + 2 * math.log(0.25 * 0.25 + 0.75 * 0.4)) / 6
    assert score(held, theta, phi) == pytest.approx(expected, rel=1e-14)


@pytest.mark.long
@pytest.mark.parametrize("peer", ["scikit-learn", "gensim", "tomotopy", "topica"])
def test_peers__are_told_beside_ours(small, tmp_path, peer):
    if not installed(LIBRARIES[peer].module):
        pytest.skip(f"{peer} is not installed")
    given = {"families": ("lda",), "topics": (3,), "restarts": 1, "iterations": 6, "samples": 2, "sample_every": 2}
    given.update(heldout=small[1], peers=(peer,), workers=1, settings={peer: {"beta": 3.0}})
    found = compare(small[0], tmp_path / "out", **given)
    (row,) = found.baselines
    assert -20.0 < row["score"] < -1.0
    if peer == "scikit-learn":  # whose fits come out the same wherever they are made
        own = types.SimpleNamespace(topics=3, alpha=0.1, beta=3.0, workers=1, seed=0)
        model = PEERS[peer](Data.read(small[0]), own)
        model.step(6)
        assert row["score"] == pytest.approx(score(Data.read(small[1]), *model.estimate()), rel=1e-6)
    assert row["perplexity"] == math.exp(-row["score"])
    assert row["samples"] == (2 if peer == "tomotopy" else 0)
    assert row["seconds"] > 0
    assert [len(set(words)) for words in row["words"]] == [10, 10, 10]
    text = (tmp_path / "out/peers.md").read_text()
    assert f"| {peer} | 6" in text
    assert f"{row['score']:.4f}" in text
    assert f"{found.rows[0]['score']:.4f}" in text
    ours = [word for word, _ in topics(tmp_path / "out/runs/lda-3")[0].words]
    assert f"1. lda: {' '.join(f'`{word}`' for word in ours)}" in text
    again = []
    assert compare(small[0], tmp_path / "out", sinks=[again.append], **given).baselines == found.baselines
    assert not any(event["event"] == "cell_begins" for event in again)


@pytest.mark.long
@pytest.mark.parametrize("peer", HDPS)
def test_peers_that_find_their_topics__stand_beside_ours(small, tmp_path, peer):
    if not installed(LIBRARIES[peer].module):
        pytest.skip(f"{peer} is not installed")
    given = {"families": ("lda",), "topics": (3,), "restarts": 2, "iterations": 6, "start_topics": (2, 3)}
    given.update(heldout=small[1], peers=(peer,), workers=1, settings={peer: {"beta": 3.0}})
    found = compare(small[0], tmp_path / "out", **given)
    starts = ["from 2 topics", "from 3 topics"] if peer == "tomotopy-hdp" else ["random"]
    assert [row["start"] for row in found.baselines] == starts
    assert all(row["topics"] is None and -20.0 < row["score"] < -1.0 for row in found.baselines)
    assert all(1 <= row["topics_99"] <= len(row["words"]) for row in found.baselines)
    text = (tmp_path / "out/peers.md").read_text()
    assert "## Number of topics determined by the model" in text
    assert f"| lda, K = 3, 2 restarts averaged | 6 | {found.rows[0]['ensemble_score']:.4f} |" in text
    assert all(f"| {peer}{'' if start == 'random' else f', {start}'} | 6 |" in text for start in starts)


@drawn(st.integers(1, 4), st.integers(1, 3), st.floats(0.01, 10), st.floats(0.01, 10), st.integers(0, 2**32 - 1))
def test_a_topic_that_is_not_there_yet__leaves_probabilities(documents, topics, alpha, gamma, seed):
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


def test_peers_that_are_missing_or_fail__are_left_out_with_a_reason(small, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "collapsium.pipeline.workflows.compare.baselines.libraries.installed", lambda name: name != "gensim"
    )
    monkeypatch.setattr("collapsium.pipeline.workflows.compare.baselines.base.sys.executable", "false")
    given = {"families": ("lda",), "topics": (2,), "restarts": 1, "iterations": 2, "peers": ("gensim", "topica")}
    found = compare(small[0], tmp_path / "out", heldout=small[1], **given)
    assert found.left_out == ("gensim-2: gensim is not installed", "topica-2: its process ended with code 1")
    assert found.baselines == ()
    assert "Left out: gensim" in (tmp_path / "out/table.md").read_text()
