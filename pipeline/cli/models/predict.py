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

from dataclasses import asdict
from typing import Annotated

from collapsium.pipeline.cli.command import Command, Flags, argument
from collapsium.pipeline.cli.new_texts import TEXTS, print_notice, print_unknown, with_unknown
from collapsium.pipeline.cli.options import JsonOptions
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.corpora.options import ReadingOptions
from collapsium.pipeline.executors.options import CertificateOptions, SchedulerOptions
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.monitoring.console import counting
from collapsium.pipeline.reporting.options import PredictOptions

OPTIONS = (PredictOptions, ReadingOptions, SchedulerOptions)


def execute(
    run: Annotated[str, argument("RUN", "a run or a model, of a family that takes labels")],
    documents: Annotated[list[str], argument("CORPUS|TEXTS", TEXTS)],
    out: Annotated[str, argument("OUT", "file to write: .parquet or .csv")],
    /,
    flags: Flags,
) -> None:
    """Predict, and say what came of it."""
    from collapsium.pipeline.analysis.labels.candidates import listed
    from collapsium.pipeline.families.model import Model
    from collapsium.pipeline.reporting.predict import predict

    options, tls = flags.given(*OPTIONS), flags.of(CertificateOptions).tls
    if "values" in options:
        options["values"] = listed(Model(run), options["field"], options["values"])
    with counting("predicting") as progress:
        found = predict(run, documents, out, **options, tls=tls, notice=print_notice, progress=progress)
    if flags.json:
        print_json(with_unknown(asdict(found), found.unknown))
        return
    print(f"{out}: {plain(found.field)} of {found.documents:,} documents")
    print_unknown(found.unknown)
    if found.known:
        print(f"right in {found.right:,} of the {found.known:,} that have one ({found.right / found.known:.1%})")
    if "confusion" in options:
        print(f"{options['confusion']}: confusion matrix")


COMMAND = Command(execute, (*OPTIONS, CertificateOptions, JsonOptions))
