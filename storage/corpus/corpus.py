"""Open corpora on disk and read their shards."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from collapsium.storage import html
from collapsium.storage.corpus.manifest import (
    MANIFEST,
    Manifest,
    ShardRecord,
    VectorsRecord,
    VocabularyRecord,
    read_manifest,
)
from collapsium.storage.errors import AbsentError, DamagedError, InputError, MismatchError
from collapsium.storage.io.folder import Folder

# Readers of shards import PyArrow, which opening a manifest does not need.
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from collapsium.storage.corpus import shard
    from collapsium.storage.corpus import vectors as vector_files
    from collapsium.storage.corpus import vocabulary as vocabulary_file
    from collapsium.storage.corpus.labels import DocumentRows, Labels


@dataclass(frozen=True)
class ShardReference:
    """The address of a shard: small, and enough for any machine with access to the store to read it."""

    folder: Folder  # The corpus
    number: int  # Number of the shard
    record: ShardRecord  # The shard's row of the manifest
    words: int  # Number of words of the vocabulary
    dense: VectorsRecord | None = None  # Record of the Zarr array of a corpus of vectors
    fields: frozenset[str] | None = None  # Names of the further columns in the manifest; None to skip their comparison

    def documents(self) -> shard.Documents:
        """Read the shard's documents with all columns; for vectors, ids and columns without pairs."""
        if self.dense is None:
            from collapsium.storage.corpus import shard

            documents = shard.read_documents(self.folder, self.record, self.words)
            self._require_fields(documents.extras)
            return documents
        from collapsium.storage.corpus import vectors as vector_files

        return vector_files.without_pairs(*self._columns())

    def ids(self) -> pa.Array:
        """Read the ids of the shard's documents or vectors."""
        return self._columns()[0]

    def vectors(self) -> vector_files.Vectors:
        """Read the shard's vectors with all their columns."""
        from collapsium.storage.corpus import vectors as vector_files

        values = self._values()
        ids, extras = self._columns()
        return vector_files.Vectors(ids, values, extras)

    def further(self) -> dict[str, pa.Array]:
        """Read the further columns of the shard's documents, without decoding words."""
        return self._columns()[1]

    def _columns(self) -> tuple[pa.Array, dict[str, pa.Array]]:
        from collapsium.storage.corpus import shard
        from collapsium.storage.corpus import vectors as vector_files

        read = shard.read_columns if self.dense is None else vector_files.read_columns
        ids, extras = read(self.folder, self.record)
        self._require_fields(extras)
        return ids, extras

    def _require_fields(self, extras: Mapping[str, pa.Array]) -> None:
        """Raise an error if the additional columns differ from the manifest's, as shards are concatenated."""
        if self.fields is not None and extras.keys() != self.fields:
            expected, actual = (", ".join(map(repr, sorted(names))) or "none" for names in (self.fields, extras))
            path = f"{self.folder.url}/{self.record.file}"
            raise DamagedError(path, f"expected the further columns of the manifest, {expected}, found {actual}")

    def _values(self) -> npt.NDArray[np.float64]:
        from collapsium.storage.corpus import vectors as vector_files

        if self.dense is None:
            raise MismatchError(f"{self.folder.url}: expected a corpus of vectors, found one of documents")
        return vector_files.read_values(self.folder, self.dense, self.number, self.record, self.words)

    def load(
        self,
        *,
        labelled: bool = False,
        segmented: bool = False,
        design: Callable[[Mapping[str, pa.Array], int], DocumentRows] | None = None,
    ) -> vector_files.AnyShard:
        """Read the shard for sweeping, with labels, segments and rows of a design on request."""
        from collapsium.storage.corpus import shard

        if self.dense is not None:
            from collapsium.storage.corpus import vectors as vector_files

            return vector_files.VectorShard.of(self.number, self._values())
        return shard.Shard.of(self.number, self.documents(), labelled=labelled, segmented=segmented, design=design)

    def labels(self) -> Labels:
        """Read the labels and covariates of the shard's documents, without decoding words."""
        from collapsium.storage.corpus import list_columns

        return list_columns.labels_of(self.record.documents, self.further())


