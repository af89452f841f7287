"""Fold small and deep branches of trees of topics, so that drawings and pages of large trees stay readable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collapsium.pipeline.analysis.topics import Topic
from collapsium.pipeline.reporting.tree_layout import parents_of
from collapsium.storage.errors import OptionError

MAX_DRAWN = 60  # Entries of a picture, unless the user chooses which branches to fold


@dataclass(frozen=True)
class FoldedNodes(Topic):
    """An entry for nodes that are not shown: some children of a node, with all their descendants.

    The entry has the parent's id, the children's level, and no words; ``below`` is the sum over the children.
    """

    count: int = 0  # Number of nodes

    @property
    def label(self) -> str:
        """The entry's text in a drawing of a tree."""
        return f"… {self.count:,} more"


def check_folding(min_share: float | None, levels: int | None) -> None:
    """Raise `OptionError` if the minimum share is not in [0, 1], or there are less than one level."""
    if min_share is not None and not 0.0 <= min_share <= 1.0:
        raise OptionError(f"`min_share` {min_share}: expected a share from 0 to 1, such as 0.01")
    if levels is not None and levels < 1:
        raise OptionError(f"`levels` {levels}: expected 1, the root alone, or more")


def fold(
    tree: Sequence[Topic], *, min_share: float | None = None, levels: int | None = None, max_entries: int | None = None
) -> list[Topic]:
    """Fold the small and deep branches of a tree."""
    check_folding(min_share, levels)
    parents = parents_of([node.level or 0 for node in tree])
    if min_share is None and levels is None:
        shown = [True] * len(tree) if max_entries is None else _largest(tree, parents, max_entries)
    else:
        smallest, deepest = min_share or 0.0, levels or len(tree)
        shown = []
        for node, parent in zip(tree, parents, strict=True):
            large = (node.below or 0.0) >= smallest and (node.level or 0) < deepest
            shown.append(parent < 0 or (large and shown[parent]))
    return _with_folded_entries(tree, parents, shown)


def _largest(tree: Sequence[Topic], parents: Sequence[int], max_entries: int) -> list[bool]:
    """Mark the largest nodes, so that they and the entries for folded nodes are at most `max_entries`."""
    hidden_children = [0] * len(tree)
    for parent in parents:
        if parent >= 0:
            hidden_children[parent] += 1
    shown, rows = [False] * len(tree), 0
    # A node's `below` is at least that of each child, so parents come first except for rounding.
    for row in sorted(range(len(tree)), key=lambda row: (-(tree[row].below or 0.0), row)):
        parent = parents[row]
        # A node adds an entry, and one for its folded children; the last child takes the folded children's entry.
        added = 1 + (hidden_children[row] > 0) - (parent >= 0 and hidden_children[parent] == 1)
        if parent >= 0 and (not shown[parent] or rows + added > max_entries):
            continue
        shown[row] = True
        rows += added
        if parent >= 0:
            hidden_children[parent] -= 1
    return shown


def _with_folded_entries(tree: Sequence[Topic], parents: Sequence[int], shown: Sequence[bool]) -> list[Topic]:
    """Return the nodes that are shown, with entries for the folded ones."""
    # Number and share of the nodes that are folded below each shown node.
    count, share = [0] * len(tree), [0.0] * len(tree)
    for row, parent in enumerate(parents):
        if shown[row]:
            continue
        if shown[parent]:
            share[parent] += tree[row].below or 0.0
        while not shown[parent]:
            parent = parents[parent]
        count[parent] += 1
    entries: list[Topic] = []
    # Ancestors of the current node, from the root on.
    unfinished: list[int] = []

    def finish(level: int) -> None:
        while len(unfinished) > level:
            row = unfinished.pop()
            if count[row]:
                node = tree[row]
                entries.append(
                    FoldedNodes(
                        node.id, 0.0, [], parent=node.id, level=(node.level or 0) + 1, below=share[row],
                        signed=node.signed, count=count[row],
                    )
                )  # fmt: skip

    for row, node in enumerate(tree):
        if shown[row]:
            finish(node.level or 0)
            entries.append(node)
            unfinished.append(row)
    finish(0)
    return entries
