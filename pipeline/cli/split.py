"""The commands `collapsium split` and `collapsium explode`."""

from __future__ import annotations

from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import JsonOptions, argument, named_options, print_json
from collapsium.pipeline.corpora.options import SplitOptions
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.console import counting
from collapsium.pipeline.options import OverwriteOptions
from collapsium.storage.corpus.corpus import Corpus

SPLIT_EPILOG = """examples:
  collapsium split kos train heldout --fraction 0.1
  collapsium split kos train unseen --documents --fraction 0.2
  collapsium split kos train-0 unseen-0 --folds 5 --fold 0
  collapsium split reuters some-labels dropped-labels --drop-labels 0.8 --field topics"""


def split(
    corpus: Annotated[str, argument("CORPUS", "corpus to split")],
    train: Annotated[str, argument("TRAIN", "folder of the training corpus")],
    heldout: Annotated[str, argument("HELDOUT", "folder of the held-out corpus")],
    /,
    *,
    options: SplitOptions,
    replacing: OverwriteOptions,
    output: JsonOptions,
) -> None:
    """Split a corpus into a training and a held-out corpus: tokens, documents or labels.

    Tokens (the default): both parts have all documents, the same vocabulary and the
    same shards. A model fitted to the training part is scored on the held-out tokens
    by document completion (`collapsium fit --heldout`).

    Documents (--documents, --folds): each document is in one of the parts; both have
    the same vocabulary. Score the held-out documents with `collapsium evaluate
    --unseen`. Vectors are always split this way, or by labels.

    Labels (--drop-labels): both parts have all documents with all tokens. The
    training part has the remaining labels, the held-out part the dropped ones.
    """
    with counting("splitting") as progress:
        pipeline.split(corpus, train, heldout, **named_options(options, replacing), progress=progress)
    folders = {"train": train, "heldout": heldout}
    if output.as_json:
        print_json({part: Corpus(folder).manifest.record() for part, folder in folders.items()})
        return
    for folder in folders.values():
        manifest = Corpus(folder).manifest
        if options.drop_labels is not None:
            from collapsium.storage.building.split import label_summary

            counts = label_summary(Corpus(folder))
            parts = [counted(sum(count["labels"] for count in counts.get("labels", {}).values()), "label")]
            parts += [f"{count['documents']:,} of {name}" for name, count in counts.get("covariates", {}).items()]
            print(f"{folder}: {', '.join(parts)} in {counted(manifest.documents, manifest.holds[:-1])}")
        elif manifest.vectors is not None:
            print(f"{folder}: {manifest.documents:,} vectors")
        elif options.documents or options.folds:
            print(f"{folder}: {counted(manifest.tokens, 'token')} in {counted(manifest.documents, 'document')}")
        else:
            print(f"{folder}: {counted(manifest.tokens, 'token')}")


EXPLODE_EPILOG = """examples:
  collapsium ingest papers.jsonl papers --segments sentences
  collapsium explode papers sentences
  collapsium fit sentences run --family lda --topics 100"""


def explode(
    corpus: Annotated[str, argument("CORPUS", "a corpus with segments")],
    out: Annotated[str, argument("OUT", "folder of the new corpus")],
    /,
    *,
    replacing: OverwriteOptions,
    output: JsonOptions,
) -> None:
    """Make a corpus whose documents are the segments of another corpus.

    The segments of a document with id ID become documents ID#1, ID#2 and so on,
    empty segments included. Each has the title, date, labels and covariates of its
    document. Vocabulary and shards remain the same. Explode both parts of a split
    (`collapsium split`) to fit and score families without segments on segments. A
    document without segments is dropped.
    """
    with counting("exploding") as progress:
        manifest = pipeline.explode(corpus, out, **named_options(replacing), progress=progress)
    if output.as_json:
        print_json(manifest.record())
        return
    print(
        f"{out}: {counted(manifest.documents, 'document')}, {counted(manifest.tokens, 'token')} in "
        f"{counted(manifest.pairs, 'pair')}, {counted(len(manifest.shards), 'shard')}"
    )
