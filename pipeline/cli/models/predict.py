"""Predict a label or a number of documents: the one under which their perplexity is lowest.

    collapsium predict RUN CORPUS OUT.parquet --field topic
    collapsium predict RUN tomorrow.jsonl OUT.csv --field topic
    collapsium predict RUN CORPUS OUT.parquet --field stars --values 1,2,3,4,5 --confusion stars.png

The run is of a family that takes labels, fitted with the field. A document's other labels stay
as they are; what it has of the field is not looked at. Columns: id; predicted; score, of 1 over
all candidates; perplexity, under the prediction; known, what the document has (of several, the
predicted one if it is among them); labels and scores, lists of all candidates, which CSV lacks.
Texts are read as the model's own documents were. Documents without
a word that the model knows have no prediction. Of restarts or kept samples the mean of the
probabilities is taken.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from collapsium.pipeline.cli.options import add_json, add_scheduler, tls_of
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.cli.text_options import TEXTS, add_texts, print_notice, print_unknown, reading_of, with_unknown

HELP = "predict labels or ratings of documents from their words"


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("run", metavar="RUN", help="a run or a model, of a family that takes labels")
    parser.add_argument("documents", nargs="+", metavar="CORPUS|TEXTS", help=TEXTS)
    parser.add_argument("out", metavar="OUT", help="file to write: .parquet or .csv")
    parser.add_argument("--field", required=True, metavar="NAME", help="the field of labels, or the number, to predict")
    parser.add_argument(
        "--values",
        action="append",
        metavar="V,V",
        help="among what to choose; may be given again, and a value with a comma by itself (default: all labels of "
        "the field in training, or all numbers, where they are few)",
    )
    parser.add_argument(
        "--confusion",
        metavar="FILE",
        help="picture to draw, .png or .svg: documents by what they have and what was predicted (extra: plots)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="for families that draw numbers (default: 0)")
    add_texts(parser)
    add_scheduler(parser, "threads")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Predict, and say what came of it."""
    from dataclasses import asdict

    from collapsium.pipeline.analysis.labels.candidates import listed
    from collapsium.pipeline.families.model import Model
    from collapsium.pipeline.formatting import plain
    from collapsium.pipeline.monitoring.console import counting
    from collapsium.pipeline.reporting.predict import predict

    values = None if arguments.values is None else listed(Model(arguments.run), arguments.field, arguments.values)
    with counting("predicting") as progress:
        found = predict(
            arguments.run,
            arguments.documents,
            arguments.out,
            field=arguments.field,
            values=values,
            confusion=arguments.confusion,
            seed=arguments.seed,
            scheduler=arguments.scheduler,
            workers=arguments.workers,
            tls=tls_of(arguments),
            notice=print_notice,
            progress=progress,
            **reading_of(arguments),
        )
    if arguments.json:
        print_json(with_unknown(asdict(found), found.unknown))
        return
    print(f"{arguments.out}: {plain(found.field)} of {found.documents:,} documents")
    print_unknown(found.unknown)
    if found.known:
        print(f"right in {found.right:,} of the {found.known:,} that have one ({found.right / found.known:.1%})")
    if arguments.confusion is not None:
        print(f"{arguments.confusion}: confusion matrix")
