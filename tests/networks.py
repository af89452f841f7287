"""Helpers that tests of families of networks share."""

from tests.conformance import Conformance

# A section depends on its document and on the preceding section; documents depend on the corpus.
DIAMOND = {
    "corpus": {"over": "corpus"},
    "document": {"over": "document", "parents": ["corpus"]},
    "section": {"over": "segment", "parents": ["document", "section[-1]"]},
}
# Documents depend on their labels, if they have some; pairs of segments share a part, on which each depends.
LABELS = {
    "corpus": {"over": "corpus"},
    "kind": {"over": "label", "field": "kind", "parents": ["corpus"]},
    "document": {"over": "document", "parents": ["kind"], "otherwise": ["corpus"], "mixing": 0.5},
    "part": {"over": "segment", "every": 2, "parents": ["document"]},
    "section": {"over": "segment", "parents": ["part"]},
}


def needed(fields):
    """Return the required options of a family, from the fields of its configuration."""
    options = {"topics": 4, "network": DIAMOND}
    if "seeds" in fields and fields["seeds"].is_required():
        options["seeds"] = {"first": ["w0", "w1"]}
    return {name: value for name, value in options.items() if name in fields}


class NetworkConformance(Conformance):
    """The conformance suite on corpora whose documents have labels and segments."""

    labelled = segmented = True
    ground_truth_iterations = 40

    def topic_tokens(self, global_state):
        """Return the number of tokens of each topic: the tables of shared vectors without parents do not exceed their
        customers."""
        assert (global_state.shared_customers >= 0).all()
        return super().topic_tokens(global_state)
