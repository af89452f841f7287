"""The commands `collapsium predict` and `collapsium infer`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.analysis.options import InferOptions
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
from collapsium.pipeline.formatting import counted, plain
from collapsium.pipeline.monitoring.console import counting
from collapsium.pipeline.options import OverwriteOptions
from collapsium.pipeline.reporting.options import PredictOptions

PREDICT_EPILOG = """examples:
  collapsium predict RUN CORPUS OUT.parquet --field topic
  collapsium predict RUN tomorrow.jsonl OUT.csv --field topic
  collapsium predict RUN CORPUS OUT.parquet --field stars --values 1,2,3,4,5 --confusion stars.png"""


def predict(
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
    """Predict a label or covariate of documents from their words.

    The model's family must use labels, and the field must have been part of the fit.
    The prediction is the candidate value under which the document has the lowest
    perplexity, by the mean probabilities of restarts or samples. The document's other
    labels are used, but not its value of this field. Texts are read like the model's
    documents. Documents without any word of the vocabulary have no prediction.

    Columns of OUT: id; predicted; score, the probability among all candidates;
    perplexity under the prediction; known, the document's actual value (if it has
    several, the predicted value if that is among them); and, only in .parquet, labels
    and scores, the lists of all candidates.
    """
    named = named_options(options, replacing, reading, scheduling)
    if options.values is not None:
        from collapsium.pipeline.analysis import label_prediction
        from collapsium.pipeline.models.model import Model

        named["values"] = label_prediction.candidate_values(Model(run), options.field, [*map(str, options.values)])
    with counting("predicting") as progress:
        prediction = pipeline.predict(
            run, documents, out, **named, tls=certificates.tls, notice=print_notice, progress=progress
        )
    if output.as_json:
        print_json(with_unknown(asdict(prediction), prediction.unknown))
        return
    print(f"{out}: {plain(prediction.field)} of {counted(prediction.documents, 'document')}")
    print_unknown(prediction.unknown)
    if prediction.known:
        accuracy = f"{prediction.right:,} of {prediction.known:,} ({prediction.right / prediction.known:.1%})"
        print(f"correct for {accuracy} documents with a known value")
    if options.confusion is not None:
        print(f"{options.confusion}: confusion matrix")


INFER_EPILOG = """examples:
  collapsium infer RUN CORPUS OUT.parquet
  collapsium infer RUN tomorrow.jsonl OUT.csv --dense
  collapsium infer RUN 'mails/*.txt' OUT.npy"""


def infer(
    run: Annotated[str, argument("RUN", "a run or a model")],
    documents: Annotated[list[str], argument("CORPUS|TEXTS", TEXTS)],
    out: Annotated[str, argument("OUT", "file to write: .parquet, .csv, .npy or .npz")],
    /,
    *,
    options: InferOptions,
    replacing: OverwriteOptions,
    reading: ReadingOptions,
    scheduling: SchedulerOptions,
    certificates: CertificateOptions,
    output: JsonOptions,
) -> None:
    """Write the topic proportions of documents or segments to a file.

    Documents of the training corpus have the proportions of the fit. Others are
    folded in: their proportions are fitted while the topics are held fixed. Texts are
    read like the model's documents, and the number of tokens that are not in the
    vocabulary is printed.

    The name of OUT selects the format:
      .parquet  one row for each document: id; topics, the permanent ids of
                `collapsium topics` by decreasing proportion; proportions. With
                --dense: id, and one column for each topic, topic_0 and so on
      .csv      one row for each document and topic: id, topic, proportion; with
                --dense the columns of .parquet --dense
      .npy      a float32 matrix, documents x topics; NAME.ids.csv has the ids
      .npz      the arrays ids, topics and proportions (the same matrix)

    Some families add columns (arrays in .npz) with a list for each document, such as
    path: ids of the nodes of a tree, from the root to the leaf.

    With --segments there is one row for each segment, with its number within the
    document, from 1, in the column segment (.npz: the array segments).
    """
    named = named_options(options, replacing, reading, scheduling)
    with counting("inferring") as progress:
        inferred = pipeline.infer(
            run,
            documents,
            out,
            **named,
            tls=certificates.tls,
            notice=print_notice,
            progress=progress,
        )
    whose = f", means of {inferred.models} models" if inferred.models > 1 else ""
    if inferred.member is not None:
        whose = f" by {inferred.member}, as the members' topics were not matched"
    row = "segment" if options.segments else "document"
    if output.as_json:
        facts = {"path": out, f"{row}s": inferred.rows, "models": inferred.models, "member": inferred.member}
        print_json(with_unknown(facts, inferred.unknown))
        return
    print(f"{out}: proportions of {counted(inferred.rows, row)}{whose}")
    print_unknown(inferred.unknown)
