"""Predict a label or covariate of documents from their words.

The model's family must use labels, and the field must have been part of the fit.
The prediction is the candidate value under which the document has the lowest
perplexity, by the mean probabilities of restarts or samples. The document's other
labels are used, but not its value of this field. Texts are read like the model's
documents. Documents without any word of the vocabulary have no prediction.

Columns of OUT: id; predicted; score, the probability among all candidates;
perplexity under the prediction; known, the document's actual value (of several, the
predicted one if it is among them); and, only in .parquet, labels and scores, the
lists of all candidates.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import (
    TEXTS,
    JsonOptions,
    argument,
    named_options,
    print_json,
    print_notice,
    print_unknown,
    with_unknown,
)
from collapsium.pipeline.corpora.options import ReadingOptions
from collapsium.pipeline.executors.schedulers import CertificateOptions, SchedulerOptions
from collapsium.pipeline.formatting import plain
from collapsium.pipeline.monitoring.console import counting
from collapsium.pipeline.options import OverwriteOptions
from collapsium.pipeline.reporting.options import PredictOptions

EPILOG = """examples:
  collapsium predict RUN CORPUS OUT.parquet --field topic
  collapsium predict RUN tomorrow.jsonl OUT.csv --field topic
  collapsium predict RUN CORPUS OUT.parquet --field stars --values 1,2,3,4,5 --confusion stars.png"""


def execute(
    run: Annotated[str, argument("RUN", "a run or a model of a family with labels")],
    documents: Annotated[list[str], argument("CORPUS|TEXTS", TEXTS)],
    out: Annotated[str, argument("OUT", "file to write: .parquet or .csv")],
    /,
    *,
    options: PredictOptions,
    replacing: OverwriteOptions,
    reading: ReadingOptions,
    scheduling: SchedulerOptions,
    certificates: CertificateOptions,
    output: JsonOptions,
) -> None:
    """Predict, and print the accuracy where it is known."""
    named = named_options(options, replacing, reading, scheduling)
    if options.values is not None:
        from collapsium.pipeline.analysis.labels import candidates
        from collapsium.pipeline.models.model import Model

        named["values"] = candidates.split_values(Model(run), options.field, [*map(str, options.values)])
    with counting("predicting") as progress:
        prediction = pipeline.predict(
            run, documents, out, **named, tls=certificates.tls, notice=print_notice, progress=progress
        )
    if output.as_json:
        print_json(with_unknown(asdict(prediction), prediction.unknown))
        return
    print(f"{out}: {plain(prediction.field)} of {prediction.documents:,} documents")
    print_unknown(prediction.unknown)
    if prediction.known:
        accuracy = f"{prediction.right:,} of {prediction.known:,} ({prediction.right / prediction.known:.1%})"
        print(f"correct for {accuracy} documents with a known value")
    if options.confusion is not None:
        print(f"{options.confusion}: confusion matrix")
