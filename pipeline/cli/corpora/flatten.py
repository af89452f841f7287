"""Make a corpus whose documents are the segments of another.

The segments of the document ID are called ID#1, ID#2 and so on, those without a word too, and have
its title, date, labels and covariates. The vocabulary and the shards stay: of both parts of a split
(`collapsium split`) the segments are the same documents again, so that families that know no
segments are fitted, and scored, on segments. A document without segments has none.
"""

from __future__ import annotations

from typing import Annotated

from collapsium.pipeline.cli.command import Command, Flags, argument
from collapsium.pipeline.cli.options import JsonOptions
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.console import counting

EPILOG = """examples:
  collapsium ingest papers.jsonl papers --segments sentences
  collapsium flatten papers sentences
  collapsium fit sentences run --family lda --topics 100"""


def execute(
    corpus: Annotated[str, argument("CORPUS", "a corpus with segments")],
    out: Annotated[str, argument("OUT", "folder to make")],
    /,
    flags: Flags,
) -> None:
    """Flatten, and say what came of it."""
    from collapsium.pipeline.corpora.ingest import flatten

    with counting("flattening") as progress:
        manifest = flatten(corpus, out, progress=progress)
    if flags.json:
        print_json(manifest.record())
        return
    print(
        f"{out}: {counted(manifest.documents, 'document')}, {counted(manifest.tokens, 'token')} in "
        f"{counted(manifest.pairs, 'pair')}, {counted(len(manifest.shards), 'shard')}"
    )


COMMAND = Command(execute, (JsonOptions,), epilog=EPILOG)
