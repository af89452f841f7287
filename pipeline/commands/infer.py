"""Write the topic proportions of documents to a Parquet file, sparse.

Columns: id; topics, the permanent ids as `collapsar topics` prints them, the
largest proportion first; proportions. Documents of the training corpus have the
proportions they were fitted with; others are fitted with the topics held fixed.

Families with more to tell of a document add columns, each a list a document, such as
path, the ids of the nodes from the tree's root on; read them with any reader of Parquet:

    pyarrow.parquet.read_table("OUT.parquet").column_names

--segments: a row for each segment instead, of families that know segments: id,
segment (counted from 1 in each document), topics, proportions.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from collapsar.pipeline.commands.options import add_scheduler, tls_of

HELP = "write topic proportions of documents, seen or unseen"


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("run", metavar="RUN", help="a run or a model")
    parser.add_argument("corpus", metavar="CORPUS", help="documents, with the model's vocabulary")
    parser.add_argument("out", metavar="OUT.parquet", help="file to write")
    parser.add_argument(
        "--segments", action="store_true", help="a row a segment, of families that know segments: id, segment, ..."
    )
    parser.add_argument(
        "--threshold", type=float, default=0.001, metavar="F", help="leave out smaller proportions (default: 0.001)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="for families that draw numbers (default: 0)")
    parser.add_argument(
        "--member",
        type=int,
        metavar="M",
        help="of an ensemble or of samples: whose proportions (default: the first restart's, the last sample's)",
    )
    add_scheduler(parser, "threads")


def run(arguments: argparse.Namespace) -> None:
    """Infer, and say what came of it."""
    from collapsar.pipeline.inference import infer
    from collapsar.pipeline.members import reference_of
    from collapsar.pipeline.progress import counting

    with counting("inferring") as progress:
        written = infer(
            arguments.run,
            arguments.corpus,
            arguments.out,
            segments=arguments.segments,
            threshold=arguments.threshold,
            seed=arguments.seed,
            member=arguments.member,
            scheduler=arguments.scheduler,
            workers=arguments.workers,
            tls=tls_of(arguments),
            progress=progress,
        )
    reference = reference_of(arguments.run) if arguments.member is None else None
    whose = f" by {reference}, the ensemble's first member" if reference else ""
    print(f"{arguments.out}: proportions of {written:,} {'segments' if arguments.segments else 'documents'}{whose}")
