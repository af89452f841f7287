"""Checks of the arrays of samplers whose number of topics grows: the width of rows, and shares of topics with tokens."""

import numpy as np
import pytest

from collapsium.pipeline.models.registry import recorded_family
from collapsium.storage.errors import DamagedError
from collapsium.workers.families.model_checks import ModelChecks
from tests.strategies import shard_of

GLOBAL_STATE = {
    "pi": np.array([0.5, 0.25, 0.0]),
    "alpha": np.array(1.0),
    "gamma": np.array(1.0),
    "beta": np.array(1.0),
    "vocabulary": np.array(4.0),
    "lanes": np.array(1),
    "start_topics": np.array(2),
    "topic": np.array([5, 2, 0]),
    "free": np.array([False, False, True]),
}


def checks(**changed):
    return ModelChecks.of(recorded_family("gibbs-hdp", {}), 4, {**GLOBAL_STATE, **changed}, "global_state", 7)


def test_rows_of_a_finished_model_that_lack_topics__are_refused():
    rows = {"word_topic": np.zeros((4, 2), dtype=np.int32)}
    checks().rows(rows, 4, "rows", finished=False)
    with pytest.raises(DamagedError, match="expected the shape"):
        checks().rows(rows, 4, "rows", finished=True)


@pytest.mark.parametrize("pi", [[0.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
def test_topics_with_tokens_but_without_a_share__are_refused(pi):
    with pytest.raises(DamagedError, match="expected positive shares of the topics that have tokens in 'pi'"):
        checks(pi=np.array(pi))


def test_more_tokens_than_the_corpus_has__are_refused():
    with pytest.raises(DamagedError, match="expected at most the 7 tokens of the corpus, found 8"):
        checks(topic=np.array([5, 3, 0]))


SHARD = shard_of([[{0: 2, 1: 1}], [{0: 1, 2: 1}]])
ROWS = {"word_topic": np.array([[3, 0, 0], [0, 1, 0], [0, 1, 0]], dtype=np.int32)}


def test_token_topics_that_agree_with_the_rows__are_accepted():
    local = {"token_topic": np.array([0, 0, 1, 0, 1], dtype=np.uint16)}
    checks().tallies(local, ROWS, SHARD, "local")
    assert checks().token_fingerprint(local, SHARD, 7) % 2**64 == checks().row_fingerprint(ROWS, 0, 7)[0] % 2**64


@pytest.mark.parametrize("tokens", [[0, 0, 0, 0, 1], [0, 1, 0, 0, 1], [0, 0, 1, 1, 1], [0, 0, 1, 0, 2]])
def test_token_topics_that_disagree_with_the_rows__are_refused(tokens):
    with pytest.raises(DamagedError, match="expected tokens that the rows and the global state count"):
        checks().tallies({"token_topic": np.array(tokens, dtype=np.uint16)}, ROWS, SHARD, "local")
