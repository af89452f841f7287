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

from typing import Annotated

from collapsium.pipeline.cli.command import Command, Flags, UsageError, argument, in_flags
from collapsium.pipeline.cli.options import SharesJsonOptions
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.reporting.options import (
    FoldingOptions,
    PlotOptions,
    SegmentPlotOptions,
    TimePlotOptions,
    TopicPlotOptions,
)

OPTIONS = (PlotOptions, SegmentPlotOptions, TimePlotOptions, FoldingOptions, TopicPlotOptions)


def execute(
    run: Annotated[str, argument("RUN", "a run or a model")],
    out: Annotated[str, argument("OUT", "file to write, whose name ends in .png or .svg")],
    /,
    flags: Flags,
) -> None:
    """Draw, and say what was drawn."""
    from collapsium.pipeline.analysis.topic_shares import topic_shares
    from collapsium.pipeline.reporting.plots.run import plot
    from collapsium.pipeline.reporting.plots.time import record_of

    options, of_time = flags.given(*OPTIONS), flags.of(PlotOptions).what == ("time",)
    if flags.json and not of_time:
        raise UsageError("--json: expected with --what time")
    found = plot(run, out, **options)
    if flags.json:
        shares = topic_shares(run, period=options.get("period"), corpus=options.get("corpus"))
        print_json(record_of(shares))
        return
    if of_time:
        print(f"{out}: {found[0]}")
        for note in found[1:]:
            print(plain(in_flags(note)))
        return
    print(f"{out}: {', '.join(found)}")


COMMAND = Command(execute, (*OPTIONS, SharesJsonOptions))
