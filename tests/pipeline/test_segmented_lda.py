from tests.conformance import reference_bits  # noqa: F401 - fixture
from tests.networks import NetworkConformance


class TestSegmentedLDA(NetworkConformance):
    family = "segmented-lda"
    matrix = (
        {"topics": 4},
        {"topics": 20, "learn": ("strength", "discount", "asymmetric-alpha", "beta")},
        {"topics": 4, "learn": (), "discount": 0.3, "tables": False},
    )
