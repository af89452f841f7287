"""The experiments on labels: how topics and weights are matched and compared, and a tiny run of a command."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks import labels
from tests.benchmarks.labels_drawing import Found, Truth, agreement, bags, centred, matched, pooled, sticks
from tests.benchmarks.labels_synthetic import bars, spread


@pytest.fixture
def truth():
    return Truth(np.full(5, 0.2), spread(), bars())


def test_bars_and_weights__have_the_documented_shapes_and_values():
    topics, weights = bars(), spread()
    assert topics.shape == (5, 10)
    assert np.allclose(topics.sum(axis=1), 1.0)
    assert np.allclose(np.sort(weights, axis=None), np.geomspace(0.1, 10.0, 20))


@given(seed=st.integers(0, 1000))
def test_a_topic_found_twice__counts_once(seed):
    truth, generator = Truth(np.full(5, 0.2), spread(), bars()), np.random.default_rng(seed)
    part = generator.uniform(0.1, 0.9)
    order = generator.permutation(6)
    source = np.array([0, 1, 2, 3, 4, 4])
    share = np.array([0.2, 0.2, 0.2, 0.2, 0.2 * part, 0.2 * (1.0 - part)])
    scales = generator.normal(0.0, 2.0, (4, 1))
    found = Found(
        share[order], truth.topics[source[order]], np.log(truth.weights)[:, source[order]] + scales, np.full(6, 9.0)
    )
    matches, far = matched(truth, found)
    assert np.array_equal(source[order][matches], np.arange(5))
    assert far.max() < 1e-9
    score = agreement(truth, pooled(truth, found))
    assert score["rho"] > 1.0 - 1e-9
    assert score["mae"] < 1e-6


@given(seed=st.integers(0, 1000), least=st.sampled_from([0.0, 0.05]))
def test_simulated_documents__follow_the_weights(seed, least):
    generator = np.random.default_rng(seed)
    share = sticks(3, 2.0, generator, least)
    truth = Truth(share, np.array([[1e9, 1.0, 1.0]]), np.eye(3))
    assert share.sum() == pytest.approx(1.0)
    assert share.min() >= least
    counts, theta = bags(truth, np.array([[True]] * 5), 20, 50.0, generator)
    assert theta.shape == (5, 3)
    if least:
        assert (counts[:, 0] == counts.sum(axis=1)).all()


def test_centring__removes_the_scale_of_each_label(truth):
    log = np.log(truth.weights)
    assert np.allclose(centred(log + np.arange(4.0)[:, np.newaxis]), centred(log))


@pytest.mark.long
def test_a_tiny_experiment__writes_a_table(tmp_path, capsys):
    out = tmp_path / "out"
    labels.main(["synthetic", str(out), "--documents", "30", "--seeds", "1", "--restarts", "2"])
    rows = json.loads((out / "synthetic.json").read_text())["rows"]
    assert len(rows) == 1
    assert -1.0 <= rows[0]["rho"] <= 1.0
    assert (out / "synthetic.md").read_text().startswith("| seed")
    assert "1 seeds" in capsys.readouterr().out
