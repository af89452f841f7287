"""Making corpora: ingesting files and splitting, as functions of a short surface."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from collapsar.storage.corpus import Corpus
from collapsar.storage.ingest import Cuts
from collapsar.storage.ingest import ingest as ingest_source
from collapsar.storage.manifest import Manifest
from collapsar.storage.progress import Counting, silent
from collapsar.storage.readers import ReadOptions, open_source
from collapsar.storage.split import split_corpus


def ingest(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    corpus: str | os.PathLike[str],
    *,
    format: str | None = None,
    min_documents: int = 0,
    max_document_share: float = 1.0,
    shard_tokens: int | None = None,
    progress: Counting = silent,
    **reading: Any,
) -> Manifest:
    """Read files of a format that corpora are distributed in, and write a corpus.

    Parameters
    ----------
    sources : path or sequence of paths
        Files or folders, local or fsspec URLs.
    corpus : str or path-like
        Folder to make.
    format : str, optional
        ``uci``, ``ldac``, ``mtx``, ``npz``, ``text`` or ``jsonl``; by default told from the first name.
    min_documents : int, optional
        Drop words that fewer documents hold.
    max_document_share : float, optional
        Drop words that a larger share of the documents hold.
    shard_tokens : int, optional
        Tokens of a shard; by default an eighth of the corpus, between 100,000 and 2,000,000.
    progress : callable, optional
        Told the number of documents written so far.
    **reading
        ``vocabulary``, ``id_field``, ``text_field``, ``stop_words``, and ``max_decompressed``, the bytes that may come
        out of each compressed file (by default 200 times its size, and at least 256 MB).

    Returns
    -------
    Manifest
        What the corpus holds.

    Raises
    ------
    CollapsarError
        A source is missing or damaged, or the folder exists. Nothing is left behind.
    """
    paths = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    cuts = Cuts(min_documents, max_document_share)
    source = open_source([os.fspath(path) for path in paths], format, ReadOptions(**reading))
    return ingest_source(source, corpus, cuts=cuts, shard_tokens=shard_tokens, progress=progress)


def split(
    corpus: str | os.PathLike[str],
    train: str | os.PathLike[str],
    heldout: str | os.PathLike[str],
    *,
    fraction: float = 0.1,
    seed: int = 0,
    progress: Counting = silent,
) -> None:
    """Split every document's tokens into a training and a held-out corpus with the same ids.

    Parameters
    ----------
    corpus : str or path-like
        What to split.
    train, heldout : str or path-like
        Folders to make.
    fraction : float, optional
        Each token's probability of being held out.
    seed : int, optional
        Another seed is another split.
    progress : callable, optional
        Told the number of documents written so far.

    Raises
    ------
    CollapsarError
        The corpus is damaged, the fraction out of range, or a folder exists. Nothing is left behind.
    """
    split_corpus(Corpus(corpus), train, heldout, fraction=fraction, seed=seed, progress=progress)
