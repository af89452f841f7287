"""Checks of the tokens of labelled documents: each must have a topic that its document's labels allow."""

import numpy as np
import pytest

from collapsium.storage.corpus.labels import LabelTable
from collapsium.storage.errors import DamagedError
from collapsium.workers.arrays.state import CheckContext
from collapsium.workers.families.gibbs.labeled_lda import LabelLocal, LabelTopicsGlobalState
from tests.strategies import shard_of

LABELS = LabelTable((("kind", "a"), ("kind", "b")))
SHARD = shard_of([[{0: 2, 1: 1}], [{0: 1}], [{1: 2}]])


def global_state_of(background):
    return {
        "topic": np.full(4 + background, 9),
        "alpha": np.array(0.1),
        "beta": np.array(1.0),
        "vocabulary": np.array(2.0),
        "label_topics": np.array(2),
        "background_topics": np.array(background),
        "carried": np.array(False),
        "single_topics": np.array(False),
        "label_table": LABELS.packed(),
    }


def check(token_topic, background=0):
    """Check topics of tokens; the first document has label a, the second a and b, the third none."""
    known = CheckContext({})
    global_state = LabelTopicsGlobalState.checked(global_state_of(background), known, "global_state")
    local = {
        "document_lists": np.zeros(4, dtype=np.int64),
        "document_topics": np.zeros(0, dtype=np.uint16),
        "document_counts": np.zeros(0, dtype=np.float32),
        "document_labels": np.array([0, 1, 3, 3]),
        "document_label": np.array([0, 0, 1], dtype=np.int32),
        "token_topic": np.array(token_topic, dtype=np.uint16),
    }
    known = CheckContext({**known.sizes, "document": 3, "token": 6}, global_state, SHARD)
    return LabelLocal.checked(local, known, "local")


@pytest.mark.parametrize(("topics", "background"), [([0, 1, 0, 3, 2, 0], 0), ([0, 1, 4, 3, 4, 4], 1)])
def test_topics_that_the_documents_labels_allow__are_accepted(topics, background):
    assert check(topics, background).token_topic.tolist() == topics


@pytest.mark.parametrize(
    ("topics", "background"),
    [([0, 2, 0, 3, 2, 0], 0), ([3, 0, 0, 0, 0, 0], 0), ([0, 1, 4, 3, 4, 0], 1), ([0, 1, 4, 3, 0, 4], 1)],
)
def test_topics_of_other_labels__are_refused(topics, background):
    with pytest.raises(DamagedError, match="topics that the labels of the document have in 'token_topic'"):
        check(topics, background)
