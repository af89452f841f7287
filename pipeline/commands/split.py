"""Split every document's tokens into a training and a held-out corpus.

Both keep the documents, the vocabulary and the shards of the whole, so a model
fitted to the one can be scored on the other by document completion.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from collapsar.pipeline.intake import split
from collapsar.pipeline.progress import counting
from collapsar.storage.corpus import Corpus

HELP = "split documents' tokens into training and held-out parts"


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("corpus", metavar="CORPUS", help="what to split")
    parser.add_argument("train", metavar="TRAIN", help="folder to make")
    parser.add_argument("heldout", metavar="HELDOUT", help="folder to make")
    parser.add_argument(
        "--fraction",
        type=float,
        default=0.1,
        metavar="F",
        help="each token's probability of being held out (default: 0.1)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="another seed is another split (default: 0)")


def run(arguments: argparse.Namespace) -> None:
    """Split, and say what came of it."""
    with counting("splitting") as progress:
        split(
            arguments.corpus,
            arguments.train,
            arguments.heldout,
            fraction=arguments.fraction,
            seed=arguments.seed,
            progress=progress,
        )
    for folder in (arguments.train, arguments.heldout):
        print(f"{folder}: {Corpus(folder).manifest.tokens:,} tokens")
