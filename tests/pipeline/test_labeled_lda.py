from tests.conformance import Conformance, reference_bits  # noqa: F401 - fixture


class TestLabeledLDA(Conformance):
    family = "labeled-lda"
    matrix = ({},)
    labelled, word_prior = True, {"eta": 0.1}

    def sized(self, topics):
        return {}

    def topic_tokens(self, globals):
        return globals["topic"]
