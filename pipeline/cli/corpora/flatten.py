"""Make a corpus whose documents are the segments of another.

The segments of the document ID are called ID#1, ID#2 and so on, those without a word too, and have
its title, date, labels and covariates. The vocabulary and the shards stay: of both parts of a split
(`collapsium split`) the segments are the same documents again, so that families that know no
segments are fitted, and scored, on segments. A document without segments has none.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from collapsium.pipeline.cli.options import add_json
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.console import counting

HELP = "make documents of the segments of a corpus"
EPILOG = """examples:
  collapsium ingest papers.jsonl papers --segments sentences
  collapsium flatten papers sentences
  collapsium fit sentences run --family lda --topics 100"""


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("corpus", metavar="CORPUS", help="a corpus with segments")
    parser.add_argument("out", metavar="OUT", help="folder to make")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Flatten, and say what came of it."""
    from collapsium.pipeline.corpora.ingest import flatten

    with counting("flattening") as progress:
        manifest = flatten(arguments.corpus, arguments.out, progress=progress)
    if arguments.json:
        print_json(manifest.record())
        return
    print(
        f"{arguments.out}: {counted(manifest.documents, 'document')}, {counted(manifest.tokens, 'token')} in "
        f"{counted(manifest.pairs, 'pair')}, {counted(len(manifest.shards), 'shard')}"
    )
