"""Draw a run: the course of its fit, the sizes of its topics and their map, as PNG or SVG (extra: plots).

    collapsium plot RUN run.svg
    collapsium plot RUN score.png --what score
    collapsium plot RUN topics.svg --what sizes --what map
    collapsium plot RUN labels.svg --what labels
    collapsium plot RUN document.svg --what segments --document ID
    collapsium plot RUN both.png --what segments --beside OTHER
    collapsium plot RUN time.svg --what time --period month --csv time.csv

score, objective: over iterations. topics: how many there are, over iterations. parameters: each hyperparameter
that has changed, over iterations. sizes: shares of the tokens, the largest first. map: topics in the plane,
near where their words' probabilities are alike (t-SNE or, below 30 topics, multidimensional scaling of Hellinger
distances; the picture says how far to trust it). labels: of families that take labels,
at most 40 labels and 40 topics in the plane, close where a label raises a topic (multidimensional scaling of the
weights that `collapsium topics --labels` lists); a picture by itself.
segments: topic proportions along the segments of a document, by default of that which has most; the largest
topics have colours, the others are grey. Of a family without segments, documents in their order stand in the
place of segments (with --document, what `collapsium flatten` made of that one: ID#1, ID#2, ...). --beside draws
another run next to it, on the same vocabulary, whose topics get the colours of those that they are nearest to.
The mean Hellinger distance between neighbours is told; a picture by itself.
time: shares of topics by period, where documents have dates: the mean of their proportions, weighted by their tokens,
with bands of 95% intervals, and how many documents there are. The period is one of which there are about 10 to 60, or
--period. Drawn are the largest topics and those that change most, or --topics; --csv has all. Dates that are missing
or cannot be read are counted. A picture by itself.
tree: of families whose topics are a tree, its largest nodes, sixty entries at most; the others are folded into "… n
more" of the node above, with their share. --min-share and --levels say otherwise which. A picture by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from collapsium.pipeline.cli.output import print_json

HELP = "draw the course of a fit, its topics' sizes and their map, as PNG or SVG"
WHAT = ("score", "objective", "topics", "parameters", "sizes", "map", "labels", "segments", "time", "tree")


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("run", metavar="RUN", help="a run or a model")
    parser.add_argument("out", metavar="OUT", help="file to write, whose name ends in .png or .svg")
    parser.add_argument(
        "--what",
        action="append",
        choices=WHAT,
        metavar="WHAT",
        help=f"{', '.join(WHAT)}; may be given again (default: all that there is, but labels, segments, time and tree)",
    )
    parser.set_defaults(refuse=parser.error)
    group = parser.add_argument_group("segments")
    group.add_argument("--document", metavar="ID", help="the document (default: that of most segments)")
    group.add_argument("--beside", metavar="RUN", help="another run, to be drawn next to it")
    group = parser.add_argument_group("time")
    group.add_argument("--period", metavar="PERIOD", help="hour, day, week, month, quarter, year or decade")
    group.add_argument("--csv", metavar="FILE", help="write the shares of all topics: a row for each period and topic")
    group.add_argument("--json", action="store_true", help="print the shares of all topics")
    group = parser.add_argument_group("tree")
    group.add_argument(
        "--min-share",
        type=float,
        metavar="SHARE",
        help="fold nodes that have less, with those below them, such as 0.01",
    )
    group.add_argument(
        "--levels", type=int, metavar="N", help="fold nodes below the first N levels; the root is the first"
    )
    group = parser.add_argument_group("segments and time")
    group.add_argument(
        "--topics",
        type=_ids,
        metavar="ID,...",
        help="topics that have colours, ten at most, or panels, twelve at most (default: the largest; of time also "
        "those that change most)",
    )
    group.add_argument("--corpus", metavar="CORPUS", help="where the training corpus of the run lies by now")


def _ids(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


_ids.__name__ = "ids of topics"  # as argparse names what it expected


def run(arguments: argparse.Namespace) -> None:
    """Draw, and say what was drawn."""
    from collapsium.pipeline.formatting import plain
    from collapsium.pipeline.reporting.plots.run import plot

    if arguments.json and arguments.what != ["time"]:
        arguments.refuse("--json: expected with --what time")
    found = plot(
        arguments.run,
        arguments.out,
        what=arguments.what,
        document=arguments.document,
        topics=arguments.topics,
        beside=arguments.beside,
        corpus=arguments.corpus,
        period=arguments.period,
        csv=arguments.csv,
        min_share=arguments.min_share,
        levels=arguments.levels,
    )
    if arguments.json:
        from collapsium.pipeline.analysis.topic_shares import topic_shares
        from collapsium.pipeline.reporting.plots.time import record_of

        print_json(record_of(topic_shares(arguments.run, period=arguments.period, corpus=arguments.corpus)))
        return
    if arguments.what == ["time"]:
        print(f"{arguments.out}: {found[0]}")
        for note in found[1:]:
            print(plain(note))
        return
    print(f"{arguments.out}: {', '.join(found)}")
