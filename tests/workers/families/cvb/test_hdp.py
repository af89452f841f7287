from tests.conformance import references  # noqa: F401 - fixture
from tests.responsibilities import Responsibilities, corpus_of_many_topics  # noqa: F401 - fixture


class TestHDP(Responsibilities):
    family = "hdp"
    matrix = (
        {"topics": 6},
        {"topics": 6, "responsibilities": "dense"},
        {"topics": 140, "hold": 3},
        {"topics": 6, "hold": 2},
        {"topics": 5, "order": 2},
        {"topics": 5, "hold": 0, "learn": ("alpha", "gamma", "pi", "beta", "tau")},
        {"topics": 4, "order": 2, "learn": ("alpha", "gamma", "pi", "beta", "tau")},
        {"topics": 1, "order": 2},
        {"topics": 6, "weights": "log-tf-idf", "learn": ("alpha", "gamma", "beta")},
        {"topics": 140, "weights": "idf"},
        {"topics": 5, "weights": "entropy", "responsibilities": "dense", "hold": 0},
    )
    # With one topic, the responsibilities cannot change; only coordinate ascent of the hyperparameters remains.
    ascends = ({"topics": 1, "order": 2},)
    stochastic = ({"topics": 6}, {"topics": 140, "hold": 3}, {"topics": 6, "weights": "idf"})