class Corpus:
    """A corpus on disk.

    Parameters
    ----------
    url : str or path-like
        Its folder, local or an fsspec URL.

    Raises
    ------
    AbsentError
        The folder does not exist, or is no corpus.
    DamagedError
        The manifest does not conform to its format.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.folder = Folder(url)
        if not self.folder.exists():
            raise AbsentError(f"{self.folder.url}: no such corpus")
        if not self.folder.exists(MANIFEST):
            raise AbsentError(f"{self.folder.url}: not a corpus, it has no {MANIFEST}; `ingest` makes one")
        self.manifest: Manifest = read_manifest(self.folder)

    def __repr__(self) -> str:
        return f"Corpus({self.folder.url!r})"

    def __fspath__(self) -> str:
        """Return the path, so that functions of a path accept the corpus."""
        return self.folder.url

    def _repr_html_(self) -> str:
        """Return a table of the corpus, for notebooks."""
        manifest = self.manifest
        words = "words" if self.holds == "documents" else "columns"
        sizes: list[tuple[str, html.Cell]] = [
            (self.holds, manifest.documents),
            ("tokens", manifest.tokens),
            (words, manifest.vocabulary.words),
        ]
        rest: list[tuple[str, html.Cell]] = [
            ("shards", len(manifest.shards)),
            ("fields", ", ".join(manifest.fields)),
            ("folder", self.url),
        ]
        return html.block("Corpus", html.facts(sizes), html.details("details", html.facts(rest)))

    @property
    def url(self) -> str:
        """URL of the folder, as the caller wrote it."""
        return self.folder.url

    @cached_property
    def vocabulary(self) -> vocabulary_file.Vocabulary:
        """Vocabulary, read on first use."""
        from collapsium.storage.corpus import vocabulary as vocabulary_file

        return vocabulary_file.read_vocabulary(self.folder, self.manifest.vocabulary)

    @property
    def references(self) -> list[ShardReference]:
        """Addresses of the shards, in order."""
        words = self.manifest.vocabulary.words
        dense, rows = self.manifest.vectors, self.manifest.shards
        fields = frozenset(self.manifest.fields)
        return [ShardReference(self.folder, number, row, words, dense, fields) for number, row in enumerate(rows)]

    @property
    def holds(self) -> str:
        """Kind of the corpus: ``documents`` or ``vectors``."""
        return self.manifest.holds

    def require(self, holds: str, consumer: str) -> None:
        """Raise an error if the corpus is of another kind, or empty.

        Parameters
        ----------
        holds : str
            ``documents`` or ``vectors``.
        consumer : str
            The family or command that requires this, for the error.

        Raises
        ------
        MismatchError
            The corpus is of the other kind.
        InputError
            The corpus is empty.
        """
        if self.holds != holds:
            raise MismatchError(f"{self.url}: a corpus of {self.holds}; {consumer} takes a corpus of {holds}")
        self.require_documents()

    def require_documents(self) -> None:
        """Raise `InputError` if the corpus has no document, or no vector."""
        if not self.manifest.documents:
            raise InputError(self.url, f"the corpus is empty: expected at least one {self.holds.removesuffix('s')}")

    def require_tokens(self) -> None:
        """Raise `InputError` if no document of the corpus has a token."""
        self.require_documents()
        if not self.manifest.tokens:
            raise InputError(self.url, "the corpus is empty: expected at least one document with a word")

    def begins_with(self, vocabulary: VocabularyRecord) -> bool:
        """Return True if this corpus has the given vocabulary, or the same one with further words appended."""
        from collapsium.storage.corpus import vocabulary as vocabulary_file

        record = self.manifest.vocabulary
        if record.words_sha256 == vocabulary.words_sha256 or record.words <= vocabulary.words:
            return record.words_sha256 == vocabulary.words_sha256
        return vocabulary_file.words_digest(self.vocabulary.words[: vocabulary.words]) == vocabulary.words_sha256

    def require_vocabulary_of(self, words_sha256: str, name: str) -> None:
        """Raise an error if this corpus has another vocabulary.

        Parameters
        ----------
        words_sha256 : str
            Digest of the words that are expected.
        name : str
            The object with the expected words, for the error.

        Raises
        ------
        MismatchError
            The words differ.
        """
        if self.manifest.vocabulary.words_sha256 != words_sha256:
            raise MismatchError(
                f"{self.url}: its vocabulary ({self.manifest.vocabulary.words} words) differs from {name}'s; "
                "expected a corpus ingested with the same vocabulary file, or made by `split`"
            )
