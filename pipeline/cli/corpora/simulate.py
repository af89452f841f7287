"""Draw a corpus with known truth from a family's own model, of any size, shard by shard.

The true topics are printed by `collapsium topics CORPUS`; the true proportions
lie in CORPUS/truth/proportions, as `collapsium infer` writes them, from 0.0001 up.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from collapsium.pipeline.cli.family_options import add_family, gather

HELP = "draw a corpus with known truth"
EPILOG = """example:
  collapsium simulate planted --family lda --documents 1000 --words 500 --topics 10 --tokens 100 --seed 3
  collapsium simulate tree --family hca --depth 3 --documents 2000 --words 30"""
SIZES = ("documents", "words", "tokens", "seed", "shard_tokens")


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the command's options."""
    parser.add_argument("corpus", metavar="CORPUS", help="folder to make")
    add_family(parser, argv)
    parser.add_argument("--documents", type=int, required=True, metavar="D", help="number of documents, or vectors")
    parser.add_argument("--words", type=int, required=True, metavar="W", help="size of the vocabulary, or columns")
    parser.add_argument(
        "--tokens", type=float, metavar="N", help="mean number of tokens of a document; required, but of vectors"
    )
    parser.add_argument("--seed", type=int, metavar="S", help="another seed is another corpus (default: 0)")
    parser.add_argument(
        "--shard-tokens", type=int, metavar="N", help="tokens of a shard, about (default: as for ingest)"
    )


def run(arguments: argparse.Namespace) -> None:
    """Simulate, and say what came of it."""
    family, options = gather(arguments, SIZES)
    from collapsium.pipeline.corpora.simulate import simulate
    from collapsium.pipeline.families.registry import load_family
    from collapsium.pipeline.formatting import counted
    from collapsium.pipeline.monitoring.console import counting

    with counting("simulating") as progress:
        manifest = simulate(arguments.corpus, family=family, progress=progress, **options)
    kind, number = (
        ("columns", options["words"]) if load_family(family).corpus_kind == "vectors" else ("tokens", manifest.tokens)
    )
    what = "vectors" if kind == "columns" else "documents"
    sizes = f"{manifest.documents:,} {what}, {number:,} {kind}, {counted(len(manifest.shards), 'shard')}"
    print(f"{arguments.corpus}: {sizes}")
