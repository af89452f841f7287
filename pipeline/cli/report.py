"""The commands `collapsium report`, `collapsium plot` and `collapsium export`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.analysis.options import EffectOptions
from collapsium.pipeline.cli.command import (
    JsonOptions,
    SharesJsonOptions,
    UsageError,
    argument,
    in_flags,
    named_options,
    print_json,
)
from collapsium.pipeline.executors.schedulers import CertificateOptions, SchedulerOptions
from collapsium.pipeline.formatting import counted, plain
from collapsium.pipeline.monitoring.console import counting
from collapsium.pipeline.options import OverwriteOptions, RankOptions
from collapsium.pipeline.reporting.options import (
    ExportOptions,
    FieldOptions,
    FoldingOptions,
    PlotOptions,
    ReportOptions,
    SegmentPlotOptions,
    TableOptions,
    TimePlotOptions,
    TopicPlotOptions,
)

REPORT_EPILOG = """examples:
  collapsium report RUN OUT.html
  collapsium report RUN OUT.html --rank-by frex
  collapsium report RUN OUT.html --texts 'news/*.jsonl.gz'
  collapsium report RUN OUT.html --effects '~ party + bs(year, df=5)' --cluster speech
  collapsium report RUN OUT.html --words-by party --words-over decade --word-topics 3,7"""


class OutputOptions(JsonOptions, OverwriteOptions):
    """Format of the sizes, and replacement of an earlier report."""


def report(
    run: Annotated[str, argument("RUN", "a run, finished or not, or a model")],
    out: Annotated[str, argument("OUT.html", "file to write")],
    /,
    *,
    options: ReportOptions,
    fields: FieldOptions,
    effect: EffectOptions,
    ranking: RankOptions,
    folds: FoldingOptions,
    scheduling: SchedulerOptions,
    certificates: CertificateOptions,
    output: OutputOptions,
) -> None:
    """Write an HTML report of a run: topics and their map, examples, labels, the fit.

    The report is a single file without external resources: it opens in any browser
    and can be sent or archived. It needs only the run. If the run has no summary of its
    documents, the example documents are read from the corpus, if it still exists.

    Sections on fields of the documents read the corpus: --effects estimates how topics
    differ by fields, as `collapsium effects` does, --words-by compares the words of
    groups, and --words-over follows words over time.

    --json prints an object with the numbers of topics and examples, notes, and the
    quality of the map: its method, Kruskal's stress-1 (stress) and neighbourhood
    preservation (preserved), the share of each topic's `near` nearest topics that are
    among the `among` nearest on the map, with the share in a random map (chance).
    """
    with counting("reading") as progress:
        summary = pipeline.report(
            run,
            out,
            **named_options(options, fields, effect, ranking, folds, scheduling),
            overwrite=output.overwrite,
            tls=certificates.tls,
            progress=progress,
        )
    if output.as_json:
        print_json({name: value for name, value in asdict(summary).items() if name != "page"})
        return
    print(f"{out}: {counted(summary.topics, 'topic')}, {counted(summary.examples, 'example document')}")
    for note in summary.notes:
        print(plain(in_flags(note)))


PLOT_EPILOG = """examples:
  collapsium plot RUN run.svg
  collapsium plot RUN score.png --what score
  collapsium plot RUN topics.svg --what sizes,map
  collapsium plot RUN labels.svg --what labels
  collapsium plot RUN document.svg --what segments --document ID
  collapsium plot RUN both.png --what segments --compare-with OTHER
  collapsium plot RUN time.svg --what time --period month --csv time.csv"""


def plot(
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
    """Draw the course of a fit, topic sizes and a topic map as PNG, SVG or PDF.

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


EXPORT_EPILOG = """examples:
  collapsium export RUN vis.json --to pyldavis
  python -c "import json, pyLDAvis; pyLDAvis.save_html(pyLDAvis.prepare(**json.load(open('vis.json'))), 'vis.html')"
  collapsium export RUN cells.h5ad --to anndata
  collapsium export RUN folder --to csv"""


def export(
    run: Annotated[str, argument("RUN", "a run or a model; for restarts or samples, their means are exported")],
    out: Annotated[str, argument("OUT", "folder to write; for pyldavis a JSON file, for anndata a .h5ad or .zarr")],
    /,
    *,
    options: ExportOptions,
    replacing: OverwriteOptions,
    tables: TableOptions,
    scheduling: SchedulerOptions,
    certificates: CertificateOptions,
) -> None:
    """Export a model to pyLDAvis, to AnnData, or as tables (CSV).

    pyldavis: one JSON file, the arguments of pyLDAvis.prepare.

    Topics are in the order of their ids. pyLDAvis numbers them from 0, so a topic's
    number is its id unless some ids are unused. topic_ids in plot_opts of the file
    lists the ids.

    anndata: a file .h5ad or a folder .zarr with the counts of the training corpus, its
    labels and covariates (obs), obsm["X_topics"], varm["topics"] and uns["collapsium"].

    csv: a folder with topics.csv (topic, share, words; for trees also parent, level,
    below), words.csv (topic, word, probability) and documents.csv (document, topic,
    proportion). documents.csv needs the training corpus. Ids and labels are written
    unchanged. A word or name that begins with =, +, - or @ gets an apostrophe in front,
    because a spreadsheet would run it as a formula.
    """
    with counting("exporting", "read") as progress:
        exported = pipeline.export(
            run, out, **named_options(options, replacing, tables, scheduling), tls=certificates.tls, progress=progress
        )
    documents = f", {counted(exported.documents, 'document')}" if exported.documents else ""
    print(f"{out}: {counted(exported.topics, 'topic')}{documents}")
    for note in exported.notes:
        print(plain(in_flags(note)))
