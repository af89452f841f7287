"""Print the topics of a model, the largest first: id, share of the tokens and most probable words.

Of a family whose topics are a tree, the nodes, depth-first, siblings by size, words indented
by level: id; share, of the tokens at the node; below, of those at it and all nodes below it.
Words of signed loadings, of which a minus sign marks the negative ones, fall by magnitude.

Of restarts or kept samples, the first restart's or the last sample's topics, with a
column between: how stable each is, 1 where all members have the very same topic.

    collapsar topics RUN
    collapsar topics RUN --picture tree.svg --picture tree.png --graphml tree.graphml
    collapsar topics RUN --json

Where topics are those of labels, the label stands before the words.

--json prints a list in the same order, an object a topic: id, title where it is that of a
label, share, stability where there are several members, and words, objects of word and
probability (or loading); a tree's nodes have parent (the id of the node above, null for
the root), level (0 for the root) and below.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from collapsar.pipeline.commands.options import add_json, print_json

if TYPE_CHECKING:
    from collapsar.pipeline.describing import Topic

HELP = "print the topics of a model, or draw their tree"
WORDS, DRAWN = 10, 5


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument(
        "run", metavar="RUN", help="a run, a model, or a simulated corpus, whose true topics are printed"
    )
    parser.add_argument(
        "--words", type=int, metavar="N", help=f"words of each (default: {WORDS}, and {DRAWN} in pictures)"
    )
    add_json(parser)
    group = parser.add_argument_group("trees", "files to write besides; refused where topics are no tree")
    group.add_argument(
        "--picture",
        action="append",
        default=[],
        metavar="FILE",
        help="draw the tree, by the file's ending as .svg or .png; may be given again (extra: plots)",
    )
    group.add_argument(
        "--graphml",
        metavar="FILE",
        help="write the tree for networkx, Gephi, yEd and others: nodes with label, words, share, below and level, "
        "edges from parent to child",
    )


def run(arguments: argparse.Namespace) -> None:
    """Print the topics, and write their tree."""
    from collapsar.pipeline.describing import topics
    from collapsar.pipeline.treefiles import check, write

    pictures, graph, words = arguments.picture, arguments.graphml, arguments.words
    check(pictures, graph)
    found = topics(arguments.run, WORDS if words is None else words)
    write(
        found, pictures, graph, title=f"{arguments.run}: {len(found):,} nodes", words=DRAWN if words is None else words
    )
    if arguments.json:
        several = any(topic.stability is not None for topic in found)
        print_json([_record(topic, several) for topic in found])
        return
    _print(found)
    for path in [*pictures, *([] if graph is None else [graph])]:
        print(f"{path}: a tree of {len(found):,} nodes")


def _record(topic: Topic, several: bool) -> dict[str, Any]:
    value = "loading" if topic.signed else "probability"
    tree = {} if topic.level is None else {"parent": topic.parent, "level": topic.level, "below": topic.below}
    return {
        "id": topic.id,
        **({} if topic.title is None else {"title": topic.title}),
        **tree,
        "share": topic.share,
        **({"stability": topic.stability} if several else {}),
        "words": [{"word": word, value: p} for word, p in topic.words],
    }


def _print(found: Sequence[Topic]) -> None:
    """Print a line a topic; where they are a tree, under the columns' names."""
    from collapsar.pipeline.progress import plain

    several = any(topic.stability is not None for topic in found)
    if found and found[0].level is not None:
        print(f"{'id':>5} {'share':>8} {'below':>8}{' stable' if several else ''}  words")
    for topic in found:
        stable = (f" {topic.stability:6.3f}" if topic.stability is not None else f" {'':6}") if several else ""
        title = "" if topic.title is None else f"{plain(topic.title)}: "
        below, indent = ("", "") if topic.level is None else (f" {topic.below:8.3%}", "  " * topic.level)
        print(f"{topic.id:5d} {topic.share:8.3%}{below}{stable}  {indent}{title}{plain(' '.join(topic.names))}")
