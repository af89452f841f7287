"""Sparse responsibilities of pairs: the few topics that matter to a pair, in steps of 2^-15 that add up to one.

Weights are dense, so no topic is lost for good. A pair retains only its topics above a share of the total, up to a
largest number of them; these share the weight of the others in proportion to their own.
"""

from __future__ import annotations

import math

import numpy as np

from collapsium.workers.kernels.argument_types import (
    Array,
    Float32Matrix,
    Int32Vector,
    Int64Vector,
    Number,
    OutFloat64Matrix,
    OutInt64Vector,
)
from collapsium.workers.kernels.cvb.active import UNIT
from collapsium.workers.kernels.jit import helper, kernel
from collapsium.workers.kernels.moments import LARGEST
from collapsium.workers.kernels.networks.records import (
    NewExpectedTopicCounts,
    NewResponsibilities,
    Responsibilities,
)
from collapsium.workers.kernels.records import DocumentPairs

MAX_TOPICS = 16  # Topics of a pair, at most
MIN_SHARE = np.float32(1.0 / 256)  # Share of a pair's weight below which a topic is left out


@helper
def choose(weight: Array, total: Number, place: Number, topic: Array, share: Array) -> Number:
    """Write a pair's responsibilities from `place` on; return the number of topics."""
    size, cut = 0, total * MIN_SHARE
    for k in range(weight.size):
        if weight[k] <= cut:
            continue
        if size < MAX_TOPICS:
            topic[place + size] = k
            size += 1
            continue
        least = 0
        for index in range(1, MAX_TOPICS):
            if weight[topic[place + index]] < weight[topic[place + least]]:
                least = index
        if weight[k] > weight[topic[place + least]]:
            topic[place + least] = k
    if size == 0:  # more topics than 256, all alike: none is above its share
        topic[place] = np.argmax(weight)
        size = 1
    retained, largest, left = 0.0, 0, np.int64(UNIT)
    for entry in range(size):
        retained += float(weight[topic[place + entry]])
        if weight[topic[place + entry]] > weight[topic[place + largest]]:
            largest = entry
    for entry in range(size):
        ratio = float(weight[topic[place + entry]]) / retained if retained > 0.0 else 0.0
        # Shares index tables, so NaN weights must not lead out of [0, UNIT].
        steps = min(np.int64(ratio * (UNIT - 0.01)), left) if 0.0 <= ratio <= 1.0 else np.int64(0)
        share[place + entry] = steps
        left -= steps
    share[place + largest] += left
    return size


@kernel
def initialise_responsibilities(
    documents: DocumentPairs,
    theta: Float32Matrix,
    phi: Float32Matrix,
    responsibilities: NewResponsibilities,
    filled: OutInt64Vector,
) -> None:
    """Fill pairs' responsibilities in proportion to theta_dk phi_kw; twin: `naive.network_expected.choose`.

    Shapes: `theta`, `phi` (documents, topics); `filled` (1,).
    """
    offsets, position = documents.offsets, documents.position
    size, topic, share = responsibilities.size, responsibilities.topic, responsibilities.share
    weight, place = np.empty(theta.shape[1], dtype=np.float32), 0
    for document in range(offsets.size - 1):
        for pair in range(offsets[document], offsets[document + 1]):
            row, total = position[pair], np.float32(0.0)
            for k in range(weight.size):
                weight[k] = theta[document, k] * phi[row, k]
                total += weight[k]
            chosen = choose(weight, total, place, topic, share)
            size[pair] = chosen
            place += chosen
    filled[0] = place


@kernel
def count_responsibilities(
    position: Int32Vector, counts: Int32Vector, responsibilities: Responsibilities, word_topic: OutFloat64Matrix
) -> None:
    """Add E[n_kw] of pairs' responsibilities.

    Shapes: `position`, `counts` (pairs,); `word_topic` (words, topics).
    """
    size, topic, share = responsibilities.size, responsibilities.topic, responsibilities.share
    place = 0
    for pair in range(position.size):
        for entry in range(place, place + size[pair]):
            word_topic[position[pair], topic[entry]] += counts[pair] * (share[entry] / UNIT)
        place += size[pair]


@kernel
def count_expected_node_topics(
    pairs: Int64Vector,
    counts: Int32Vector,
    responsibilities: Responsibilities,
    topics: int,
    node_counts: NewExpectedTopicCounts,
) -> None:
    """Fill E[n_jk] and Z[n_jk] of each node's own tokens.

    Shapes: `pairs` (nodes + 1,); `counts` (pairs,).
    """
    size, topic, share = responsibilities.size, responsibilities.topic, responsibilities.share
    offsets, node_topic, node_count, node_log_absent = node_counts
    logs, count, absent = absence_logs(), np.zeros(topics), np.zeros(topics)
    seen, is_seen = np.zeros(topics, dtype=np.int64), np.zeros(topics, dtype=np.int64)
    place = filled = 0
    offsets[0] = 0
    for node in range(pairs.size - 1):
        some = 0
        for pair in range(pairs[node], pairs[node + 1]):
            for entry in range(place, place + size[pair]):
                k = np.int64(topic[entry])
                if share[entry] == 0:
                    continue
                if is_seen[k] == 0:
                    is_seen[k] = 1
                    seen[some] = k
                    some += 1
                count[k] += counts[pair] * (share[entry] / UNIT)
                absent[k] += counts[pair] * logs[share[entry]]
            place += size[pair]
        seen[:some].sort()
        for number in range(some):
            k = seen[number]
            node_topic[filled], node_count[filled], node_log_absent[filled] = k, count[k], absent[k]
            count[k] = absent[k] = 0.0
            is_seen[k] = 0
            filled += 1
        offsets[node + 1] = filled


@helper
def absence_logs() -> Array:
    """Return log(1 - q) of each number of steps, of which there are few."""
    logs = np.empty(UNIT + 1)
    for step in range(UNIT + 1):
        logs[step] = math.log(1.0 - min(step / UNIT, LARGEST))
    return logs
