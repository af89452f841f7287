"""The command `collapsium compare`."""

from __future__ import annotations

import shlex
from typing import Annotated

from collapsium import pipeline
from collapsium.pipeline.cli.command import (
    COMMAND_LINE,
    JsonOptions,
    LogOptions,
    QuietOptions,
    argument,
    named_options,
    print_json,
)
from collapsium.pipeline.executors.schedulers import CertificateOptions, MemoryOptions, SchedulerOptions
from collapsium.pipeline.formatting import counted
from collapsium.pipeline.monitoring.console import LogLines
from collapsium.pipeline.monitoring.events import Sink
from collapsium.pipeline.options import OverwriteOptions
from collapsium.pipeline.workflows.compare_options import CompareOptions
from collapsium.storage.io.folder import Folder

COMPARE_EPILOG = """examples:
  collapsium compare kos out --families lda,hdp --topics 40,80,120 --restarts 5
  collapsium compare train out --heldout heldout --families lda,gibbs-lda --samples 20 --sample-every 10
  collapsium compare kos out --set hdp.order=2 --set gibbs-hdp.iterations=500 --set lda.alpha=0.1/K
  collapsium compare kos out --families lda,hdp --metrics c_v,strict-diversity --coherence kos.jsonl
  collapsium compare kos out --families vb-lda,lda --topics 40 --vary alpha=0.1,0.5,1.0
  collapsium compare reviews out --families hdsp --vary 'labels=["stars","category"],["stars"]'

--set FAMILY.OPTION=VALUE sets an option of a family (see `collapsium fit --family
FAMILY --help`) or of its fits, such as iterations. In a value such as 0.1/K, K is the
number of topics of the fit."""


def compare(
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
    """Compare model families, numbers of topics and seeds on the same held-out tokens.

    Some tokens of each document are held out. Each family is fitted with several
    numbers of topics and several seeds. `gibbs-hdp`, which has no --topics, is fitted
    from each of --init-topics. OUT has the results: table.md and table.parquet, the runs
    and plots/. A cell of the experiment grid, one row of the table, is a family with one
    number of topics and one value of each option. Repeat an interrupted command to
    continue it.
    """
    from collapsium.pipeline.monitoring.progress import ProgressLine, Terminal
    from collapsium.pipeline.workflows.compare import GridView

    # All options are valid here: the first use of `pipeline` loads the compiler, which takes seconds.
    lines = LogLines(form=log.log_format)
    line = ProgressLine("comparing", Terminal()) if lines.live and not silence.quiet else None
    view = GridView(line, log=lines)
    begun: list[bool] = []
    sinks: list[Sink] = [lambda event: begun.append(True) if event["event"] == "grid" else None]
    sinks += [] if silence.quiet else [view]
    comparison = None
    try:
        comparison = pipeline.compare(
            corpus, out, sinks=sinks, tls=certificates.tls, **named_options(options, replacing, scheduling, memory)
        )
    except BaseException:
        if begun and Folder(out).exists():
            again = shlex.join(["collapsium", *(word for word in COMMAND_LINE if word != "--overwrite")])
            view.note(f"{out}: the finished fits are kept; continue with `{again}`")
        raise
    finally:
        if line is not None:
            line.close(failed=comparison is None)
    if output.as_json:
        print_json({"out": comparison.folder, "cells": list(comparison.rows)})
    else:
        plots = counted(len(comparison.plots), "plot")
        print(f"{comparison}\n\n{comparison.folder}: {plots}; table.md defines each column")
