"""Conformance of the segmented topic model, and its limits for large and small b."""

import numpy as np
import pytest

from collapsium.pipeline import explode, fit, simulate, split
from collapsium.pipeline.models.registry import make_family, make_options
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import Summary
from collapsium.workers.families.networks.family import draw_vectors
from collapsium.workers.families.networks.graph import graph_of
from tests.conformance import references  # noqa: F401 - fixture
from tests.fits import scores_of
from tests.networks import NetworkConformance


class TestSegmentedLDA(NetworkConformance):
    family = "segmented-lda"
    separate_processes = True
    matrix = (
        {"topics": 4},
        {"topics": 20, "learn": ("strength", "discount", "asymmetric-alpha", "beta")},
        {"topics": 4, "learn": (), "discount": 0.3, "tables": False},
    )


@pytest.mark.parametrize(("b", "a"), [(0.3, 0.0), (30.0, 0.0), (4.0, 0.5)])
def test_simulated_segments__vary_about_their_document(b, a):
    """The variance of segments' proportions is mu (1 - mu) (1 - a) / (b + 1)."""
    none = np.zeros(2, dtype=np.int64)
    options = make_options("segmented-lda", {"topics": 3, "alpha": 2.0, "strength": b, "discount": a})
    global_state = make_family("segmented-lda", options).initialise(Summary(1, 10, 0), Stream(1))
    graph = graph_of(global_state.plan, np.array([0, 1500]), (none, none[:0]))
    mu, *_ = nu = draw_vectors(graph, global_state, np.zeros((0, 3)), np.random.default_rng(3))
    nu = nu[1:]
    np.testing.assert_allclose(nu.mean(axis=0), mu, atol=0.03)
    np.testing.assert_allclose(((nu - mu) ** 2).mean(axis=0), mu * (1 - mu) * (1 - a) / (b + 1), rtol=0.1)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Training and held-out parts of documents with segments, and of the same segments as documents."""
    place = tmp_path_factory.mktemp("simulated")
    sizes = {"documents": 80, "words": 40, "tokens": 120, "topics": 3, "seed": 4}
    simulate(place / "all", family="segmented-lda", strength=5.0, alpha=0.3, beta=8.0, **sizes)
    split(place / "all", place / "train", place / "heldout", fraction=0.25, seed=2)
    for name in ("train", "heldout"):
        explode(place / name, place / f"{name}-flat")
    return place


def test_b__interpolates_between_lda_on_segments_and_lda_on_documents(simulated, tmp_path):
    """Held-out scores are means over a chain's last samples; all fits have the same prior of words."""

    def score(family, alpha, flat="", **more):
        out = tmp_path / f"{family}{flat}-{alpha}-{more.get('strength')}"
        options = {"topics": 3, "beta": 8.0, "alpha": alpha, "seed": 1, "iterations": 60, "scheduler": "serial", **more}
        fit(simulated / f"train{flat}", out, family=family, heldout=simulated / f"heldout{flat}", **options)
        return np.mean(scores_of(out)[-30:])

    documents, segments = score("gibbs-lda", 0.3), score("gibbs-lda", 2.0 / 3, "-flat")
    held = {"learn": (), "discount": 0.0}
    large = score("segmented-lda", 0.3, strength=1e6, **held)
    even = score("segmented-lda", 1e6, strength=2.0, **held)  # proportions of segments that all equal their document's
    learned = score("segmented-lda", 0.3)
    assert abs(large - documents) < 0.01
    assert abs(even - segments) < 0.01
    assert learned > max(documents, segments) + 0.01
