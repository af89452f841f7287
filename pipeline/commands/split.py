"""Split every document's tokens, or whole documents, into a training and a held-out corpus.

Of tokens: both keep the documents, the vocabulary and the shards of the whole, so a
model fitted to the one can be scored on the other by document completion
(`collapsar fit --heldout`). Of whole documents (--documents, --folds): both keep the
vocabulary; score with `collapsar evaluate --unseen`. Vectors are split whole alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from collapsar.pipeline.intake import split
from collapsar.pipeline.progress import counting
from collapsar.storage.corpus import Corpus

HELP = "split documents' tokens, or whole documents, into training and held-out parts"
EPILOG = """examples:
  collapsar split kos train heldout --fraction 0.1
  collapsar split kos train unseen --documents --fraction 0.2
  collapsar split kos train-0 unseen-0 --folds 5 --fold 0"""


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("corpus", metavar="CORPUS", help="what to split")
    parser.add_argument("train", metavar="TRAIN", help="folder to make")
    parser.add_argument("heldout", metavar="HELDOUT", help="folder to make")
    parser.add_argument(
        "--fraction",
        type=float,
        metavar="F",
        help="each token's probability of being held out, or each document's (default: 0.1)",
    )
    parser.add_argument("--documents", action="store_true", help="hold out whole documents, or vectors")
    parser.add_argument("--folds", type=int, metavar="K", help="hold out one of K folds of whole documents, or vectors")
    parser.add_argument("--fold", type=int, metavar="I", help="which fold, from 0 to K-1")
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
            documents=arguments.documents,
            folds=arguments.folds,
            fold=arguments.fold,
            progress=progress,
        )
    for folder in (arguments.train, arguments.heldout):
        manifest = Corpus(folder).manifest
        if manifest.vectors is not None:
            print(f"{folder}: {manifest.documents:,} vectors")
        elif arguments.documents or arguments.folds:
            print(f"{folder}: {manifest.tokens:,} tokens in {manifest.documents:,} documents")
        else:
            print(f"{folder}: {manifest.tokens:,} tokens")
