"""First responsibilities in proportion to what another run knows: q_dwk ~ theta_dk phi_kw.

Weights are single precision and their sums double, so that a pair's steps never exceed one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.cvb.active import UNIT
from collapsium.workers.kernels.jit import F4_2, I4, I8, OUT_F4, OUT_F4_2, OUT_F8, OUT_F8_2, OUT_U2, U2, helper, kernel

Array = npt.NDArray[Any]

WHOLE = UNIT - 0.01  # steps of a pair, so that rounding never makes their sum exceed UNIT


@helper
def _total(theta: Array, phi: Array, document: int, row: int) -> float:
    """Return sum_k theta_dk phi_kw."""
    total = 0.0
    for k in range(theta.shape[1]):
        total += float(theta[document, k] * phi[row, k])
    return total


@kernel(I8, I4, I4, F4_2, F4_2, OUT_F8_2)
def expect(offsets: Array, position: Array, counts: Array, theta: Array, phi: Array, document_topic: Array) -> None:
    """Fill E[n_dk] = sum over a document's pairs of c theta_dk phi_kw / sum_l theta_dl phi_lw; twin: `naive.warming`.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position, counts : int32, shape (pairs,)
        Row and count of each pair.
    theta : float32, shape (documents, topics)
        Proportions.
    phi : float32, shape (rows, topics)
        Probabilities of words.
    document_topic : float64, shape (documents, topics)
        Filled; a pair that no topic explains adds nothing.
    """
    for document in range(offsets.size - 1):
        for k in range(theta.shape[1]):
            document_topic[document, k] = 0.0
        for pair in range(offsets[document], offsets[document + 1]):
            row = position[pair]
            total = _total(theta, phi, document, row)
            if total > 0.0:
                each = counts[pair] / total
                for k in range(theta.shape[1]):
                    document_topic[document, k] += each * float(theta[document, k] * phi[row, k])


@kernel(I8, I4, F4_2, F4_2, OUT_F4_2)
def give_dense(offsets: Array, position: Array, theta: Array, phi: Array, pair_topic: Array) -> None:
    """Fill the pairs' responsibilities over all topics; twin: `naive.warming`.

    Parameters
    ----------
    offsets, position, theta, phi
        As for `expect`.
    pair_topic : float32, shape (pairs, topics or more)
        Filled; 0 for topics that `theta` has not, even over all others for a pair that no topic explains.
    """
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


@kernel(I8, I4, I4, F4_2, F4_2, I8, U2, I8, OUT_U2, OUT_F4, OUT_F4, OUT_F4_2, OUT_F8)
def give_listed(
    offsets: Array,
    position: Array,
    counts: Array,
    theta: Array,
    phi: Array,
    lists: Array,
    topic: Array,
    starts: Array,
    share: Array,
    active_count: Array,
    document_rest: Array,
    row_active: Array,
    row_rest: Array,
) -> None:
    """Give pairs their responsibilities over the topics that documents list; twin: `naive.warming`.

    What topics have that are not listed, and what steps cut off, is background.

    Parameters
    ----------
    offsets, position, counts, theta, phi
        As for `expect`.
    lists, topic, starts, share, active_count, document_rest, row_active, row_rest
        As for `active.begin`.
    """
    known = theta.shape[1]
    tokens = np.zeros(row_active.shape[1], dtype=np.int64)
    for document in range(offsets.size - 1):
        listed, size, at = lists[document], lists[document + 1] - lists[document], starts[document]
        rest = np.int64(0)
        for j in range(size):
            tokens[j] = 0
        for pair in range(offsets[document], offsets[document + 1]):
            row, count, left = position[pair], np.int64(counts[pair]), np.int64(UNIT)
            total = _total(theta, phi, document, row)
            scale = WHOLE / total if total > 0.0 else 0.0
            for j in range(size):
                k, steps = np.int64(topic[listed + j]), np.int64(0)
                if k < known:
                    steps = np.int64(float(theta[document, k] * phi[row, k]) * scale)
                share[at + j] = steps
                tokens[j] += count * steps
                left -= steps
                row_active[row, k] += np.float32(count * steps / UNIT)
            rest += count * left
            row_rest[row] += count * left / UNIT
            at += size
        document_rest[document] = np.float32(rest / UNIT)
        for j in range(size):
            active_count[listed + j] = np.float32(tokens[j] / UNIT)


@kernel(I8, I4, I4, I8, U2, I8, U2, OUT_F4_2, OUT_F8)
def count_listed(
    offsets: Array,
    position: Array,
    counts: Array,
    lists: Array,
    topic: Array,
    starts: Array,
    share: Array,
    row_active: Array,
    row_rest: Array,
) -> None:
    """Count by words what responsibilities over lists amount to; twin: `naive.active.word_counts`.

    Parameters
    ----------
    offsets, position, counts, lists, topic, starts, share
        As for `active.sweep_active`.
    row_active, row_rest : float32, shape (rows, topics), and float64, shape (rows,)
        Increased by the counts by words, and by the words' background tokens.
    """
    for document in range(offsets.size - 1):
        listed, size, at = lists[document], lists[document + 1] - lists[document], starts[document]
        for pair in range(offsets[document], offsets[document + 1]):
            row, count, left = position[pair], np.int64(counts[pair]), np.int64(UNIT)
            for j in range(size):
                steps = np.int64(share[at + j])
                left -= steps
                row_active[row, np.int64(topic[listed + j])] += np.float32(count * steps / UNIT)
            row_rest[row] += count * left / UNIT
            at += size
