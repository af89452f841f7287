"""Adding documents to a corpus: new shards behind those that there are, which stay as they are."""

from __future__ import annotations

import os
from collections.abc import Sequence

from collapsar.storage.manifest import Manifest
from collapsar.storage.progress import Counting, silent


def append(
    corpus: str | os.PathLike[str],
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    grow: bool = False,
    skip_existing: bool = False,
    format: str | None = None,
    tokenizer: str | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    progress: Counting = silent,
) -> Manifest:
    """Add documents to a corpus as new shards, read and tokenized as those that it was made of.

    Parameters
    ----------
    corpus : str or path-like
        The corpus, local or an fsspec URL.
    sources : path or sequence of paths
        Files, folders or globs, local or fsspec URLs.
    grow : bool, optional
        Give new words ids behind those of the vocabulary; by default they are dropped, and counted in the report.
    skip_existing : bool, optional
        Leave out documents whose id is in the corpus; by default they are refused.
    format : str, optional
        As for `ingest`; by default told from the first name, or else the corpus's own.
    tokenizer : str, optional
        ``module:function``; must be said again where the corpus was made with one, as what a corpus names is not run.
    scheduler : str, optional
        Where it runs, as for `fit`; by default ``threads``.
    workers : int, optional
        How many.
    progress : callable, optional
        Told the number of documents read so far.

    Returns
    -------
    Manifest
        What the corpus holds now; the one that it had, where nothing is new.

    Raises
    ------
    CollapsarError
        A source is missing or damaged, an id is there already, or another process appends. The corpus is as it was.
    """
    raise NotImplementedError
