"""From a source to a corpus on disk, with cuts by document frequency where they are asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collapsar.storage.errors import InputError, OptionError
from collapsar.storage.folder import Folder, created, ensure_free
from collapsar.storage.manifest import Manifest
from collapsar.storage.progress import Counting, silent
from collapsar.storage.readers.dense import DenseSource
from collapsar.storage.readers.source import Source
from collapsar.storage.shard import Documents, merge_segments
from collapsar.storage.writer import CorpusWriter, VectorWriter


@dataclass(frozen=True)
class Cuts:
    """Which words of the vocabulary to keep.

    Attributes
    ----------
    min_documents : int
        A word that fewer documents hold is dropped.
    max_document_share : float
        A word that a larger share of the documents hold is dropped.
    """

    min_documents: int = 0
    max_document_share: float = 1.0

    def __post_init__(self) -> None:
        if self.min_documents < 0:
            raise OptionError(f"--min-documents: expected 0 or more, found {self.min_documents}")
        if not 0 < self.max_document_share <= 1:
            raise OptionError(f"--max-document-share: expected a share in (0, 1], found {self.max_document_share}")

    @property
    def wanted(self) -> bool:
        """Whether anything can be dropped."""
        return self.min_documents > 0 or self.max_document_share < 1

    def keep(self, frequency: npt.NDArray[np.int64], documents: int) -> npt.NDArray[np.bool_]:
        """Tell which words stay, by their numbers of documents."""
        kept: npt.NDArray[np.bool_] = (frequency >= self.min_documents) & (
            frequency <= self.max_document_share * documents
        )
        return kept


def ingest(
    source: Source,
    corpus: str | os.PathLike[str],
    *,
    cuts: Cuts | None = None,
    shard_tokens: int | None = None,
    progress: Counting = silent,
) -> Manifest:
    """Write a source's documents as a corpus.

    Parameters
    ----------
    source : Source
        As `collapsar.storage.readers.open_source` gives it.
    corpus : str or path-like
        The folder to make, local or an fsspec URL.
    cuts : Cuts, optional
        Words to drop by document frequency; by default none. Documents stay, even if no word of theirs does.
    shard_tokens : int, optional
        Tokens of a shard; by default an eighth of the corpus, between 100,000 and 2,000,000.
    progress : callable, optional
        Told the number of documents written so far.

    Returns
    -------
    Manifest
        What the corpus holds.

    Raises
    ------
    InputError
        The source is damaged, or no word is left. Nothing is left behind.
    OccupiedError
        The folder exists.
    OptionError
        `shard_tokens` is less than 1.
    """
    _require_shard_tokens(shard_tokens)
    ensure_free(Folder(corpus))
    cuts = cuts or Cuts()
    words = source.words()
    kept = _kept_words(source, cuts, len(words))
    number = np.cumsum(kept, dtype=np.int64) - 1
    with created(Folder(corpus)) as folder:
        writer = CorpusWriter(folder, int(kept.sum()), shard_tokens)
        written = 0
        for documents in source.documents():
            writer.add(documents if kept.all() else _cut(documents, kept, number))
            written += len(documents)
            progress(written)
        try:
            return writer.finish([word for word, keep in zip(words, kept, strict=True) if keep])
        except InputError as error:
            raise InputError(source.name, error.expected) from None


def ingest_vectors(
    source: DenseSource,
    corpus: str | os.PathLike[str],
    *,
    shard_tokens: int | None = None,
    progress: Counting = silent,
) -> Manifest:
    """Write a source's vectors as a corpus.

    Parameters
    ----------
    source : DenseSource
        As `collapsar.storage.readers.open_vectors` gives it.
    corpus, shard_tokens, progress
        As for `ingest`; tokens are values.

    Returns
    -------
    Manifest
        What the corpus holds; ``vectors.constant`` has the columns that are the same in all vectors.

    Raises
    ------
    InputError
        The source is damaged, a value is not finite, or there are no vectors. Nothing is left behind.
    OccupiedError
        The folder exists.
    OptionError
        `shard_tokens` is less than 1.
    """
    _require_shard_tokens(shard_tokens)
    columns = source.columns()
    with created(Folder(corpus)) as folder:
        writer = VectorWriter(folder, len(columns), shard_tokens)
        written = 0
        for vectors in source.vectors():
            writer.add(vectors)
            written += len(vectors)
            progress(written)
        try:
            return writer.finish(columns)
        except InputError as error:
            raise InputError(source.name, error.expected) from None


def _require_shard_tokens(shard_tokens: int | None) -> None:
    if shard_tokens is not None and shard_tokens < 1:
        raise OptionError(f"--shard-tokens: expected 1 or more, found {shard_tokens}")


def _kept_words(source: Source, cuts: Cuts, words: int) -> npt.NDArray[np.bool_]:
    if not cuts.wanted:
        return np.ones(words, dtype=bool)
    frequency = np.zeros(words, dtype=np.int64)
    documents = 0
    for part in source.documents():
        frequency += np.bincount(merge_segments(part).words, minlength=words)
        documents += len(part)
    kept = cuts.keep(frequency, documents)
    if not kept.any():
        raise InputError(source.name, f"no word is left of {words} after the cuts by document frequency")
    return kept


def _cut(documents: Documents, kept: npt.NDArray[np.bool_], number: npt.NDArray[np.int64]) -> Documents:
    inside = documents.with_counts(np.where(kept[documents.words], documents.counts, 0).astype(np.int32))
    return Documents(inside.ids, inside.offsets, number[inside.words].astype(np.int32), inside.counts, inside.extras)
