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

from typing import Annotated

from collapsium.pipeline.analysis.options import InferOptions
from collapsium.pipeline.cli.command import Command, Flags, argument
from collapsium.pipeline.cli.new_texts import TEXTS, print_notice, print_unknown, with_unknown
from collapsium.pipeline.cli.options import JsonOptions
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.corpora.options import ReadingOptions
from collapsium.pipeline.executors.options import CertificateOptions, SchedulerOptions
from collapsium.pipeline.monitoring.console import counting
from collapsium.storage.runs.members import reference_of

OPTIONS = (InferOptions, ReadingOptions, SchedulerOptions)


def execute(
    run: Annotated[str, argument("RUN", "a run or a model")],
    documents: Annotated[list[str], argument("CORPUS|TEXTS", TEXTS)],
    out: Annotated[str, argument("OUT", "file to write: .parquet, .csv, .npy or .npz")],
    /,
    flags: Flags,
) -> None:
    """Infer, and say what came of it."""
    from collapsium.pipeline.analysis.infer import infer

    options, tls = flags.of(InferOptions), flags.of(CertificateOptions).tls
    with counting("inferring") as progress:
        found = infer(run, documents, out, **flags.given(*OPTIONS), tls=tls, notice=print_notice, progress=progress)
    reference = reference_of(run) if options.member is None else None
    whose = f" by {reference}, the ensemble's first member" if reference else ""
    rows = "segments" if options.segments else "documents"
    if flags.json:
        print_json(with_unknown({"path": out, rows: found.rows, "member": reference}, found.unknown))
        return
    print(f"{out}: proportions of {found.rows:,} {rows}{whose}")
    print_unknown(found.unknown)


COMMAND = Command(execute, (*OPTIONS, CertificateOptions, JsonOptions))
