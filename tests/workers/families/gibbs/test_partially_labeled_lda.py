from tests.conformance import OptionsConformance, references  # noqa: F401 - fixture


class TestPartiallyLabeledLDA(OptionsConformance):
    family = "partially-labeled-lda"
    matrix = ({"eta": 0.3}, {"topics_per_label": 3, "background": 0})
    labelled, word_prior = True, {"eta": 0.1}

    def sized(self, topics):
        return {"topics_per_label": max(topics - 1, 1), "background": 1 if topics > 1 else 0}

    def check_ground_truth(self, tmp_path, documents, options):
        """The simulated topics are recovered as two topics of the only label and one background topic."""
        self.ground_truth_labels = lambda theta: [[("kind", "all")] * (number % 9 > 0) for number in range(len(theta))]
        super().check_ground_truth(tmp_path, documents, options)
