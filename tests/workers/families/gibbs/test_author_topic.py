import numpy as np

from tests.conformance import Conformance, reference_bits  # noqa: F401 - fixture


class TestAuthorTopic(Conformance):
    family = "author-topic"
    matrix = ({"topics": 4}, {"topics": 40, "alpha": 0.01})
    labelled, word_prior = True, {"eta": 0.1}

    def topic_tokens(self, global_state):
        """As many as the authors have."""
        np.testing.assert_array_equal(global_state["label_topic"].sum(axis=0), global_state["topic"])
        return global_state["topic"]

    def document_counts(self, local, topics):
        found = np.zeros((local["document_tokens"].size, topics))
        owner = np.repeat(np.arange(len(found)), local["document_tokens"])
        np.add.at(found, (owner, np.asarray(local["token_topic"])), 1)
        assert (local["token_author"] < np.diff(local["document_labels"])[owner]).all()
        return found
