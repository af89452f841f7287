"""Warm start from another run: responsibilities q_dwk ~ theta_dk phi_kw.

The other run provides ``document_topic``, theta of the shard's documents, and ``word_topic``, phi of its words.
It may have fewer topics; further topics begin empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays import buffer_pool as buffers
from collapsium.workers.arrays.delta import Delta
from collapsium.workers.arrays.state import Arrays
from collapsium.workers.families.cvb import active as active_responsibilities
from collapsium.workers.families.cvb import dense
from collapsium.workers.families.cvb.active_topics import MIN_TOKENS, Ints, Steps, max_active
from collapsium.workers.families.cvb.parameters import Parameters
from collapsium.workers.families.cvb.states import ActiveLocal, DenseLocal
from collapsium.workers.families.dirichlet import proportions_and_topics
from collapsium.workers.families.document_pairs import document_pairs
from collapsium.workers.kernels.cvb import warm_start as warming
from collapsium.workers.kernels.cvb.records import (
    NO_PSEUDO_COUNTS,
    ActiveState,
    ActiveTopics,
    DocumentModel,
    RowChanges,
)

if TYPE_CHECKING:
    from collapsium.storage.corpus.shard import Shard

Vector = npt.NDArray[np.float64]
# Least share of an active topic in a document that begins with even topics, so that shares have a positive sum
MIN_SHARE = np.float32(1e-6)
MIN_PSEUDO_COUNT = 1.0  # Smaller pseudo-counts of a start are left out, in tokens: they say less than a token would


def start(shard: Shard, parameters: Parameters, warm: Arrays) -> tuple[ActiveLocal | DenseLocal, Delta]:
    """Return a shard's first local state from another run's proportions and topics."""
    even = parameters.active is not None and "word_topic" not in warm
    # Where all tokens of a document begin alike, no weights of its words are needed.
    theta, phi = proportions_and_topics(warm, 0 if even else shard.words.size, np.float32)
    if parameters.active is not None:
        return _start_active(shard, parameters, DocumentModel(theta, phi), warm.get("document_strength"), even=even)
    pair_topic = np.empty((shard.pairs, parameters.topics.size), dtype=np.float32)
    warming.initialise_dense(document_pairs(shard), DocumentModel(theta, phi), pair_topic)
    return dense.initial_state(shard, pair_topic, moments=parameters.moments)


def _start_active(
    shard: Shard, parameters: Parameters, model: DocumentModel, strength: npt.NDArray[np.float32] | None, *, even: bool
) -> tuple[ActiveLocal, Delta]:
    pairs, topics = document_pairs(shard), parameters.topics.size
    expected = shard.weighted_lengths[:, np.newaxis] * model.theta.astype(np.float64)
    if not even:
        warming.expected_counts(pairs, model, expected)
    known, pseudo = model.theta.shape[1], None if strength is None else strength[:, np.newaxis] * model.theta
    if pseudo is not None:
        pseudo[pseudo < MIN_PSEUDO_COUNT] = 0.0
        expected += pseudo
    max_topics = parameters.active_settings.max_topics
    topic, sizes = first_lists(
        expected, parameters.topics, max_active(shard.offsets, topics, max_topics), shard.lengths > 0
    )
    lists = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    active, state = ActiveTopics(lists, topic), active_responsibilities.blank_state(shard, lists)
    rows = RowChanges(buffers.zeros((shard.words.size, topics), np.float32), np.zeros(shard.words.size))
    owner = np.repeat(np.arange(shard.documents), sizes)
    if even:
        # All tokens of a document begin alike, which takes no pass over all topics of each pair.
        shares = np.where(topic < known, model.theta[owner, np.minimum(topic, known - 1)], np.float32(0.0))
        warming.initialise(pairs, active, np.maximum(shares, MIN_SHARE), state, rows)
    else:
        warming.initialise_active(pairs, model, active, state, rows)
    stays = NO_PSEUDO_COUNTS
    if pseudo is not None and pseudo.any():
        stays = np.where(topic < known, pseudo[owner, np.minimum(topic, known - 1)], np.float32(0.0))
    age = active_responsibilities.ANNEALING_SWEEPS
    begun = ActiveState(*state)._replace(pseudo=stays)
    return active_responsibilities.initial_state(shard, active, begun, rows, moments=parameters.moments, age=age)


def first_lists(expected: Vector, prior: Vector, limits: Ints, occupied: npt.NDArray[np.bool_]) -> tuple[Steps, Ints]:
    """Select documents' active topics by expected counts, as `kernels.cvb.active_selection.select` does.

    Returns topic: Topics, ascending in a document; sizes: Number of active topics of each document
    """
    documents, known = expected.shape
    passing = (expected > np.maximum(prior[:known], MIN_TOKENS)) & occupied[:, np.newaxis]
    none = np.flatnonzero(occupied & ~passing.any(axis=1))
    passing[none, expected[none].argmax(axis=1)] = True
    owner, topic = np.nonzero(passing)
    # The most expected first, the first topics among equals; few of all topics pass.
    order = np.lexsort((topic, -expected[owner, topic], owner))
    owner, topic, passed = owner[order], topic[order], passing.sum(axis=1)
    rank = np.arange(owner.size) - np.repeat(np.cumsum(passed) - passed, passed)
    number, chosen = np.minimum(passed, limits), rank < limits[owner]
    is_active = np.zeros((documents, prior.size), dtype=bool)
    is_active[owner[chosen], topic[chosen]] = True
    # A sweep over more than half of the topics is faster over all, whose cells lie side by side.
    is_active[(limits == prior.size) & (2 * number > prior.size)] = True
    return np.nonzero(is_active)[1].astype(np.uint16), is_active.sum(axis=1)
