from tests.conformance import references  # noqa: F401 - fixture
from tests.responsibilities import Responsibilities, corpus_of_many_topics  # noqa: F401 - fixture


class TestLDA(Responsibilities):
    family = "lda"
    separate_processes = True
    matrix = (
        {"topics": 4},
        {"topics": 4, "responsibilities": "dense"},
        {"topics": 4, "most_active": 2, "momentum": 0.0, "inverse_temperature": 0.9},
        {"topics": 150},
        {"topics": 3, "order": 2},
        {"topics": 4, "learn": ("asymmetric-alpha", "beta")},
        {"topics": 3, "order": 2, "learn": ("alpha", "asymmetric-beta")},
        {"topics": 4, "weights": "log-tf-idf", "learn": ("asymmetric-alpha", "beta")},
        {"topics": 4, "weights": "idf", "responsibilities": "dense"},
        {"topics": 3, "weights": "entropy", "order": 2, "learn": ("alpha", "asymmetric-beta")},
        {"topics": 150, "weights": {"w0": 0.2, "w1": 2.5}},
    )
    stochastic = (
        {"topics": 4},
        {"topics": 150, "learn": ("asymmetric-alpha",)},
        {"topics": 4, "weights": "log-tf-idf"},
    )
    drawn = {"alpha": 0.02}  # noqa: RUF012 - never changed
