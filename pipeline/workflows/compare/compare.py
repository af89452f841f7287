"""Compare families on one corpus: a grid of families, numbers of topics and seeds, with one definition of a score."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from collapsium.pipeline.executors.base import TLS
from collapsium.pipeline.keywords import checked_keywords, parameters_of
from collapsium.pipeline.monitoring.events import Sink
from collapsium.pipeline.workflows.compare.fits import Resources
from collapsium.pipeline.workflows.compare.options import CompareOptions, compare_options
from collapsium.pipeline.workflows.compare.runner import Comparison, run_comparison
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.io.folder import Folder


@checked_keywords(parameters_of((name, field.default) for name, field in CompareOptions.model_fields.items()))
def compare(
    corpus: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    scheduler: str = "threads",
    workers: int | None = None,
    memory: str | int | None = None,
    scratch: str | None = None,
    tls: TLS | None = None,
    sinks: Sequence[Sink] = (),
    **options: Any,
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
    scheduler, workers, memory, scratch, tls, sinks
        As for `fit`.
    **options
        The fields of `collapsium.pipeline.workflows.compare.options.CompareOptions`, which describes each: `families`,
        `topics`, `restarts`, `iterations`, `heldout`, `unseen`, `settings`, `vary`, `peers`, `field` and others.

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
    resources = Resources(scheduler, workers, memory, scratch, tls)
    return run_comparison(Corpus(corpus), Folder(out), compare_options(options), resources, sinks)
