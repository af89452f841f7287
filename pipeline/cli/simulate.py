"""The command `collapsium simulate`."""

from __future__ import annotations

from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import argument, named_options
from collapsium.pipeline.cli.family_options import FamilyFlags, gather
from collapsium.pipeline.corpora.options import SimulateOptions
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.models.registry import load_family
from collapsium.pipeline.monitoring.console import counting
from collapsium.pipeline.options import OverwriteOptions
from collapsium.storage.corpus.manifest import VECTORS

SIMULATE_EPILOG = """examples:
  collapsium simulate drawn --family lda --documents 1000 --words 500 --topics 10 --tokens 100 --seed 3
  collapsium simulate tree --family hca --depth 3 --documents 2000 --words 30"""


def simulate(
    corpus: Annotated[str, argument("CORPUS", "folder of the new corpus")],
    /,
    *,
    chosen: FamilyFlags,
    options: SimulateOptions,
    replacing: OverwriteOptions,
    **flags: str,
) -> None:
    """Draw a corpus from the generative model of a family, with known ground truth.

    The corpus is drawn shard by shard and may have any size. `collapsium topics
    CORPUS` prints the true topics. CORPUS/truth/proportions has the true topic
    proportions of at least 0.0001, in the format of `collapsium infer`.
    """
    request = gather(chosen, None, flags, (options,))
    with counting("simulating") as progress:
        manifest = pipeline.simulate(
            corpus, family=request.family, progress=progress, **named_options(replacing), **request.options
        )
    vectors = load_family(request.family).corpus_kind == VECTORS
    kind, number = ("columns", request.options["words"]) if vectors else ("tokens", manifest.tokens)
    units = "vectors" if vectors else "documents"
    print(f"{corpus}: {manifest.documents:,} {units}, {number:,} {kind}, {counted(len(manifest.shards), 'shard')}")
