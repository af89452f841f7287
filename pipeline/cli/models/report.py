"""Write an HTML report of a run: topics and their map, examples, labels, the fit.

The report is a single file without external resources: it opens in any browser
and can be sent or archived. It needs only the run. If the run has no summary of its
documents, the example documents are read from the corpus, if it still exists.

Sections on fields of the documents read the corpus: --effects estimates how topics
differ by fields, as `collapsium effects` does, --words-by compares the words of
groups, and --words-over follows words over time.

--json prints an object with the topics, the examples, notes, and the quality of
the map: its method, Kruskal's stress-1 (stress) and neighbourhood preservation,
the share of each topic's `near` nearest topics that are among the `among` nearest
on the map (preserved), with the share that a random map would have.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.analysis.options import EffectOptions
from collapsium.pipeline.cli.command import JsonOptions, argument, in_flags, named_options, print_json
from collapsium.pipeline.executors.schedulers import CertificateOptions, SchedulerOptions
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.models.rank_options import RankOptions
from collapsium.pipeline.monitoring.console import counting
from collapsium.pipeline.options import OverwriteOptions
from collapsium.pipeline.reporting.options import FieldOptions, FoldingOptions, ReportOptions

EPILOG = """examples:
  collapsium report RUN OUT.html
  collapsium report RUN OUT.html --rank-by frex
  collapsium report RUN OUT.html --texts 'news/*.jsonl.gz'
  collapsium report RUN OUT.html --effects '~ party + bs(year, df=5)' --cluster speech
  collapsium report RUN OUT.html --words-by party --words-over decade --word-topics 3,7"""


class OutputOptions(JsonOptions, OverwriteOptions):
    """Format of the sizes, and replacement of an earlier report."""


def execute(
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
    """Write the report, and print its sizes."""
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
    print(f"{out}: {summary.topics:,} topics, {summary.examples:,} example documents")
    for note in summary.notes:
        print(plain(in_flags(note)))
