"""Write a model as other programs read it: pyLDAvis, gensim, or tables of comma-separated values.

    collapsium export RUN vis.json --to pyldavis
    python -c "import json, pyLDAvis; pyLDAvis.save_html(pyLDAvis.prepare(**json.load(open('vis.json'))), 'vis.html')"

    collapsium export RUN folder --to gensim       (extra: gensim)
    python -c "import gensim; print(gensim.models.LdaModel.load('folder/model').show_topics())"

    collapsium export RUN folder --to csv

csv makes topics.csv (topic, share, words; of trees parent, level and below), words.csv (topic, word,
probability) and documents.csv (document, topic, proportion), which needs the training corpus.
gensim's files are its own, pickles among them: load none that you have not made. Its topics are numbered
in the order of `collapsium topics`, and its alpha are their shares.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from collapsium.pipeline.cli.options import add_scheduler, tls_of

HELP = "write a model for pyLDAvis or gensim, or as tables (CSV)"


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("run", metavar="RUN", help="a run or a model; of an ensemble, its first member is written")
    parser.add_argument("out", metavar="OUT", help="folder to make or, for pyldavis, JSON file to write")
    parser.add_argument("--to", required=True, choices=("csv", "gensim", "pyldavis"), help="for whom")
    group = parser.add_argument_group("csv")
    group.add_argument(
        "--threshold",
        type=float,
        default=0.001,
        metavar="F",
        help="leave out smaller probabilities and proportions (default: 0.001)",
    )
    group.add_argument("--corpus", metavar="CORPUS", help="where the training corpus lies by now, if it was moved")
    add_scheduler(parser, "threads")


def run(arguments: argparse.Namespace) -> None:
    """Export, and say what was written."""
    from collapsium.pipeline.formatting import plain
    from collapsium.pipeline.monitoring.console import counting
    from collapsium.pipeline.reporting.export import export

    with counting("exporting", "read") as progress:
        found = export(
            arguments.run,
            arguments.out,
            to=arguments.to,
            threshold=arguments.threshold,
            corpus=arguments.corpus,
            scheduler=arguments.scheduler,
            workers=arguments.workers,
            tls=tls_of(arguments),
            progress=progress,
        )
    documents = f", {found.documents:,} documents" if found.documents else ""
    print(f"{arguments.out}: {found.topics:,} topics{documents}")
    for note in found.notes:
        print(plain(note))
