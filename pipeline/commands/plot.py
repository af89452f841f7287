"""Draw a run: the course of its fit, the sizes of its topics and their map, as PNG or SVG (extra: plots).

    collapsar plot RUN run.svg
    collapsar plot RUN score.png --what score
    collapsar plot RUN topics.svg --what sizes --what map
    collapsar plot RUN labels.svg --what labels
    collapsar plot RUN document.svg --what segments --document ID
    collapsar plot RUN both.png --what segments --beside OTHER

score, objective: over iterations. topics: how many there are, over iterations. parameters: each hyperparameter
that has changed, over iterations. sizes: shares of the tokens, the largest first. map: topics in the plane,
by classical scaling of the Hellinger distances of their words' probabilities. labels: of families that take labels,
at most 40 labels and 40 topics in the plane, close where a label raises a topic (multidimensional scaling of the
weights that `collapsar topics --labels` lists); a picture by itself.
segments: topic proportions along the segments of a document, by default of that which has most; the largest
topics have colours, the others are grey. Of a family without segments, documents in their order stand in the
place of segments (with --document, what `collapsar flatten` made of that one: ID#1, ID#2, ...). --beside draws
another run next to it, on the same vocabulary, whose topics get the colours of those that they are nearest to.
The mean Hellinger distance between neighbours is told; a picture by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

HELP = "draw the course of a fit, its topics' sizes and their map, as PNG or SVG"
WHAT = ("score", "objective", "topics", "parameters", "sizes", "map", "labels", "segments")


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("run", metavar="RUN", help="a run or a model")
    parser.add_argument("out", metavar="OUT", help="file to write, whose name ends in .png or .svg")
    parser.add_argument(
        "--what",
        action="append",
        choices=WHAT,
        metavar="WHAT",
        help=f"{', '.join(WHAT)}; may be given again (default: all that there is, but labels and segments)",
    )
    group = parser.add_argument_group("segments")
    group.add_argument("--document", metavar="ID", help="the document (default: that of most segments)")
    group.add_argument(
        "--topics", type=_ids, metavar="ID,...", help="topics that have colours, ten at most (default: the largest)"
    )
    group.add_argument("--beside", metavar="RUN", help="another run, to be drawn next to it")
    group.add_argument("--corpus", metavar="CORPUS", help="where the training corpus of the run lies by now")


def _ids(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


_ids.__name__ = "ids of topics"  # as argparse names what it expected


def run(arguments: argparse.Namespace) -> None:
    """Draw, and say what was drawn."""
    from collapsar.pipeline.runplots import plot

    found = plot(
        arguments.run,
        arguments.out,
        what=arguments.what,
        document=arguments.document,
        topics=arguments.topics,
        beside=arguments.beside,
        corpus=arguments.corpus,
    )
    print(f"{arguments.out}: {', '.join(found)}")
