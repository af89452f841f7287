"""Fold small and deep branches of trees of topics, so that pictures and pages of large trees stay readable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collapsium.pipeline.analysis.topics import Topic
from collapsium.pipeline.reporting.tree_layout import parents_of
from collapsium.storage.errors import OptionError

DRAWN = 60  # entries of a picture, unless it is said which branches are folded


@dataclass(frozen=True)
class FoldedNodes(Topic):
    """Nodes that are not shown: some children of a node, and all that is below them.

    It has the id of the node that they are below, their level, and no words; ``below`` is the sum of the children's.

    Attributes
    ----------
    count : int
        How many nodes they are.
    """

    count: int = 0

    @property
    def label(self) -> str:
        """What stands for them in a picture of a tree."""
        return f"… {self.count:,} more"


def check_folding(min_share: float | None, levels: int | None) -> None:
    """Refuse a share that is none, and less than one level; `OptionError` says what was expected."""
    if min_share is not None and not 0.0 <= min_share <= 1.0:
        raise OptionError(f"`min_share` {min_share}: expected a share from 0 to 1, such as 0.01")
    if levels is not None and levels < 1:
        raise OptionError(f"`levels` {levels}: expected 1, the root alone, or more")


def fold(
    tree: Sequence[Topic], *, min_share: float | None = None, levels: int | None = None, most: int | None = None
) -> list[Topic]:
    """Fold the small and deep branches of a tree.

    Parameters
    ----------
    tree : sequence of Topic
        Its nodes, depth-first, with ``level`` and ``below``.
    min_share : float, optional
        Share of the tokens at a node and below it, under which it is folded; roots never are.
    levels : int, optional
        Levels that are shown, the root's being the first.
    most : int, optional
        Where neither is given, the entries to return at most: the largest nodes are shown. By default all are.

    Returns
    -------
    list of Topic
        The nodes that are shown, depth-first; behind those below a node an entry of `FoldedNodes` for its children
        that are not.
    """
    check_folding(min_share, levels)
    above = parents_of([node.level or 0 for node in tree])
    if min_share is None and levels is None:
        shown = [True] * len(tree) if most is None else _largest(tree, above, most)
    else:
        least, deepest = min_share or 0.0, levels or len(tree)
        shown = []
        for node, parent in zip(tree, above, strict=True):
            large = (node.below or 0.0) >= least and (node.level or 0) < deepest
            shown.append(parent < 0 or (large and shown[parent]))
    return _with_stubs(tree, above, shown)


def _largest(tree: Sequence[Topic], above: Sequence[int], most: int) -> list[bool]:
    """Choose the largest nodes, so that they and the stubs of what is below them are no more than `most`."""
    children = [0] * len(tree)  # of a node, those that are not shown yet
    for parent in above:
        if parent >= 0:
            children[parent] += 1
    shown, rows = [False] * len(tree), 0
    # What is below a node is no more than what is at it and below, so that parents come first but for rounding.
    for place in sorted(range(len(tree)), key=lambda one: (-(tree[one].below or 0.0), one)):
        parent = above[place]
        # A node takes a row, and another for the children that it may have; the last child takes its stub's row.
        added = 1 + (children[place] > 0) - (parent >= 0 and children[parent] == 1)
        if parent >= 0 and (not shown[parent] or rows + added > most):
            continue
        shown[place] = True
        rows += added
        if parent >= 0:
            children[parent] -= 1
    return shown


def _with_stubs(tree: Sequence[Topic], above: Sequence[int], shown: Sequence[bool]) -> list[Topic]:
    """Return the nodes that are shown, with entries for the others."""
    count, share = [0] * len(tree), [0.0] * len(tree)  # of a shown node, of what is folded below it
    for place, parent in enumerate(above):
        if shown[place]:
            continue
        if shown[parent]:
            share[parent] += tree[place].below or 0.0
        while not shown[parent]:
            parent = above[parent]
        count[parent] += 1
    found: list[Topic] = []
    unfinished: list[int] = []  # the nodes above the one at hand, from the root on

    def finish(level: int) -> None:
        while len(unfinished) > level:
            place = unfinished.pop()
            if count[place]:
                node = tree[place]
                found.append(
                    FoldedNodes(
                        node.id, 0.0, [], parent=node.id, level=(node.level or 0) + 1, below=share[place],
                        signed=node.signed, count=count[place],
                    )
                )  # fmt: skip

    for place, node in enumerate(tree):
        if shown[place]:
            finish(node.level or 0)
            found.append(node)
            unfinished.append(place)
    finish(0)
    return found
