"""Trees of topics: their order, their levels, and what lies below their nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsium.workers.arrays.ranking import largest
from collapsium.workers.families.family import Description

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
