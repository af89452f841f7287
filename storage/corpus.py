"""Corpora on disk: opening one, and reading its shards."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property

from collapsar.storage.errors import AbsentError, MismatchError
from collapsar.storage.folder import Folder
from collapsar.storage.manifest import MANIFEST, Manifest, ShardRecord, read_manifest
from collapsar.storage.shard import Documents, Shard, read_documents
from collapsar.storage.vocabulary import Vocabulary, read_vocabulary


@dataclass(frozen=True)
class ShardReference:
    """Where a shard lies: small, and enough for any machine that sees the store to read it.

    Attributes
    ----------
    folder : Folder
        The corpus.
    number : int
        Which of its shards.
    record : ShardRecord
        The shard's row of the manifest.
    words : int
        Number of words of the vocabulary.
    """

    folder: Folder
    number: int
    record: ShardRecord
    words: int

    def documents(self) -> Documents:
        """Read the shard's documents with all their columns."""
        return read_documents(self.folder, self.record, self.words)

    def load(self) -> Shard:
        """Read the shard for sweeping."""
        return Shard.of(self.number, self.documents())


class Corpus:
    """A corpus on disk.

    Parameters
    ----------
    url : str or path-like
        Its folder, local or an fsspec URL.

    Raises
    ------
    AbsentError
        There is no such folder, or it is no corpus.
    DamagedError
        The manifest does not hold what its format asks for.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.folder = Folder(url)
        if not self.folder.exists():
            raise AbsentError(f"{self.folder.url}: no such corpus")
        if not self.folder.exists(MANIFEST):
            raise AbsentError(f"{self.folder.url}: not a corpus, it has no {MANIFEST}; `collapsar ingest` makes one")
        self.manifest: Manifest = read_manifest(self.folder)

    def __repr__(self) -> str:
        return f"Corpus({self.folder.url!r})"

    @property
    def url(self) -> str:
        """The folder as it was given."""
        return self.folder.url

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary, read on first use."""
        return read_vocabulary(self.folder, self.manifest.vocabulary)

    @property
    def references(self) -> list[ShardReference]:
        """Where each shard lies, in their order."""
        words = self.manifest.vocabulary.words
        return [ShardReference(self.folder, number, row, words) for number, row in enumerate(self.manifest.shards)]

    def require_vocabulary_of(self, words_sha256: str, name: str) -> None:
        """Refuse to go on where this corpus has another vocabulary.

        Parameters
        ----------
        words_sha256 : str
            Digest of the words that are expected.
        name : str
            What has those words, for the error.

        Raises
        ------
        MismatchError
            The words differ.
        """
        if self.manifest.vocabulary.words_sha256 != words_sha256:
            raise MismatchError(
                f"{self.url}: its vocabulary ({self.manifest.vocabulary.words} words) is not that of {name}; "
                "expected a corpus ingested with the same vocabulary file, or made by `collapsar split`"
            )
