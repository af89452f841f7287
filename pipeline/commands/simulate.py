"""Draw a corpus with known truth from a family's own model, of any size, shard by shard.

The true topics are printed by `collapsar topics CORPUS`; the true proportions
lie in CORPUS/truth/proportions, as `collapsar infer` writes them, from 0.0001 up.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from collapsar.pipeline.commands.options import add_family, gather

HELP = "draw a corpus with known truth"
EPILOG = """example:
  collapsar simulate planted --family lda --documents 1000 --words 500 --topics 10 --tokens 100 --seed 3"""
SIZES = ("documents", "words", "tokens", "seed", "shard_tokens")


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the command's options."""
    parser.add_argument("corpus", metavar="CORPUS", help="folder to make")
    add_family(parser, argv)
    parser.add_argument("--documents", type=int, required=True, metavar="D", help="number of documents")
    parser.add_argument("--words", type=int, required=True, metavar="W", help="size of the vocabulary")
    parser.add_argument("--tokens", type=float, required=True, metavar="N", help="mean number of tokens of a document")
    parser.add_argument("--seed", type=int, metavar="S", help="another seed is another corpus (default: 0)")
    parser.add_argument(
        "--shard-tokens", type=int, metavar="N", help="tokens of a shard, about (default: as for ingest)"
    )


def run(arguments: argparse.Namespace) -> None:
    """Simulate, and say what came of it."""
    family, options = gather(arguments, SIZES)
    from collapsar.pipeline.progress import counted, counting
    from collapsar.pipeline.simulation import simulate

    with counting("simulating") as progress:
        manifest = simulate(arguments.corpus, family=family, progress=progress, **options)
    sizes = f"{manifest.documents:,} documents, {manifest.tokens:,} tokens, {counted(len(manifest.shards), 'shard')}"
    print(f"{arguments.corpus}: {sizes}")
