"""Make a corpus whose documents are the segments of another corpus.

The segments of a document with id ID become documents ID#1, ID#2 and so on,
empty segments included. Each has the title, date, labels and covariates of its
document. Vocabulary and shards remain the same. Explode both parts of a split
(`collapsium split`) to fit and score families without segments on segments. A
document without segments is dropped.
"""

from __future__ import annotations

from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import JsonOptions, argument, named_options, print_json
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.console import counting
from collapsium.pipeline.options import OverwriteOptions

EPILOG = """examples:
  collapsium ingest papers.jsonl papers --segments sentences
  collapsium explode papers sentences
  collapsium fit sentences run --family lda --topics 100"""


def execute(
    corpus: Annotated[str, argument("CORPUS", "a corpus with segments")],
    out: Annotated[str, argument("OUT", "folder of the new corpus")],
    /,
    *,
    replacing: OverwriteOptions,
    output: JsonOptions,
) -> None:
    """Explode, and print the sizes of the new corpus."""
    with counting("exploding") as progress:
        manifest = pipeline.explode(corpus, out, **named_options(replacing), progress=progress)
    if output.as_json:
        print_json(manifest.record())
        return
    print(
        f"{out}: {counted(manifest.documents, 'document')}, {counted(manifest.tokens, 'token')} in "
        f"{counted(manifest.pairs, 'pair')}, {counted(len(manifest.shards), 'shard')}"
    )
