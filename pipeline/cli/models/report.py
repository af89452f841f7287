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

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from collapsium.pipeline.cli.options import add_json, add_scheduler, tls_of
from collapsium.pipeline.cli.output import print_json

HELP = "write a page that shows a run: topics, examples, labels, the course of the fit"


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("run", metavar="RUN", help="a run, finished or not, or a model")
    parser.add_argument("out", metavar="OUT.html", help="file to write")
    parser.add_argument(
        "--corpus", metavar="CORPUS", help="where the training corpus lies by now, if the run has no summary of it"
    )
    parser.add_argument(
        "--texts",
        action="append",
        metavar="SOURCE",
        help="texts that were ingested (file, folder or glob; may be given again): passages of the example documents "
        "are shown, with the topics' words marked",
    )
    group = parser.add_argument_group("trees")
    group.add_argument(
        "--min-share",
        type=float,
        metavar="SHARE",
        help="fold nodes that have less, with those below them, such as 0.01",
    )
    group.add_argument(
        "--levels", type=int, metavar="N", help="fold nodes below the first N levels; the root is the first"
    )
    add_scheduler(parser, "threads")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Write the page, and say what it shows."""
    from collapsium.pipeline.formatting import plain
    from collapsium.pipeline.monitoring.console import counting
    from collapsium.pipeline.reporting.page.report import report

    with counting("reading") as progress:
        found = report(
            arguments.run,
            arguments.out,
            corpus=arguments.corpus,
            texts=arguments.texts,
            min_share=arguments.min_share,
            levels=arguments.levels,
            scheduler=arguments.scheduler,
            workers=arguments.workers,
            tls=tls_of(arguments),
            progress=progress,
        )
    if arguments.json:
        print_json(asdict(found))
        return
    print(f"{arguments.out}: {found.topics:,} topics, {found.examples:,} example documents")
    for note in found.notes:
        print(plain(note))
