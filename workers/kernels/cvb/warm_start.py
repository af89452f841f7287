"""First responsibilities: random, or from a fitted model, q_dwk ~ theta_dk phi_kw.

A model's weights are single precision and their sums double, so that a pair's steps never exceed one.
"""

from __future__ import annotations

import numpy as np

from collapsium.workers.kernels.cvb.active import NEARLY, UNIT, ZERO
from collapsium.workers.kernels.cvb.records import ActiveState, ActiveTopics, DocumentModel, NewActiveState, RowChanges
from collapsium.workers.kernels.jit import (
    Array,
    DocumentPairs,
    Float32Vector,
    OutFloat32Matrix,
    OutFloat64Matrix,
    helper,
    kernel,
    token_weight,
)

BELOW_UNIT = UNIT - 0.01  # steps of a pair, so that rounding never makes their sum exceed UNIT


@helper
def _total(theta: Array, phi: Array, document: int, row: int) -> float:
    """Return sum_k theta_dk phi_kw."""
    total = 0.0
    for k in range(theta.shape[1]):
        total += float(theta[document, k] * phi[row, k])
    return total


@kernel
def initialise(
    pairs: DocumentPairs, active: ActiveTopics, noise: Float32Vector, state: NewActiveState, rows: RowChanges
) -> None:
    """Fill equal responsibilities of all pairs of a document, in proportion to noise; twin: `naive.active.initialise`.

    Shapes: `noise` (active,).
    """
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    active_offsets, active_topics, starts = active.offsets, active.topics, state.starts
    responsibilities, active_counts, background = state.responsibilities, state.counts, state.background
    row_active, row_background = rows.active, rows.background
    steps = np.empty(row_active.shape[1], dtype=np.uint16)
    for document in range(offsets.size - 1):
        begin, at = active_offsets[document], starts[document]
        size = active_offsets[document + 1] - begin
        total, left, tokens = ZERO, UNIT, 0.0
        for j in range(size):
            total += noise[begin + j]
        for j in range(size):
            steps[j] = np.int64(noise[begin + j] * (NEARLY / total))
            left -= steps[j]
        for pair in range(offsets[document], offsets[document + 1]):
            row, weighted = position[pair], counts[pair] * token_weight(pairs.weights, pair)
            step_tokens = weighted / UNIT
            tokens += weighted
            for j in range(size):
                responsibilities[at + j] = steps[j]
            for j in range(size):
                row_active[row, active_topics[begin + j]] += np.float32(step_tokens * steps[j])
            row_background[row] += step_tokens * left
            at += size
        background[document] = tokens * left / UNIT
        for j in range(size):
            active_counts[begin + j] = tokens * (np.int64(steps[j]) / UNIT)


@kernel
def expected_counts(pairs: DocumentPairs, model: DocumentModel, document_topic: OutFloat64Matrix) -> None:
    """Fill E[n_dk] = sum over pairs of c theta_dk phi_kw / sum_l theta_dl phi_lw; twin: `naive.warm_start`.

    Shapes: `document_topic` (documents, topics).
    """
    offsets, position, counts, theta, phi = pairs.offsets, pairs.position, pairs.counts, model.theta, model.phi
    for document in range(offsets.size - 1):
        for k in range(theta.shape[1]):
            document_topic[document, k] = 0.0
        for pair in range(offsets[document], offsets[document + 1]):
            row = position[pair]
            total = _total(theta, phi, document, row)
            if total > 0.0:
                factor = counts[pair] * token_weight(pairs.weights, pair) / total
                for k in range(theta.shape[1]):
                    document_topic[document, k] += factor * float(theta[document, k] * phi[row, k])


@kernel
def initialise_dense(pairs: DocumentPairs, model: DocumentModel, pair_topic: OutFloat32Matrix) -> None:
    """Fill the pairs' responsibilities over all topics; twin: `naive.warm_start`.

    Shapes: `pair_topic` (pairs, topics or more).
    """
    offsets, position, theta, phi = pairs.offsets, pairs.position, model.theta, model.phi
    known = theta.shape[1]
    for document in range(offsets.size - 1):
        for pair in range(offsets[document], offsets[document + 1]):
            row = position[pair]
            total = _total(theta, phi, document, row)
            for k in range(pair_topic.shape[1]):
                pair_topic[pair, k] = np.float32(0.0)
            for k in range(known):
                if total > 0.0:
                    pair_topic[pair, k] = np.float32(float(theta[document, k] * phi[row, k]) / total)
                else:
                    pair_topic[pair, k] = np.float32(1.0 / known)


@kernel
def initialise_active(
    pairs: DocumentPairs, model: DocumentModel, active: ActiveTopics, state: NewActiveState, rows: RowChanges
) -> None:
    """Fill the pairs' responsibilities over the documents' active topics; twin: `naive.warm_start`.

    The share of inactive topics, and what rounding to steps cuts off, is background.
    """
    offsets, position, counts, theta, phi = pairs.offsets, pairs.position, pairs.counts, model.theta, model.phi
    active_offsets, active_topics, starts = active.offsets, active.topics, state.starts
    responsibilities, active_counts, background = state.responsibilities, state.counts, state.background
    row_active, row_background = rows.active, rows.background
    known = theta.shape[1]
    tokens = np.zeros(row_active.shape[1])
    for document in range(offsets.size - 1):
        begin, at = active_offsets[document], starts[document]
        size = active_offsets[document + 1] - begin
        rest = 0.0
        for j in range(size):
            tokens[j] = 0.0
        for pair in range(offsets[document], offsets[document + 1]):
            row, left = position[pair], np.int64(UNIT)
            count = counts[pair] * token_weight(pairs.weights, pair)
            total = _total(theta, phi, document, row)
            scale = BELOW_UNIT / total if total > 0.0 else 0.0
            for j in range(size):
                k, steps = np.int64(active_topics[begin + j]), np.int64(0)
                if k < known:
                    steps = np.int64(float(theta[document, k] * phi[row, k]) * scale)
                responsibilities[at + j] = steps
                tokens[j] += count * steps
                left -= steps
                row_active[row, k] += np.float32(count * steps / UNIT)
            rest += count * left
            row_background[row] += count * left / UNIT
            at += size
        background[document] = rest / UNIT
        for j in range(size):
            active_counts[begin + j] = tokens[j] / UNIT


@kernel
def count_active(pairs: DocumentPairs, active: ActiveTopics, state: ActiveState, rows: RowChanges) -> None:
    """Count by words the tokens of sparse responsibilities; twin: `naive.active.word_counts`."""
    offsets, position, counts = pairs.offsets, pairs.position, pairs.counts
    active_offsets, active_topics = active.offsets, active.topics
    starts, responsibilities, row_active, row_background = (
        state.starts,
        state.responsibilities,
        rows.active,
        rows.background,
    )
    for document in range(offsets.size - 1):
        begin, at = active_offsets[document], starts[document]
        size = active_offsets[document + 1] - begin
        for pair in range(offsets[document], offsets[document + 1]):
            row, left = position[pair], np.int64(UNIT)
            count = counts[pair] * token_weight(pairs.weights, pair)
            for j in range(size):
                steps = np.int64(responsibilities[at + j])
                left -= steps
                row_active[row, np.int64(active_topics[begin + j])] += np.float32(count * steps / UNIT)
            row_background[row] += count * left / UNIT
            at += size
