"""Split every document's tokens, whole documents, or labels into a training and a held-out corpus.

Of tokens: both keep the documents, the vocabulary and the shards of the whole, so a
model fitted to the one can be scored on the other by document completion
(`collapsium fit --heldout`). Of whole documents (--documents, --folds): both keep the
vocabulary; score with `collapsium evaluate --unseen`. Of labels (--drop-labels): both keep
the documents with all of their tokens; the training part has the labels that are left, the
held-out part those that were dropped. Vectors are split whole, or by labels.
"""

from __future__ import annotations

from typing import Annotated

from collapsium.pipeline.cli.command import Command, Flags, argument
from collapsium.pipeline.cli.options import JsonOptions
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.corpora.options import SplitOptions
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.console import counting
from collapsium.storage.corpus.corpus import Corpus

EPILOG = """examples:
  collapsium split kos train heldout --fraction 0.1
  collapsium split kos train unseen --documents --fraction 0.2
  collapsium split kos train-0 unseen-0 --folds 5 --fold 0
  collapsium split reuters some-labels dropped-labels --drop-labels 0.8 --field topics"""


def execute(
    corpus: Annotated[str, argument("CORPUS", "what to split")],
    train: Annotated[str, argument("TRAIN", "folder to make")],
    heldout: Annotated[str, argument("HELDOUT", "folder to make")],
    /,
    flags: Flags,
) -> None:
    """Split, and say what came of it."""
    from collapsium.pipeline.corpora.ingest import split

    options = flags.of(SplitOptions)
    with counting("splitting") as progress:
        split(corpus, train, heldout, **flags.given(SplitOptions), progress=progress)
    folders = {"train": train, "heldout": heldout}
    if flags.json:
        print_json({part: Corpus(folder).manifest.record() for part, folder in folders.items()})
        return
    for folder in folders.values():
        manifest = Corpus(folder).manifest
        if options.drop_labels is not None:
            print(f"{folder}: {_labels(Corpus(folder))} in {counted(manifest.documents, manifest.holds[:-1])}")
        elif manifest.vectors is not None:
            print(f"{folder}: {manifest.documents:,} vectors")
        elif options.documents or options.folds:
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


COMMAND = Command(execute, (SplitOptions, JsonOptions), epilog=EPILOG)
