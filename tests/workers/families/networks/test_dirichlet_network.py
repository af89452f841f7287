from tests.conformance import references  # noqa: F401 - fixture
from tests.networks import DIAMOND, LABELS, NetworkConformance


class TestDirichletNetwork(NetworkConformance):
    family = "dirichlet-network"
    matrix = (
        {"topics": 4, "network": DIAMOND, "learn": ("strength", "discount")},
        {"topics": 4, "network": LABELS},
    )
