"""Orders of the nodes of trees, and trees for simulation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def depth_first(parent: Ints, weight: npt.NDArray[np.generic]) -> Ints:
    """Return the nodes of a tree, each before those below it."""
    below: dict[int, list[int]] = {}
    # The last node comes first off the stack.
    for node in np.lexsort((-np.arange(parent.size), weight)):
        below.setdefault(int(parent[node]), []).append(int(node))
    nodes, waiting = [], list(below.get(-1, []))
    while waiting:
        nodes.append(waiting.pop())
        waiting += below.get(nodes[-1], [])
    return np.array(nodes, dtype=np.int64)


def regular_tree(branching: Sequence[int]) -> Ints:
    """Return the parents of the nodes of a tree, level by level; the nodes of a level have equally many children."""
    parent, last = [-1], [0]
    for children in branching:
        above = [node for node in last for _ in range(children)]
        last = list(range(len(parent), len(parent) + len(above)))
        parent += above
    return np.array(parent, dtype=np.int64)
