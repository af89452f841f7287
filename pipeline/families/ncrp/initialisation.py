"""How a tree of topics begins: clusters of documents, documents that enter by and by, or another tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from collapsium.pipeline.families.base import Summary
from collapsium.pipeline.families.ncrp import node_moves
from collapsium.pipeline.families.ncrp import prior as nested
from collapsium.pipeline.families.ncrp.node_moves import Moves
from collapsium.workers import special_functions as special
from collapsium.workers.arrays.delta import Arrays, Delta
from collapsium.workers.arrays.random_streams import Stream
from collapsium.workers.families.ncrp.initialisation import ALL
from collapsium.workers.families.ncrp.tree import FREE, Tree, ahead

FIRST_DOCUMENTS = 8  # that enter first in a gradual start
SOME = 1e-9  # unsettled, but no token waits


def for_next(moves: Moves, end_log: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[Any]]:
    """Return the tree of the coming sweep as globals hold it, with the table of moves that leads there."""
    return {
        "next_parent": moves.tree.parents,
        "next_depth": np.array(moves.tree.depth),
        "next_end_log": np.maximum(end_log, -1e300),
        **moves.table(),
    }


def wanted(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64], *, roots: bool) -> dict[str, npt.NDArray[Any]]:
    """Return what the coming sweep shall tell: pairs of nodes to compare, and whether the affinity of all."""
    return {"wanted_first": first, "wanted_second": second, "want_roots": np.array(roots)}


def widening(summary: Summary) -> float:
    """Return by what documents grow in number in an iteration of a gradual start: all are in after half of them."""
    share = summary.documents / FIRST_DOCUMENTS
    return float(max(2.0, share ** (1.0 / max(summary.iterations // 2, 1)))) if share > 1.0 else 2.0


def candidates(globals: Arrays, delta: Delta, config: Any, stream: Stream) -> Arrays:
    """Take the documents that may begin nodes: each a leaf, or in a gradual start the first of them a path."""
    found = delta.ids["document"][: int(globals["seeds_wanted"])] if "candidates" in delta else np.zeros(0, np.int64)
    after = {**globals, "candidates": found, "root_seeded": np.array(1)}
    if config.start == "gradual":
        return entering(after, Moves(ahead(globals)), found[found <= int(globals["limit"])], stream)
    tree = node_moves.first_tree(globals["node_parent"].size, max(found.size, 1))
    even = np.where(tree.levels == 1, 1.0 / max(found.size, 1), 0.0)
    end_log = np.where(tree.levels >= 0, special.log(np.maximum(even, 1e-3 / max(found.size, 1))), -np.inf)
    columns = np.zeros((found.size, config.depth - 1), dtype=np.int64)
    columns[:, 0] = np.arange(1, found.size + 1)
    again = {"seeding": np.array(1), "another_round": np.array(1.0)}
    return {**after, **again, **for_next(Moves(tree), end_log), "seeds": found, "seed_columns": columns}


def entering(
    globals: dict[str, npt.NDArray[Any]], moves: Moves, seeds: npt.NDArray[np.int64], stream: Stream
) -> dict[str, npt.NDArray[Any]]:
    """Give each of some documents a new path, whose nodes begin with its words; a round for that comes next."""
    # Where a path leaves the tree is drawn from the nested Chinese restaurant process; the leaf is always new.
    generator, gamma = stream.at(purpose=f"{stream.purpose} entering").generator(), float(globals["gamma"])
    passes, columns, taken = np.array(moves.summed(np.asarray(globals["node_passes"]))), [], []
    for seed in seeds:
        end = 0
        for _ in range(moves.tree.depth - 2):
            children = moves.tree.children(end)
            weights = np.append(passes[children], gamma)
            place = int(np.searchsorted(np.cumsum(weights), generator.random() * weights.sum(), side="right"))
            if place >= children.size:
                break
            end = int(children[place])
        before = set(moves.tree.columns.tolist())
        moves = moves.grown([end])
        new = [int(column) for column in moves.tree.columns if int(column) not in before]
        if not new:
            break  # there is no room
        path = moves.tree.path(new[-1])
        passes[path] += 1.0
        columns.append(new + [0] * (moves.tree.depth - 1 - len(new)))
        taken.append(seed)
    ends = np.where(moves.tree.levels == moves.tree.depth - 1, np.maximum(passes, 0.0), 0.0)
    found = nested.sticks(moves.tree, moves.tree.gathered(ends), ends, gamma)
    return {
        **globals,
        **for_next(moves, nested.end_logs(moves.tree, found, gamma)),
        **{f"next_{name}": np.array(count) for name, count in moves.counts.items()},
        **wanted(np.zeros(0, np.int64), np.zeros(0, np.int64), roots=False),
        "seeds": np.array(taken, dtype=np.int64),
        "seed_columns": np.array(columns, dtype=np.int64).reshape(-1, moves.tree.depth - 1),
        "seeding": np.array(1),
        "unsettled": np.array((float(globals["absent"]) + SOME) * float(globals["planned"] > 0)),
        "another_round": np.array(float(int(globals["clustering"]) == 0)),  # later ones begin the next iteration
    }


def seeded(globals: Arrays, delta: Delta) -> Arrays:
    """Take the words of the documents that begin nodes; a sweep ends the iteration."""
    tree = ahead(globals)
    return {
        **globals,
        "node_parent": tree.parents,
        "depth": np.array(tree.depth),
        "node_tokens": delta["node_tokens"],
        "end_log": globals["next_end_log"],
        **Moves(tree).table(),
        "seeding": np.array(0),
        "root_seeded": np.array(0),
        "want_roots": globals["longest"] == 1,
        "another_round": np.array(1.0),
    }


def warmed(globals: Arrays, delta: Delta, config: Any) -> Arrays:
    """Begin from the tree of another run."""
    tree = Tree(delta["warm_parent"].astype(np.int64) + FREE, config.depth)
    ends, gamma = delta["ends"], float(globals["gamma"])
    passes = tree.gathered(ends)
    end_log = nested.end_logs(tree, nested.sticks(tree, passes, ends, gamma), gamma)
    return {
        **globals,
        "node_parent": tree.parents,
        "depth": np.array(tree.depth),
        "node_tokens": delta["node_tokens"],
        "node_passes": passes,
        "end_log": np.maximum(end_log, -1e300),
        **for_next(Moves(tree), end_log),
        "limit": np.array(ALL, dtype=np.int64),
        "unsettled": np.array(0.0),
        "another_round": np.array(1.0),
    }
