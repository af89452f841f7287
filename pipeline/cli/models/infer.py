"""Write the topic proportions of documents, in the format that the name of OUT says.

    collapsium infer RUN CORPUS OUT.parquet
    collapsium infer RUN tomorrow.jsonl OUT.csv --dense
    collapsium infer RUN 'mails/*.txt' OUT.npy

.parquet: a row for each document; id; topics, the permanent ids as `collapsium topics` prints
them, the largest proportion first; proportions. --dense: id, and a column for each topic, topic_0
and so on. .csv: a row for each document and topic, id,topic,proportion; with --dense as Parquet.
.npy: a matrix (float32), a row for each document and a column for each topic, and the ids in
NAME.ids.csv beside it. .npz: the arrays ids, topics and proportions (the same matrix).

Documents of the training corpus have the proportions they were fitted with; others are fitted
with the topics held fixed. Texts are read as the model's own documents were, and how many of
their tokens are of words that it does not know is printed.

Families with more to tell of a document add columns (of .npz arrays), each a list a document,
such as path, the ids of the nodes from the tree's root on.

--segments: a row for each segment instead, of families that know segments, with its number,
segment, counted from 1 in each document (of .npz the array segments).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from collapsium.pipeline.cli.options import add_json, add_scheduler, tls_of
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.cli.text_options import TEXTS, add_texts, print_notice, print_unknown, reading_of, with_unknown

HELP = "write topic proportions of documents, seen or unseen"


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("run", metavar="RUN", help="a run or a model")
    parser.add_argument("documents", nargs="+", metavar="CORPUS|TEXTS", help=TEXTS)
    parser.add_argument("out", metavar="OUT", help="file to write: .parquet, .csv, .npy or .npz")
    parser.add_argument("--dense", action="store_true", help="of .parquet and .csv: a column for each topic")
    parser.add_argument(
        "--segments", action="store_true", help="a row a segment, of families that know segments: id, segment, ..."
    )
    parser.add_argument(
        "--threshold", type=float, metavar="F", help="of sparse output: leave out smaller proportions (default: 0.001)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="for families that draw numbers (default: 0)")
    parser.add_argument(
        "--member",
        type=int,
        metavar="M",
        help="of an ensemble or of samples: whose proportions (default: the first restart's, the last sample's)",
    )
    add_texts(parser)
    add_scheduler(parser, "threads")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Infer, and say what came of it."""
    from collapsium.pipeline.analysis.infer import infer
    from collapsium.pipeline.monitoring.console import counting
    from collapsium.storage.runs.members import reference_of

    with counting("inferring") as progress:
        found = infer(
            arguments.run,
            arguments.documents,
            arguments.out,
            dense=arguments.dense,
            segments=arguments.segments,
            threshold=arguments.threshold,
            seed=arguments.seed,
            member=arguments.member,
            scheduler=arguments.scheduler,
            workers=arguments.workers,
            tls=tls_of(arguments),
            notice=print_notice,
            progress=progress,
            **reading_of(arguments),
        )
    reference = reference_of(arguments.run) if arguments.member is None else None
    whose = f" by {reference}, the ensemble's first member" if reference else ""
    rows = "segments" if arguments.segments else "documents"
    if arguments.json:
        print_json(with_unknown({"path": arguments.out, rows: found.rows, "member": reference}, found.unknown))
        return
    print(f"{arguments.out}: proportions of {found.rows:,} {rows}{whose}")
    print_unknown(found.unknown)
