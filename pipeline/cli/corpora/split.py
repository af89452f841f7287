"""Split every document's tokens, whole documents, or labels into a training and a held-out corpus.

Of tokens: both keep the documents, the vocabulary and the shards of the whole, so a
model fitted to the one can be scored on the other by document completion
(`collapsium fit --heldout`). Of whole documents (--documents, --folds): both keep the
vocabulary; score with `collapsium evaluate --unseen`. Of labels (--drop-labels): both keep
the documents with all of their tokens; the training part has the labels that are left, the
held-out part those that were dropped. Vectors are split whole, or by labels.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from collapsium.pipeline.cli.options import add_json
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.console import counting

if TYPE_CHECKING:
    from collapsium.storage.corpus.corpus import Corpus

HELP = "split documents' tokens, whole documents or labels into training and held-out parts"
EPILOG = """examples:
  collapsium split kos train heldout --fraction 0.1
  collapsium split kos train unseen --documents --fraction 0.2
  collapsium split kos train-0 unseen-0 --folds 5 --fold 0
  collapsium split reuters some-labels dropped-labels --drop-labels 0.8 --field topics"""


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
    parser.add_argument(
        "--drop-labels", type=float, metavar="F", help="each label's probability of being dropped; tokens stay"
    )
    parser.add_argument(
        "--field", metavar="NAME", help="the field of labels to drop from, or a covariate (default: all labels)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="another seed is another split (default: 0)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Split, and say what came of it."""
    from collapsium.pipeline.corpora.ingest import split
    from collapsium.storage.corpus.corpus import Corpus

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
            drop_labels=arguments.drop_labels,
            field=arguments.field,
            progress=progress,
        )
    folders = {"train": arguments.train, "heldout": arguments.heldout}
    if arguments.json:
        print_json({part: Corpus(folder).manifest.record() for part, folder in folders.items()})
        return
    for folder in folders.values():
        manifest = Corpus(folder).manifest
        if arguments.drop_labels is not None:
            print(f"{folder}: {_labels(Corpus(folder))} in {counted(manifest.documents, manifest.holds[:-1])}")
        elif manifest.vectors is not None:
            print(f"{folder}: {manifest.documents:,} vectors")
        elif arguments.documents or arguments.folds:
            print(f"{folder}: {manifest.tokens:,} tokens in {manifest.documents:,} documents")
        else:
            print(f"{folder}: {manifest.tokens:,} tokens")


def _labels(corpus: Corpus) -> str:
    """Count the labels, and the numbers, of a corpus."""
    from collapsium.storage.building.label_split import summary

    found = summary(corpus)
    numbers = {name: one["documents"] for name, one in found.get("covariates", {}).items()}
    parts = [counted(sum(one["labels"] for one in found.get("labels", {}).values()), "label")]
    return ", ".join([*parts, *(f"{count:,} of {name}" for name, count in numbers.items())])
