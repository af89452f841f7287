"""Compare families on a corpus, over numbers of topics and seeds, by the same definition of the score."""

from __future__ import annotations

import os
from collections.abc import Sequence

from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.schedulers import MemoryOptions, SchedulerOptions
from collapsium.pipeline.monitoring.events import Sink
from collapsium.pipeline.options import keywords
from collapsium.pipeline.workflows.compare.fits import Resources
from collapsium.pipeline.workflows.compare.options import CompareOptions
from collapsium.pipeline.workflows.compare.runner import Comparison, run_comparison
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.io.folder import Folder


@keywords(options=CompareOptions, scheduling=SchedulerOptions, memory=MemoryOptions)
def compare(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    options: CompareOptions,
    scheduling: SchedulerOptions,
    memory: MemoryOptions,
    tls: TLS | None = None,
    sinks: Sequence[Sink] = (),
) -> Comparison:
    """Compare families over numbers of topics and restarts, by held-out tokens or on unseen documents.

    The comparison by held-out tokens follows Figures 2 and 3 of Teh, Kurihara and Welling (2007). With `unseen` no
    tokens are held out: families are compared by the perplexity of unseen documents given their labels. With `field`
    they are also compared by the prediction of that field, together with classifiers, which read both corpora into
    memory. An interrupted comparison is continued by a call with the same options.

    Parameters
    ----------
    corpus : str or path-like
        Folder of the corpus.
    out : str or path-like
        Folder of the comparison, new or to be continued.
    options : CompareOptions
        Families, grid and held-out data.
    scheduling : SchedulerOptions
        The executor.
    memory : MemoryOptions
        Memory and scratch space.
    tls, sinks
        As for `fit`.

    Returns
    -------
    Comparison
        The results; the folder also has series and plots.

    Raises
    ------
    OptionError
        An option is invalid, or differs from that of the comparison to continue.
    MismatchError
        The corpora have different vocabularies or documents, or unseen documents are in the training corpus.
    LockedError
        Another process is working on the comparison.
    CollapsiumError
        As for `fit`.
    """
    resources = Resources(**dict(scheduling), **dict(memory), tls=tls)
    return run_comparison(Corpus(corpus), Folder(out), options, resources, sinks)
