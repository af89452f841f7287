"""Split a corpus into a training and a held-out part, by tokens or by documents.

A token is held out by a hash of (seed, document, word, copy), a document by a hash of (seed, document), so that a split
does not depend on the shards.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from collapsium.storage.building.ingest_record import inherit_history
from collapsium.storage.building.splitmix import GOLDEN, mixed
from collapsium.storage.corpus.corpus import Corpus
from collapsium.storage.corpus.lineage import Step, read_steps, write_part, write_parts
from collapsium.storage.corpus.manifest import DOCUMENTS, Manifest, read_manifest
from collapsium.storage.corpus.shard import Documents
from collapsium.storage.corpus.writer import CorpusWriter, VectorWriter
from collapsium.storage.errors import CollapsiumError, InputError, OptionError
from collapsium.storage.io.atomic import abandoned
from collapsium.storage.io.folder import Folder, created, ensure_free, unfinished
from collapsium.storage.units import Counting, silent


def finish_interrupted(train: Folder, heldout: Folder) -> bool:
    """Rename the second part of a split if a process died after it had renamed the first."""
    if not (train.local and heldout.local) or train.exists() == heldout.exists():
        return False
    present, missing = (train, heldout) if train.exists() else (heldout, train)
    with abandoned(Path(missing.path)) as places:
        for place in places:
            if _are_parts_of_one_split(present, Folder(str(place))):
                Folder(str(place)).rename(missing)
                return True
    return False


def _are_parts_of_one_split(visible: Folder, hidden: Folder) -> bool:
    """Return True if two folders are complete and are the two parts of the same split."""
    try:
        manifests = read_manifest(visible), read_manifest(hidden)
        first, second = read_steps(visible), read_steps(hidden)
    except CollapsiumError:
        return False
    if not first or not second or manifests[0].vocabulary.words_sha256 != manifests[1].vocabulary.words_sha256:
        return False
    flipped = second[-1].model_copy(update={"heldout": not second[-1].heldout})
    return first == (*second[:-1], flipped)


def is_same_part(first: Folder, second: Folder) -> bool:
    """Return True if two folders hold the same part of the same split of the same corpus."""
    return read_manifest(first).digest == read_manifest(second).digest and read_steps(first) == read_steps(second)


_DOCUMENTS = np.uint64(0xD1B54A32D192ED03)  # Separates the random streams of documents and of their tokens


class PartWriter(Protocol):
    """A `CorpusWriter` or `VectorWriter`, for documents or vectors of the same corpus."""

    def add(self, part: Any, /) -> None:
        """Add documents or vectors."""

    def finish(self, words: list[str], /) -> Manifest:
        """Write the vocabulary and the manifest."""


def held_out_counts(documents: Documents, first: int, fraction: float, seed: int) -> npt.NDArray[np.int32]:
    """Return how many tokens of each pair are held out."""
    owner = np.repeat(np.arange(first, first + len(documents), dtype=np.uint64), np.diff(documents.offsets))
    with np.errstate(over="ignore"):
        pair = mixed(np.uint64(seed % 2**64) + GOLDEN * (owner + np.uint64(1)))
        pair = mixed(pair + GOLDEN * (documents.words.astype(np.uint64) + np.uint64(1)))
        # A word that occurs in several segments of a document is several pairs; the position keeps them apart.
        if "segments" in documents.extras:
            start = np.repeat(documents.offsets[:-1], np.diff(documents.offsets))
            position = np.arange(documents.words.size) - start
            pair = mixed(pair + GOLDEN * (position.astype(np.uint64) + np.uint64(1)))
        counts = documents.counts.astype(np.int64)
        ends = np.cumsum(counts)
        copy = np.arange(int(ends[-1]) if ends.size else 0) - np.repeat(ends - counts, counts)
        drawn = mixed(np.repeat(pair, counts) + GOLDEN * (copy.astype(np.uint64) + np.uint64(1)))
    chosen = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53 < fraction
    held = np.bincount(np.repeat(np.arange(counts.size), counts), weights=chosen, minlength=counts.size)
    return held.astype(np.int32)


def document_draws(first: int, documents: int, seed: int) -> npt.NDArray[np.float64]:
    """Draw a uniform number for each document."""
    owner = np.arange(first, first + documents, dtype=np.uint64)
    with np.errstate(over="ignore"):
        drawn = mixed(mixed(np.uint64(seed % 2**64) + GOLDEN * (owner + np.uint64(1))) + _DOCUMENTS)
    draws: npt.NDArray[np.float64] = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return draws


def split_documents(documents: Documents, first: int, fraction: float, seed: int) -> tuple[Documents, Documents]:
    """Split documents into training and held-out tokens, with the same ids."""
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

    Both have all documents, the vocabulary and the shards of the corpus, so that their ids agree.
    """
    if corpus.holds != DOCUMENTS:
        raise OptionError(f"{corpus.url}: vectors have no tokens to split; hold out whole vectors (`documents`)")
    _require_share(fraction)
    words, written = corpus.vocabulary.words, 0
    with two_parts(corpus, train, heldout) as folders:
        writers = [CorpusWriter(folder, len(words)) for folder in folders]
        for reference in corpus.references:
            documents = reference.documents()
            for writer, part in zip(writers, split_documents(documents, written, fraction, seed), strict=True):
                writer.add_shard(part)
            written += len(documents)
            progress(written)
        write_parts(folders, corpus, Step(corpus=corpus.manifest.digest, kind="tokens", seed=seed, high=fraction))
        finish_parts(writers, (train, heldout), words)


