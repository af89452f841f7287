from tests.conformance import Conformance, reference_bits  # noqa: F401 - a fixture


class TestLDA(Conformance):
    family = "lda"
    matrix = (
        {"topics": 4},
        {"topics": 3, "order": 2},
        {"topics": 4, "learn": ("asymmetric-alpha", "beta")},
        {"topics": 3, "order": 2, "learn": ("alpha", "asymmetric-beta")},
    )
