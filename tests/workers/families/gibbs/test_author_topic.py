import numpy as np

from tests.conformance import OptionsConformance, references  # noqa: F401 - fixture
from tests.fits import states


class TestAuthorTopic(OptionsConformance):
    family = "author-topic"
    matrix = ({"topics": 4}, {"topics": 40, "alpha": 0.01})
    labelled, word_prior = True, {"eta": 0.1}

    def topic_tokens(self, global_state):
        """Return the number of tokens of each topic, summed over the authors."""
        np.testing.assert_array_equal(global_state.label_topic.sum(axis=0), global_state.topic)
        return super().topic_tokens(global_state)

    def test_authors_of_tokens__are_among_the_authors_of_their_documents(self, small):
        _, history = states(small[0], self.family, self.matrix[0], 3)
        for swept in history[-1][0].swept:
            local = swept.value.local
            authors = np.repeat(np.diff(local.authors.document_labels), local.document_tokens)
            assert (local.token_author < authors).all()
