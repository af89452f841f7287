"""Checks of the arrays of the HDSP: negative values of labels are refused if kernels have no room for their sums."""

import numpy as np
import pytest

from collapsium.pipeline.models.registry import recorded_family
from collapsium.storage.corpus.labels import LabelTable, NumberField
from collapsium.storage.errors import DamagedError
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.family import Summary
from collapsium.workers.families.model_checks import ModelChecks
from tests.strategies import shard_of

OPTIONS, WORDS, TOPICS = {"topics": 3}, 4, 3
SHARD = shard_of([[{0: 2, 1: 1}], [{0: 1, 2: 1}]])
LOCAL = {
    "document_topic": np.ones((2, TOPICS), dtype=np.float32),
    "document_label_offsets": np.array([0, 1, 3]),
    "document_label": np.array([0, 0, 1], dtype=np.int32),
    "document_label_value": np.array([1.0, 1.0, 0.5]),
}


def global_state_of(table):
    summary = Summary(SHARD.documents, WORDS, SHARD.tokens, labels=table)
    return recorded_family("hdsp", OPTIONS).initialise(summary, Stream(1)).to_arrays()


LABELLED = global_state_of(LabelTable((("kind", "a"), ("kind", "b")), (2, 1), (), 2, 2))


def checks(global_state):
    return ModelChecks.of(recorded_family("hdsp", OPTIONS), WORDS, global_state, "global_state")


@pytest.mark.parametrize("value", [-1.0, -1e-300])
def test_negative_values_of_labels__are_refused(value):
    checks(LABELLED).local(LOCAL, SHARD, "local")
    changed = {**LOCAL, "document_label_value": np.array([1.0, value, 1.0])}
    with pytest.raises(DamagedError, match="not negative in 'document_label_value'"):
        checks(LABELLED).local(changed, SHARD, "local")


def test_covariates_without_room_for_negative_sums__are_refused():
    numbers = (NumberField("year", 2, 2000.0, 10.0, 1.0, (1990.0, 2010.0)),)
    sound = global_state_of(LabelTable((("kind", "a"),), (2,), numbers, 2, 2))
    checks(sound)
    with pytest.raises(DamagedError, match="expected 'signed'"):
        checks({**sound, "signed": np.array(False)})


@pytest.mark.parametrize(("name", "value"), [("lda_sweeps_left", np.array(10**9)), ("prior", np.zeros(TOPICS))])
def test_too_many_initial_sweeps_and_priors_of_zero__are_refused(name, value):
    with pytest.raises(DamagedError, match=name):
        checks({**LABELLED, name: value})
