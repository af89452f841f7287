"""Draw the course of a fit, topic sizes and a topic map as PNG or SVG.

This command needs the extra 'plots'. The panels, chosen with --what:
  score, objective  their value over the iterations
  change            share of the tokens that moved between topics
  topics            number of topics over the iterations
  parameters        each hyperparameter that has changed, over the iterations
  sizes             shares of the tokens, the largest first
  map               topics in the plane: topics with similar word probabilities
                    are close (t-SNE, or multidimensional scaling of Hellinger
                    distances below 30 topics, or classical scaling without
                    scikit-learn; the picture shows its quality)

Drawn only on request, each as a separate picture:
  labels    labels and topics in the plane, at most 40 each; a label is close to
            the topics that it raises (multidimensional scaling of the weights
            of `collapsium topics --labels`)
  segments  topic proportions along the segments of a document, with the mean
            Hellinger distance between neighbours. For families without
            segments, successive documents take the place of segments; with
            --document ID these are ID#1, ID#2, ... of `collapsium explode`.
            --compare-with draws a second run with the same vocabulary in
            matching colours
  time      shares of topics by period, for documents with dates: means weighted
            by tokens, with 95% intervals, and the number of documents. Missing
            and unreadable dates are counted
  tree      the largest nodes of a tree of topics, at most sixty entries; the
            others are folded into "… n more" (see --min-share and --levels)
"""

from __future__ import annotations

from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import SharesJsonOptions, UsageError, argument, in_flags, named_options, print_json
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.options import OverwriteOptions
from collapsium.pipeline.reporting.options import (
    FoldingOptions,
    PlotOptions,
    SegmentPlotOptions,
    TimePlotOptions,
    TopicPlotOptions,
)

EPILOG = """examples:
  collapsium plot RUN run.svg
  collapsium plot RUN score.png --what score
  collapsium plot RUN topics.svg --what sizes,map
  collapsium plot RUN labels.svg --what labels
  collapsium plot RUN document.svg --what segments --document ID
  collapsium plot RUN both.png --what segments --compare-with OTHER
  collapsium plot RUN time.svg --what time --period month --csv time.csv"""


def execute(
    run: Annotated[str, argument("RUN", "a run or a model")],
    out: Annotated[str, argument("OUT", "file to write: .png, .svg or .pdf")],
    /,
    *,
    options: PlotOptions,
    replacing: OverwriteOptions,
    of_segments: SegmentPlotOptions,
    of_periods: TimePlotOptions,
    folds: FoldingOptions,
    of_topics: TopicPlotOptions,
    output: SharesJsonOptions,
) -> None:
    """Draw, and print the names of the panels."""
    named = named_options(options, replacing, of_segments, of_periods, folds, of_topics)
    of_time = options.what == ("time",)
    if output.as_json and not of_time:
        raise UsageError("--json requires --what time alone")
    drawn = pipeline.plot(run, out, **named)
    if output.as_json:
        request = {name: named[name] for name in ("period", "cluster", "corpus") if name in named}
        shares = pipeline.topic_shares(run, **request)
        from collapsium.pipeline.reporting.plots import time as time_plots

        print_json(time_plots.record_of(shares))
        return
    if of_time:
        print(f"{out}: {drawn[0]}")
        for note in drawn[1:]:
            print(plain(in_flags(note)))
        return
    print(f"{out}: {', '.join(drawn)}")
