"""Trees of topics: their order, their levels, and what lies below their nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.workers.families.family import Description

CELLS = 1 << 18  # Numbers that are ranked at a time: where many are equal, each takes some index arrays

# Groups of columns for each column to return: with more, fewer numbers pass the threshold that the maxima give
GROUPS = 16

MIN_GROUP = 4  # Least columns of a group: of smaller ones the maxima are hardly fewer than the numbers themselves


def largest(values: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.int64]:
    """Return the columns of the largest values of each row."""
    rows, columns = values.shape
    count = min(count, columns)
    ranked = np.zeros((rows, count), dtype=np.int64)
    if count == 0:
        return ranked
    step = max(CELLS // columns, 1)
    # At most the count-th largest value of each row, and hardly less, is a threshold: at least as many values as maxima
    # exceed a number, and maxima of groups are fast to find.
    groups = GROUPS * count
    size = columns // groups
    for low in range(0, rows, step):
        some = maxima = values[low : low + step]
        if size >= MIN_GROUP:
            maxima = some[:, : size * groups].reshape(len(some), size, groups).max(axis=1)
        place = maxima.shape[1] - count
        threshold = np.partition(maxima, place, axis=1)[:, place]
        # `nonzero` of a matrix takes several times as long.
        row, column = np.divmod(np.flatnonzero(some >= threshold[:, np.newaxis]), columns)
        order = np.lexsort((-some[row, column], row))
        first = np.searchsorted(row, np.arange(len(some)))
        ranked[low : low + step] = column[order[first[:, np.newaxis] + np.arange(count)]]
    return ranked


Vector = npt.NDArray[np.float64]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shape:
    """Order, levels and total shares of a tree's nodes."""

    rows: Ints  # The nodes depth-first, siblings in the order of the input; int64 (nodes,)
    level: Ints  # Steps from the root; int64 (nodes,)
    below: npt.NDArray[np.float64]  # The sum of the shares of each node and all nodes below it; float64 (nodes,)


def shape_of(ids: npt.NDArray[np.int64], parent: npt.NDArray[np.int64], share: npt.NDArray[np.float64]) -> Shape:
    """Return the order, the levels and the total shares of a tree's nodes."""
    children: dict[int, list[int]] = {}
    for row, above in enumerate(parent.tolist()):
        children.setdefault(above, []).append(row)
    names = ids.tolist()
    level, below = np.zeros(len(names), dtype=np.int64), np.array(share, dtype=np.float64)
    rows: list[int] = []
    waiting = [(row, 0) for row in reversed(children.get(-1, []))]
    while waiting:
        row, depth = waiting.pop()
        rows.append(row)
        level[row] = depth
        waiting += [(child, depth + 1) for child in reversed(children.get(names[row], []))]
    if sorted(rows) != list(range(len(names))) or len(set(names)) != len(names):
        raise ValueError("expected a tree: each id once, each node below a root, each parent a node")
    row_of = {name: row for row, name in enumerate(names)}
    for row in reversed(rows):
        if parent[row] >= 0:
            below[row_of[int(parent[row])]] += below[row]
    return Shape(np.array(rows, dtype=np.int64), level, below)


def describe(
    word_topic: npt.NDArray[np.floating],
    prior: Vector,
    total: float,
    topic: Vector,
    count: int,
    tokens: Vector | None = None,
) -> Description:
    """Describe topics, the largest first, by phi_kw = (b_w + E[n_kw]) / (B + E[n_k])."""
    tokens = topic if tokens is None else tokens
    order = np.argsort(-tokens, kind="stable")
    phi = ((np.maximum(word_topic, 0.0) + prior[:, np.newaxis]) / (total + topic))[:, order].T
    top = largest(phi, count)
    share = tokens[order] / max(float(tokens.sum()), 1e-300)
    return Description(order.astype(np.int64), share, top, np.take_along_axis(phi, top, axis=1))


def holding(topic: npt.ArrayLike, part: float = 0.99) -> int:
    """Return the number of the largest topics that together hold a part of all tokens."""
    falling = np.sort(np.asarray(topic, dtype=np.float64))[::-1]
    return min(int(np.searchsorted(np.cumsum(falling), part * falling.sum()) + 1), falling.size)
