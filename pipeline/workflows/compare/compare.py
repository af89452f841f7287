"""Compare families on one corpus: a grid of families, numbers of topics and seeds, with one definition of a score."""

from __future__ import annotations

import os
from collections.abc import Sequence

from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.executors.options import MemoryOptions, SchedulerOptions
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
    """Compare families over numbers of topics, with restarts: by held-out tokens, or on unseen documents.

    By held-out tokens it shows Figures 2 and 3 of Teh, Kurihara and Welling (2007). With `unseen` nothing is held out:
    families are compared by the perplexity of those documents given their labels and, with `field`, by how they
    predict it, beside classifiers, which read both corpora into memory. Called again with the same options, it goes on
    where it was stopped.

    Parameters
    ----------
    corpus : str or path-like
        Folder of the corpus.
    out : str or path-like
        Folder to make, or that of the same comparison begun before.
    options : CompareOptions
        What is compared, and on what.
    scheduling : SchedulerOptions
        Which executor runs the tasks.
    memory : MemoryOptions
        What work may take.
    tls, sinks
        As for `fit`.

    Returns
    -------
    Comparison
        The results; the folder has them too, with series and plots.

    Raises
    ------
    OptionError
        An option is wrong, or another than the comparison was begun with.
    MismatchError
        The corpora have different vocabularies or documents, or the unseen documents are those that are fitted.
    LockedError
        Another process works on it.
    CollapsiumError
        As for `fit`.
    """
    resources = Resources(**dict(scheduling), **dict(memory), tls=tls)
    return run_comparison(Corpus(corpus), Folder(out), options, resources, sinks)
