"""Write a page that shows a run: its topics and their map, example documents, labels, and the course of the fit.

    collapsium report RUN OUT.html
    collapsium report RUN OUT.html --texts 'news/*.jsonl.gz'

The page is one file, which asks for nothing from anywhere: open it in a browser, send it, keep it.
It is made from the run alone; the corpus may be gone. A run of an older release has no summary of
its documents: that is then made from the corpus, if it is still there, and else left out.
--json prints an object: topics, examples and notes, and map, how the map of the topics is made (method) and how far it
can be trusted: stress (Kruskal's stress-1), and kept, the share of each topic's `near` nearest that are among its
`among` nearest on the map, beside what chance would give.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from collapsium.pipeline.cli.command import Command, Flags, argument, in_flags
from collapsium.pipeline.cli.options import JsonOptions
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.executors.options import CertificateOptions, SchedulerOptions
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.monitoring.console import counting
from collapsium.pipeline.reporting.options import FoldingOptions, ReportOptions

OPTIONS = (ReportOptions, FoldingOptions, SchedulerOptions)


def execute(
    run: Annotated[str, argument("RUN", "a run, finished or not, or a model")],
    out: Annotated[str, argument("OUT.html", "file to write")],
    /,
    flags: Flags,
) -> None:
    """Write the page, and say what it shows."""
    from collapsium.pipeline.reporting.page.report import report

    with counting("reading") as progress:
        found = report(run, out, **flags.given(*OPTIONS), tls=flags.of(CertificateOptions).tls, progress=progress)
    if flags.json:
        print_json(asdict(found))
        return
    print(f"{out}: {found.topics:,} topics, {found.examples:,} example documents")
    for note in found.notes:
        print(plain(in_flags(note)))


COMMAND = Command(execute, (*OPTIONS, CertificateOptions, JsonOptions))
