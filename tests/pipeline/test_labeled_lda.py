from tests.conformance import Conformance, reference_bits  # noqa: F401 - fixture


class TestLabeledLDA(Conformance):
    family = "labeled-lda"
    matrix = ({},)
    labelled, word_prior = True, {"eta": 0.1}
    # Beside a shard it is partially-labeled-lda with one topic a label, where these are asked.
    test_bits__do_not_depend_on_the_executor = None
    test_going_back__to_any_iteration_gives_the_same_bits = None
    test_lost_work__is_done_again_with_the_same_bits = None

    def sized(self, topics):
        return {}

    def topic_tokens(self, globals):
        return globals["topic"]
