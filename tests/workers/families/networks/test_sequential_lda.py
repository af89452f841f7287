from tests.conformance import references  # noqa: F401 - fixture
from tests.networks import NetworkConformance


class TestSequentialLDA(NetworkConformance):
    family = "sequential-lda"
    matrix = ({"topics": 4}, {"topics": 4, "learn": ("discount", "alpha"), "strength": 3.0})
