"""Compare model families on a corpus, by the same definition of the score.

Tokens of each document are held out. Each family is fitted with several numbers of
topics and several seeds. OUT has the results: table.md and table.parquet (one row
for each cell of the grid), series.parquet (one row for each iteration) and plots/.
Families that determine their number of topics are fitted from each of
--init-topics. Repeat an interrupted command to continue it.

With --unseen no tokens are held out. By default each family that uses labels is
fitted once, and the table has the perplexity of unseen documents given their labels
alone. With --field it also has the accuracy with which `collapsium predict` predicts
a label or covariate.
"""

from __future__ import annotations

import shlex
from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import COMMAND_LINE, argument, given
from collapsium.pipeline.cli.options import JsonOptions, LogOptions, QuietOptions
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.executors.schedulers import CertificateOptions, MemoryOptions, SchedulerOptions
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.events import Sink
from collapsium.pipeline.options import OverwriteOptions
from collapsium.pipeline.workflows.compare.options import CompareOptions
from collapsium.storage.io.folder import Folder

EPILOG = """examples:
  collapsium compare kos out --families lda,hdp --topics 40,80,120 --restarts 5
  collapsium compare train out --heldout heldout --families lda,gibbs-lda --samples 20 --sample-every 10
  collapsium compare kos out --set hdp.order=2 --set gibbs-hdp.iterations=500 --set lda.alpha=0.1/K
  collapsium compare kos out --init-from gibbs-hdp --families hdp,gibbs-hdp --topics 200
  collapsium compare kos out --families lda,hdp --metrics c_v,strict-diversity --coherence kos.jsonl
  collapsium compare train out --unseen test --vary eta=0.1,0.25,0.5,0.75,1.0 --vary topics_per_label=2,5
  collapsium compare train out --unseen test --families hdsp --field stars
  collapsium compare train out --unseen test --vary 'labels=["stars","category"],["stars"]'

--set FAMILY.OPTION=VALUE sets an option of a family (see `collapsium fit --family
FAMILY --help`), or one of iterations, samples, sample_every, score_every and
local_sweeps. A value NUMBER/K, such as 0.1/K, is divided by the cell's number of
topics.

Families use all fields of labels. Leave out fields that contain the field to
predict, such as a second rating next to stars: --vary 'labels=["stars"]'. Families
use and predict numbers with --set hdsp.scaling=linear --set hdsp.covariates=rating."""


def execute(
    corpus: Annotated[str, argument("CORPUS", "training corpus")],
    out: Annotated[str, argument("OUT", "folder of the comparison, new or to be continued")],
    /,
    *,
    options: CompareOptions,
    replacing: OverwriteOptions,
    scheduling: SchedulerOptions,
    memory: MemoryOptions,
    certificates: CertificateOptions,
    silence: QuietOptions,
    log: LogOptions,
    output: JsonOptions,
) -> None:
    """Compare, and print the table."""
    from collapsium.pipeline.workflows.compare import progress as grid_progress

    # All options are valid here: the first use of `pipeline` loads the compiler, which takes seconds.
    view = grid_progress.GridView(form=log.log_format)
    begun: list[bool] = []
    sinks: list[Sink] = [lambda event: begun.append(True) if event["event"] == "grid" else None]
    sinks += [] if silence.quiet else [view]
    try:
        comparison = pipeline.compare(
            corpus, out, sinks=sinks, tls=certificates.tls, **given(options, replacing, scheduling, memory)
        )
    except BaseException:
        view.close()
        if begun and Folder(out).exists():
            again = shlex.join(["collapsium", *(word for word in COMMAND_LINE if word != "--overwrite")])
            view.log.write(f"{out}: the finished fits are kept; continue with `{again}`")
        raise
    finally:
        view.close()
    _print(comparison, as_json=output.as_json)


def _print(comparison: pipeline.Comparison, *, as_json: bool) -> None:
    if as_json:
        rows, left_out = list(comparison.rows), list(comparison.left_out)
        print_json({"out": comparison.folder, "cells": rows, "left_out": left_out})
        return
    plots = counted(len(comparison.plots), "plot")
    print(f"{comparison.tables}\n\n{comparison.folder}: {plots}; table.md defines each column")
