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

from __future__ import annotations

from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import argument, in_flags, named_options
from collapsium.pipeline.executors.schedulers import CertificateOptions, SchedulerOptions
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.monitoring.console import counting
from collapsium.pipeline.options import OverwriteOptions
from collapsium.pipeline.reporting.options import ExportOptions, TableOptions

EPILOG = """examples:
  collapsium export RUN vis.json --to pyldavis
  python -c "import json, pyLDAvis; pyLDAvis.save_html(pyLDAvis.prepare(**json.load(open('vis.json'))), 'vis.html')"
  collapsium export RUN cells.h5ad --to anndata
  collapsium export RUN folder --to csv"""


def execute(
    run: Annotated[str, argument("RUN", "a run or a model; of restarts and samples, their means are exported")],
    out: Annotated[str, argument("OUT", "folder to write; for pyldavis a JSON file, for anndata a .h5ad or .zarr")],
    /,
    *,
    options: ExportOptions,
    replacing: OverwriteOptions,
    tables: TableOptions,
    scheduling: SchedulerOptions,
    certificates: CertificateOptions,
) -> None:
    """Export, and print the sizes of the export."""
    with counting("exporting", "read") as progress:
        exported = pipeline.export(
            run, out, **named_options(options, replacing, tables, scheduling), tls=certificates.tls, progress=progress
        )
    documents = f", {exported.documents:,} documents" if exported.documents else ""
    print(f"{out}: {exported.topics:,} topics{documents}")
    for note in exported.notes:
        print(plain(in_flags(note)))
