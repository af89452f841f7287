"""Draw a corpus with known truth from a family's own model, of any size, shard by shard.

The true topics are printed by `collapsium topics CORPUS`; the true proportions
lie in CORPUS/truth/proportions, as `collapsium infer` writes them, from 0.0001 up.
"""

from __future__ import annotations

from typing import Annotated

from collapsium.pipeline.cli.command import Command, Flags, argument
from collapsium.pipeline.cli.family_options import FamilyFlags, NamedFamily, gather
from collapsium.pipeline.corpora.options import SimulateOptions
from collapsium.pipeline.families.registry import load_family
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.console import counting
from collapsium.storage.corpus.manifest import VECTORS

EPILOG = """example:
  collapsium simulate planted --family lda --documents 1000 --words 500 --topics 10 --tokens 100 --seed 3
  collapsium simulate tree --family hca --depth 3 --documents 2000 --words 30"""


def execute(corpus: Annotated[str, argument("CORPUS", "folder to make")], /, flags: Flags) -> None:
    """Simulate, and say what came of it."""
    from collapsium.pipeline.corpora.simulate import simulate

    asked = gather(flags, (SimulateOptions,))
    with counting("simulating") as progress:
        manifest = simulate(corpus, family=asked.family, progress=progress, **asked.options)
    vectors = load_family(asked.family).corpus_kind == VECTORS
    kind, number = ("columns", asked.options["words"]) if vectors else ("tokens", manifest.tokens)
    what = "vectors" if vectors else "documents"
    print(f"{corpus}: {manifest.documents:,} {what}, {number:,} {kind}, {counted(len(manifest.shards), 'shard')}")


COMMAND = Command(execute, (FamilyFlags, SimulateOptions), epilog=EPILOG, family=NamedFamily())
