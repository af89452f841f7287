"""Making corpora: ingesting files and splitting, as functions of a short surface."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from collapsar.storage.corpus import Corpus
from collapsar.storage.errors import OptionError
from collapsar.storage.folder import Folder, ensure_free
from collapsar.storage.ingest import Cuts, ingest_vectors
from collapsar.storage.ingest import ingest as ingest_source
from collapsar.storage.manifest import Manifest
from collapsar.storage.progress import Counting, silent
from collapsar.storage.readers import ReadOptions, guess_format, open_source, open_vectors
from collapsar.storage.split import Held, split_corpus, split_whole


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
        ``uci``, ``ldac``, ``mtx``, ``npz``, ``text``, ``jsonl`` or ``vectors``; by default told from the first name.
    min_documents : int, optional
        Drop words that fewer documents hold.
    max_document_share : float, optional
        Drop words that a larger share of the documents hold.
    shard_tokens : int, optional
        Tokens of a shard, or values of vectors; by default an eighth of the corpus, between 100,000 and 2,000,000.
    progress : callable, optional
        Told the number of documents written so far.
    **reading
        ``vocabulary``, ``id_field``, ``text_field``, ``stop_words``, and ``max_decompressed``, the bytes that may come
        out of each compressed file (by default 200 times its size, and at least 256 MB); of vectors ``labels``,
        ``values`` and ``header`` (see `collapsar.storage.readers.ReadOptions`).

    Returns
    -------
    Manifest
        What the corpus holds.

    Raises
    ------
    CollapsarError
        A source is missing or damaged, the folder exists, or an option is of another format. Nothing is left behind.
    """
    paths = [os.fspath(path) for path in ([sources] if isinstance(sources, (str, os.PathLike)) else sources)]
    cuts, kind = Cuts(min_documents, max_document_share), format or guess_format(paths[0])
    labels = reading.pop("labels", ())
    labels = (labels,) if isinstance(labels, (str, int)) else labels
    options = ReadOptions(**reading, labels=tuple(str(label) for label in labels))
    _require_own(kind, options, cuts)
    if kind == "vectors":
        ensure_free(Folder(corpus))
        return ingest_vectors(open_vectors(paths, options), corpus, shard_tokens=shard_tokens, progress=progress)
    source = open_source(paths, kind, options)
    return ingest_source(source, corpus, cuts=cuts, shard_tokens=shard_tokens, progress=progress)


def _require_own(kind: str, options: ReadOptions, cuts: Cuts) -> None:
    """Refuse what is said of vectors where documents are read, and the other way round."""
    of_vectors = {"--label": options.labels, "--values": options.values, "--header": options.header}
    of_documents = {
        "--min-documents": cuts.min_documents,
        "--max-document-share": cuts.max_document_share < 1,
        "--stop-words": options.stop_words,
        "--text": options.text_field,
    }
    for flag, given in (of_documents if kind == "vectors" else of_vectors).items():
        if given:
            other = "documents; vectors have no words" if kind == "vectors" else "vectors alone (--format vectors)"
            raise OptionError(f"{flag}: is of {other}")


def split(
    corpus: str | os.PathLike[str],
    train: str | os.PathLike[str],
    heldout: str | os.PathLike[str],
    *,
    fraction: float | None = None,
    seed: int = 0,
    documents: bool = False,
    folds: int | None = None,
    fold: int | None = None,
    progress: Counting = silent,
) -> None:
    """Split every document's tokens into a training and a held-out corpus with the same ids, or whole documents.

    Vectors are split whole alone.

    Parameters
    ----------
    corpus : str or path-like
        What to split.
    train, heldout : str or path-like
        Folders to make.
    fraction : float, optional
        Each token's, or each document's, probability of being held out; by default 0.1.
    seed : int, optional
        Another seed is another split.
    documents : bool, optional
        Whether whole documents are held out.
    folds, fold : int, optional
        Hold out whole documents: those of `fold`, counted from 0, of so many folds.
    progress : callable, optional
        Told the number of documents written so far.

    Raises
    ------
    CollapsarError
        The corpus is damaged, an option out of range, or a folder exists. Nothing is left behind.
    """
    if (folds is None) != (fold is None):
        raise OptionError("--folds and --fold belong together: in how many folds, and which is held out")
    if folds is not None and fraction is not None:
        raise OptionError(f"--fraction {fraction}: with --folds {folds}, a fold is held out")
    share, opened = 0.1 if fraction is None else fraction, Corpus(corpus)
    if not documents and folds is None:
        split_corpus(opened, train, heldout, fraction=share, seed=seed, progress=progress)
        return
    held = Held.share(share) if folds is None or fold is None else Held.fold(folds, fold)
    split_whole(opened, train, heldout, held, seed=seed, progress=progress)
