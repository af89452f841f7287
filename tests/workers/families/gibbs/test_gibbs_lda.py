from tests.conformance import OptionsConformance, references  # noqa: F401 - fixture


class TestGibbsLDA(OptionsConformance):
    family = "gibbs-lda"
    matrix = (
        {"topics": 4},
        {"topics": 150},
        {"topics": 4, "learn": ("alpha", "beta")},
        {"topics": 3, "learn": ("asymmetric-alpha",)},
    )
