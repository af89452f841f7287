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
document, from 1, as the column (or .npz array) segment.
"""

from __future__ import annotations

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
from collapsium.pipeline.monitoring.console import counting
from collapsium.pipeline.options import OverwriteOptions

EPILOG = """examples:
  collapsium infer RUN CORPUS OUT.parquet
  collapsium infer RUN tomorrow.jsonl OUT.csv --dense
  collapsium infer RUN 'mails/*.txt' OUT.npy"""


def execute(
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
    """Infer, and print the number of rows."""
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
    rows = "segments" if options.segments else "documents"
    if output.as_json:
        facts = {"path": out, rows: inferred.rows, "models": inferred.models, "member": inferred.member}
        print_json(with_unknown(facts, inferred.unknown))
        return
    print(f"{out}: proportions of {inferred.rows:,} {rows}{whose}")
    print_unknown(inferred.unknown)
