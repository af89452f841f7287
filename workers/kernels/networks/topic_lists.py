"""Short lists of topics for each pair: the few that matter to it, in steps of 2^-15 that add up to one.

Weights are dense, so no topic is lost for good; of what a pair gives, only topics above a share of it are kept, at most
so many, and what the others had goes to these in proportion.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.workers.kernels.cvb.active import UNIT
from collapsium.workers.kernels.jit import (
    F4_2,
    I4,
    I8,
    OUT_F4,
    OUT_F8_2,
    OUT_I8,
    OUT_U1,
    OUT_U2,
    U1,
    U2,
    helper,
    i8,
    kernel,
)
from collapsium.workers.kernels.moments import LARGEST

Array = npt.NDArray[Any]

MOST = 16  # topics of a pair
SMALLEST = np.float32(1.0 / 256)  # share of a pair below which a topic is left out


@helper
def choose(weight: Array, total: Any, place: Any, topic: Array, share: Array) -> Any:
    """Write a pair's list from `place` on; return how many topics it has."""
    size, cut = 0, total * SMALLEST
    for k in range(weight.size):
        if weight[k] <= cut:
            continue
        if size < MOST:
            topic[place + size] = k
            size += 1
            continue
        least = 0
        for other in range(1, MOST):
            if weight[topic[place + other]] < weight[topic[place + least]]:
                least = other
        if weight[k] > weight[topic[place + least]]:
            topic[place + least] = k
    if size == 0:  # more topics than 256, all alike: none is above its share
        topic[place] = np.argmax(weight)
        size = 1
    kept, largest, left = 0.0, 0, np.int64(UNIT)
    for one in range(size):
        kept += float(weight[topic[place + one]])
        if weight[topic[place + one]] > weight[topic[place + largest]]:
            largest = one
    for one in range(size):
        steps = np.int64(float(weight[topic[place + one]]) / kept * (UNIT - 0.01)) if kept > 0.0 else 0
        share[place + one] = steps
        left -= steps
    share[place + largest] += left
    return size


@kernel(I8, I4, F4_2, F4_2, OUT_U1, OUT_U2, OUT_U2, OUT_I8)
def give(
    offsets: Array, position: Array, theta: Array, phi: Array, size: Array, topic: Array, share: Array, filled: Array
) -> None:
    """Fill pairs' lists in proportion to theta_dk phi_kw; twin: `naive.network_expected.give`.

    Parameters
    ----------
    offsets : int64, shape (documents + 1,)
        Where each document's pairs begin.
    position : int32, shape (pairs,)
        Row of each pair.
    theta, phi : float32, shape (documents, topics) and (rows, topics)
        Proportions, and probabilities of words.
    size : uint8, shape (pairs,)
        Filled with how many topics each pair has.
    topic, share : uint16, shape (room,)
        Filled with them, pair by pair, and their responsibilities.
    filled : int64, shape (1,)
        Filled with how much room that took.
    """
    weight, place = np.empty(theta.shape[1], dtype=np.float32), 0
    for document in range(offsets.size - 1):
        for pair in range(offsets[document], offsets[document + 1]):
            row, total = position[pair], np.float32(0.0)
            for k in range(weight.size):
                weight[k] = theta[document, k] * phi[row, k]
                total += weight[k]
            found = choose(weight, total, place, topic, share)
            size[pair] = found
            place += found
    filled[0] = place


@kernel(I4, I4, U1, U2, U2, OUT_F8_2)
def count_shares(position: Array, counts: Array, size: Array, topic: Array, share: Array, row_topic: Array) -> None:
    """Add E[n_kw] of pairs' lists; twin: `naive.network_expected.count`.

    Parameters
    ----------
    position, counts : int32, shape (pairs,)
        Row and count of each pair.
    size, topic, share
        As `give` fills them.
    row_topic : float64, shape (rows, topics)
        Increased.
    """
    place = 0
    for pair in range(position.size):
        for entry in range(place, place + size[pair]):
            row_topic[position[pair], topic[entry]] += counts[pair] * (share[entry] / UNIT)
        place += size[pair]


@kernel(I8, I4, U1, U2, U2, i8, OUT_I8, OUT_U2, OUT_F4, OUT_F4)
def list_shares(
    pairs: Array, counts: Array, size: Array, topic: Array, share: Array, topics: int, lists: Array, own_topic: Array,
    own_count: Array, own_absent: Array,
) -> None:  # fmt: skip
    """List E[n_jk] and Z[n_jk] of each node's own tokens; twin: `naive.network_expected.own`.

    Parameters
    ----------
    pairs : int64, shape (nodes + 1,)
        Where each node's pairs begin.
    counts : int32, shape (pairs,)
        Count of each pair.
    size, topic, share
        As `give` fills them.
    topics : int
        How many there are.
    lists : int64, shape (nodes + 1,)
        Filled with where each node's topics begin.
    own_topic : uint16, shape (room,)
        Filled, as far as there are topics, with these, ascending.
    own_count, own_absent : float32, shape (room,)
        Filled with sum c q and sum c log(1 - q).
    """
    logs, count, absent = absences(), np.zeros(topics), np.zeros(topics)
    seen, there = np.zeros(topics, dtype=np.int64), np.zeros(topics, dtype=np.int64)
    place = filled = 0
    lists[0] = 0
    for node in range(pairs.size - 1):
        some = 0
        for pair in range(pairs[node], pairs[node + 1]):
            for entry in range(place, place + size[pair]):
                k = np.int64(topic[entry])
                if share[entry] == 0:
                    continue
                if there[k] == 0:
                    there[k] = 1
                    seen[some] = k
                    some += 1
                count[k] += counts[pair] * (share[entry] / UNIT)
                absent[k] += counts[pair] * logs[share[entry]]
            place += size[pair]
        seen[:some].sort()
        for one in range(some):
            k = seen[one]
            own_topic[filled], own_count[filled], own_absent[filled] = k, count[k], absent[k]
            count[k] = absent[k] = 0.0
            there[k] = 0
            filled += 1
        lists[node + 1] = filled


@helper
def absences() -> Array:
    """Return log(1 - q) of each number of steps; few values there are."""
    found = np.empty(UNIT + 1)
    for step in range(UNIT + 1):
        found[step] = math.log(1.0 - min(step / UNIT, LARGEST))
    return found
