import numpy as np

from tests.conformance import OptionsConformance, references  # noqa: F401 - fixture


class TestGibbsHDP(OptionsConformance):
    family = "gibbs-hdp"
    separate_processes = True
    # so many topics are born that the free slots run out within a sweep
    matrix = (
        {"init_topics": 6, "beta": 10.0},
        {"init_topics": 1, "beta": 10.0},
        {"init_topics": 1, "beta": 1.0, "gamma_shape": 500.0},
        {"init_topics": 40, "learn": ()},
    )

    def sized(self, topics):
        return {"init_topics": topics}

    def largest_topics(self, word_topic):
        order = np.argsort(-word_topic.sum(axis=0), kind="stable")
        return word_topic[:, order[:3]]