def _require_share(fraction: float) -> None:
    if not 0 < fraction < 1:
        raise OptionError(f"expected a share between 0 and 1, found {fraction}", "fraction")


@contextmanager
def two_parts(
    corpus: Corpus, train: str | os.PathLike[str], heldout: str | os.PathLike[str]
) -> Iterator[tuple[Folder, Folder]]:
    """Provide two new folders: both are kept if no error is raised, otherwise neither.

    Both get the ingest record of the corpus. If an earlier process died between the renames of the two, the second is
    renamed first; then nothing changes if the split is the same.
    """
    if Folder(train).path == Folder(heldout).path:
        raise OptionError(f"{train}: the training and the held-out part need two folders")
    targets = (Folder(train), Folder(heldout))
    finished = finish_interrupted(*targets)
    if not finished:
        for target in targets:
            ensure_free(target)
    with unfinished(targets[0]) as train_folder, unfinished(targets[1]) as held_folder:
        places = (train_folder, held_folder)
        yield places
        for place in places:
            inherit_history(corpus.folder, place, documents=read_manifest(place).documents)
        if not (finished and all(map(is_same_part, places, targets))):
            _put_in_place(places, targets)


def _put_in_place(places: tuple[Folder, Folder], targets: tuple[Folder, Folder]) -> None:
    """Rename both parts to their names, or neither."""
    for place, target in zip(places, targets, strict=True):
        if place is not target:
            ensure_free(target)
    try:
        for place, target in zip(places, targets, strict=True):
            if place is not target:
                place.rename(target)
    except BaseException:
        for place, target in zip(places, targets, strict=True):
            if place is not target and not place.exists():
                try:
                    target.rename(place)
                except CollapsiumError:
                    target.remove()
        raise


def finish_parts(writers: Sequence[PartWriter], names: tuple[str | os.PathLike[str], ...], words: list[str]) -> None:
    """Finish the corpora of two writers; `InputError` names the folder of an empty one."""
    for writer, name in zip(writers, names, strict=True):
        try:
            writer.finish(words)
        except InputError as error:
            raise InputError(os.fspath(name), error.expected) from None


@dataclass(frozen=True)
class Held:
    """The held-out documents, as an interval of the uniform numbers drawn for each."""

    # Documents with numbers in [`low`, `high`) are held out
    low: float
    high: float

    @staticmethod
    def share(fraction: float) -> Held:
        """Hold out a share of the documents; `OptionError` if it is not in (0, 1)."""
        _require_share(fraction)
        return Held(0.0, fraction)

    @staticmethod
    def fold(folds: int, fold: int) -> Held:
        """Hold out one of several folds, counted from 0; `OptionError` if there is no such fold."""
        if folds < 2:
            raise OptionError(f"expected 2 or more, found {folds}", "folds")
        if not 0 <= fold < folds:
            raise OptionError(f"expected a number from 0 to {folds - 1}, found {fold}", "fold")
        return Held(fold / folds, (fold + 1) / folds)

    def among(self, draws: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Return the mask of held-out documents, given their draws."""
        held: npt.NDArray[np.bool_] = (draws >= self.low) & (draws < self.high)
        return held


def split_corpus_documents(
    corpus: Corpus,
    train: str | os.PathLike[str],
    heldout: str | os.PathLike[str],
    held: Held,
    *,
    seed: int = 0,
    progress: Counting = silent,
) -> None:
    """Split the documents, or the vectors, of a corpus into a training and a held-out corpus.

    Both have the vocabulary, or the columns, of the corpus; their shards are about as large as its shards.
    """
    words, read = corpus.vocabulary.words, 0
    shard_tokens = max(row.tokens for row in corpus.manifest.shards)
    kind = CorpusWriter if corpus.holds == DOCUMENTS else VectorWriter
    with two_parts(corpus, train, heldout) as folders:
        writers: list[PartWriter] = [kind(folder, len(words), shard_tokens) for folder in folders]
        for reference in corpus.references:
            part = reference.documents() if corpus.holds == DOCUMENTS else reference.vectors()
            out = held.among(document_draws(read, len(part), seed))
            for writer, chosen in zip(writers, (~out, out), strict=True):
                writer.add(part.take(chosen))
            read += len(part)
            progress(read)
        step = Step(corpus=corpus.manifest.digest, kind="documents", seed=seed, low=held.low, high=held.high)
        write_parts(folders, corpus, step)
        finish_parts(writers, (train, heldout), words)


def sample_documents(
    corpus: Corpus, out: str | os.PathLike[str], share: float, *, shard_tokens: int | None = None, seed: int = 0
) -> None:
    """Write a random sample of the documents of a corpus, those that a split would hold out, as a corpus."""
    held, words, read = Held.share(share), corpus.vocabulary.words, 0
    with created(Folder(out)) as folder:
        writer = CorpusWriter(folder, len(words), shard_tokens)
        for reference in corpus.references:
            documents = reference.documents()
            writer.add(documents.take(held.among(document_draws(read, len(documents), seed))))
            read += len(documents)
        step = Step(corpus=corpus.manifest.digest, kind="documents", seed=seed, low=held.low, high=held.high)
        write_part(folder, corpus, step.model_copy(update={"heldout": True}))
        writer.finish(words)
        inherit_history(corpus.folder, folder, documents=read_manifest(folder).documents)
