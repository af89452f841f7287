"""Splitting the tokens of documents into a kept and a held-out part, by address rather than by order.

Whether a token is held out depends on (seed, document, word, copy) alone, so a split does not change with the shards.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from collapsar.storage.corpus import Corpus
from collapsar.storage.errors import InputError, OptionError
from collapsar.storage.folder import Folder, created, ensure_free
from collapsar.storage.progress import Counting, silent
from collapsar.storage.shard import Documents
from collapsar.storage.writer import CorpusWriter

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mixed(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijection whose output bits look independent."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def held_out_counts(documents: Documents, first: int, fraction: float, seed: int) -> npt.NDArray[np.int32]:
    """Choose which tokens of each pair are held out.

    Parameters
    ----------
    documents : Documents
        The documents.
    first : int
        Number of the first of them in its corpus.
    fraction : float
        Each token's probability of being held out.
    seed : int
        Another seed is another split.

    Returns
    -------
    numpy.ndarray of int32, shape (pairs,)
        Held-out tokens of each pair, distributed as Binomial(count, fraction).
    """
    owner = np.repeat(np.arange(first, first + len(documents), dtype=np.uint64), np.diff(documents.offsets))
    with np.errstate(over="ignore"):
        pair = _mixed(np.uint64(seed % 2**64) + _GOLDEN * (owner + np.uint64(1)))
        pair = _mixed(pair + _GOLDEN * (documents.words.astype(np.uint64) + np.uint64(1)))
        # A word that occurs in several segments of a document is several pairs; the position keeps them apart.
        if "segments" in documents.extras:
            start = np.repeat(documents.offsets[:-1], np.diff(documents.offsets))
            position = np.arange(documents.words.size) - start
            pair = _mixed(pair + _GOLDEN * (position.astype(np.uint64) + np.uint64(1)))
        counts = documents.counts.astype(np.int64)
        ends = np.cumsum(counts)
        copy = np.arange(int(ends[-1]) if ends.size else 0) - np.repeat(ends - counts, counts)
        drawn = _mixed(np.repeat(pair, counts) + _GOLDEN * (copy.astype(np.uint64) + np.uint64(1)))
    chosen = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53 < fraction
    held = np.bincount(np.repeat(np.arange(counts.size), counts), weights=chosen, minlength=counts.size)
    return held.astype(np.int32)


def split_documents(documents: Documents, first: int, fraction: float, seed: int) -> tuple[Documents, Documents]:
    """Split documents into what is kept and what is held out, with the same ids.

    Parameters
    ----------
    documents : Documents
        The documents.
    first : int
        Number of the first of them in its corpus.
    fraction : float
        Each token's probability of being held out.
    seed : int
        Another seed is another split.

    Returns
    -------
    kept, held_out : Documents
        The same documents; some may be empty in a part.
    """
    held = held_out_counts(documents, first, fraction, seed)
    return documents.with_counts(documents.counts - held), documents.with_counts(held)


def split_corpus(
    corpus: Corpus,
    train: str | os.PathLike[str],
    heldout: str | os.PathLike[str],
    *,
    fraction: float = 0.1,
    seed: int = 0,
    progress: Counting = silent,
) -> None:
    """Split every document's tokens into a training and a held-out corpus.

    Both keep the documents, the vocabulary and the shards of the whole, so that their ids agree.

    Parameters
    ----------
    corpus : Corpus
        What to split.
    train, heldout : str or path-like
        The folders to make.
    fraction : float, optional
        Each token's probability of being held out.
    seed : int, optional
        Another seed is another split.
    progress : callable, optional
        Told the number of documents written so far.

    Raises
    ------
    OptionError
        The fraction is not between 0 and 1, or both folders are the same.
    OccupiedError
        A folder exists.
    InputError
        A part would have no token.
    """
    if not 0 < fraction < 1:
        raise OptionError(f"--fraction: expected a share between 0 and 1, found {fraction}")
    if Folder(train).path == Folder(heldout).path:
        raise OptionError(f"{train}: the training and the held-out part need two folders")
    ensure_free(Folder(train))
    ensure_free(Folder(heldout))
    words = corpus.vocabulary.words
    written = 0
    with created(Folder(heldout)) as held_folder, created(Folder(train)) as train_folder:
        writers = [CorpusWriter(folder, len(words)) for folder in (train_folder, held_folder)]
        for reference in corpus.references:
            documents = reference.documents()
            for writer, part in zip(writers, split_documents(documents, written, fraction, seed), strict=True):
                writer.add_shard(part)
            written += len(documents)
            progress(written)
        for writer, name in zip(writers, (train, heldout), strict=True):
            try:
                writer.finish(words)
            except InputError as error:
                raise InputError(os.fspath(name), error.expected) from None
