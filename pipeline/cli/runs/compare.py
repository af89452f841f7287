"""Compare model families on a corpus, by one definition of the score.

Holds out tokens of each document, fits each family with each number of topics
and several seeds, and writes into OUT: table.md and table.parquet (a row a cell),
series.parquet (a row an iteration) and plots/. This is what Figures 2 and 3 of
Teh, Kurihara and Welling, "Collapsed variational inference for HDP" (2007), show.
Families that find their number of topics are fitted from each of --start-topics.
The same command again goes on where it was stopped.

With --unseen no tokens are held out. By default those families are fitted that take
labels, once, and the perplexity of unseen documents given their labels alone is told.
With --field it is also told how well a label or number is predicted, by families as by
`collapsium predict`, and by classifiers: lda-svm (LDA, and a linear SVM on its proportions
and the other labels), naive-bayes, svm (linear, on TF-IDF) and tree, of words, from
scikit-learn, and slda, tomotopy's supervised LDA, where that is installed. They read the
documents into memory, and are tuned on a tenth of the training documents.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

from collapsium.pipeline.cli.command import Command, Flags, argument
from collapsium.pipeline.cli.options import JsonOptions, LogOptions, QuietOptions
from collapsium.pipeline.cli.output import print_json
from collapsium.pipeline.executors.options import CertificateOptions, MemoryOptions, SchedulerOptions
from collapsium.pipeline.workflows.compare.options import CompareOptions
from collapsium.storage.io.folder import Folder

if TYPE_CHECKING:
    from collapsium.pipeline.workflows.compare.runner import Comparison

EPILOG = """examples:
  collapsium compare kos out --families lda,hdp --topics 40,80,120 --restarts 5
  collapsium compare train out --heldout heldout --families lda,gibbs-lda --samples 20 --sample-every 10
  collapsium compare kos out --set hdp.order=2 --set gibbs-hdp.iterations=500 --set lda.alpha=0.1/K
  collapsium compare kos out --start-from gibbs-hdp --families hdp,gibbs-hdp --topics 200
  collapsium compare kos out --families lda --peers scikit-learn,gensim --set gensim.iterations=20
  collapsium compare train out --unseen test --vary eta=0.1,0.25,0.5,0.75,1.0 --vary topics_per_label=2,5
  collapsium compare train out --unseen test --families hdsp --field stars --without category --lda-topics 50,200

--set takes a family's options (`collapsium fit --family FAMILY --help`) and iterations, samples, sample_every,
score_every, local_sweeps; of a peer iterations, alpha, beta (of tomotopy also samples, sample_every). A number
over K, such as 0.1/K, is that number divided by the cell's number of topics; nothing else is computed.

A field that says the same as the one to predict, such as a rating beside stars, must not be taken: --labels names
those that are. Families take numbers by --set hdsp.scaling=linear --set hdsp.covariates=rating, and predict them."""
OPTIONS = (CompareOptions, SchedulerOptions, MemoryOptions)


def execute(
    corpus: Annotated[str, argument("CORPUS", "what to fit to")],
    out: Annotated[str, argument("OUT", "folder to make, or to go on with")],
    /,
    flags: Flags,
) -> None:
    """Compare, and print the table."""
    flags.of(CompareOptions)
    options, tls = flags.given(*OPTIONS), flags.of(CertificateOptions).tls
    from collapsium.pipeline.workflows.compare.compare import compare  # load the compiler: the options are right
    from collapsium.pipeline.workflows.compare.progress import GridView

    view = GridView(form=flags.of(LogOptions).log_format)
    begun: list[bool] = []
    sinks: list[Any] = [lambda event: begun.append(True) if event["event"] == "grid" else None]
    sinks += [] if flags.of(QuietOptions).quiet else [view]
    try:
        found = compare(corpus, out, sinks=sinks, tls=tls, **options)
    except BaseException:
        view.close()
        if begun and Folder(out).exists():
            again = shlex.join(["collapsium", *flags.words])
            view.log.write(f"{out}: what is fitted so far is kept; go on with `{again}`")
        raise
    finally:
        view.close()
    _print(found, as_json=flags.json)


def _print(found: Comparison, *, as_json: bool) -> None:
    if as_json:
        rows, baselines = list(found.rows), list(found.baselines)
        print_json({"out": found.folder, "cells": rows, "baselines": baselines, "left_out": list(found.left_out)})
        return
    print(found.tables)
    print(
        f"\n{found.folder}: table.md says how each is defined; {len(found.plots)} plots, {len(found.baselines)} "
        "baselines"
    )


COMMAND = Command(execute, (*OPTIONS, CertificateOptions, QuietOptions, LogOptions, JsonOptions), epilog=EPILOG)
