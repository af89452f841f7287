import numpy as np

from tests.conformance import Conformance, reference_bits  # noqa: F401 - fixture


class TestGibbsHDP(Conformance):
    family = "gibbs-hdp"
    matrix = (
        {"start_topics": 6, "beta": 10.0},
        {"start_topics": 1, "beta": 10.0},
        {"start_topics": 1, "beta": 1.0, "gamma_shape": 500.0},  # many are born: slots run out within a sweep
        {"start_topics": 40, "learn": ()},
    )

    def sized(self, topics):
        return {"start_topics": topics}

    def topic_tokens(self, global_state):
        return global_state["topic"]

    def largest(self, word_topic):
        order = np.argsort(-word_topic.sum(axis=0), kind="stable")
        return word_topic[:, order[:3]]
