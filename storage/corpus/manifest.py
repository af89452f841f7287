"""The manifest of a corpus: its files with their digests, and totals."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import Annotated

import pydantic
from pydantic import Field

from collapsium.storage.data_types import JsonObject
from collapsium.storage.io.folder import Folder, require_inside
from collapsium.storage.io.records import (
    DIGEST,
    MAX_BYTES,
    Count,
    Digest,
    Record,
    check,
    checked,
    digest_of,
    dump,
    parse_record,
)
from collapsium.storage.printable import short

MANIFEST = "manifest.json"
KIND = "collapsium-corpus"
DOCUMENTS, VECTORS = "documents", "vectors"  # Kinds of corpora
VERSIONS = {DOCUMENTS: 2, VECTORS: 3}  # Format version of each kind, so that older releases refuse vectors
APPENDED_VECTORS = 4  # Format version of a corpus of vectors with additions
MAX_SHARD_DOCUMENTS = (1 << 31) - 1  # Documents of a shard, at most: the offsets of its columns are int32

Rows = Annotated[int, Field(strict=True, ge=1, lt=1 << 63)]


class ShardRecord(Record):
    """A row of the manifest: one shard's file and its contents.

    ``ids_sha256`` is the digest of the documents' ids, by which a held-out corpus is known to have the same documents.
    In a corpus of vectors, documents are vectors, and pairs and tokens are values; ``vectors_sha256`` is the digest of
    the shard's chunk of the Zarr array.
    """

    file: str
    documents: Annotated[int, Field(strict=True, ge=1, le=MAX_SHARD_DOCUMENTS)]
    pairs: Count
    tokens: Count
    sha256: Digest
    ids_sha256: Digest
    vectors_sha256: Digest | None = None


class AppendedArray(Record):
    """A Zarr array of vectors that were appended: chunk k holds the vectors of shard ``first`` + k."""

    file: str
    sha256: Digest
    rows: Rows
    first: Rows


class ShortModel(Record):
    """A base of pydantic records whose representation is a few lines at most."""

    def __repr__(self) -> str:
        named = ((name, getattr(self, name)) for name in type(self).model_fields)
        return f"{type(self).__name__}({', '.join(f'{name}={short(value)}' for name, value in named)})"

    __str__ = __repr__


class VectorsRecord(ShortModel):
    """The Zarr array of a corpus of vectors: its folder, the digest of its ``zarr.json``, and the rows of a chunk.

    Chunk k has the vectors of shard k, so that all shards of an array but the last are of equal size. Each addition to
    the corpus is a separate array in ``appended``, because filling up the last chunk would change what readers see.
    ``constant`` has the columns with the same value in all vectors.
    """

    file: str
    sha256: Digest
    rows: Rows
    constant: tuple[Count, ...] = ()
    appended: tuple[AppendedArray, ...] | None = None

    @property
    def arrays(self) -> tuple[AppendedArray | VectorsRecord, ...]:
        """All arrays, in the order of their shards."""
        return (self, *(self.appended or ()))

    @property
    def starts(self) -> tuple[int, ...]:
        """First shard of each array."""
        return (0, *(addition.first for addition in self.appended or ()))

    def place(self, shard: int) -> tuple[AppendedArray | VectorsRecord, int]:
        """Return the array of a shard, and the number of its chunk."""
        number = bisect_right(self.starts, shard) - 1
        return self.arrays[number], shard - self.starts[number]


class VocabularyRecord(Record):
    """The vocabulary's file, its number of words, and the digest of the words alone.

    Two corpora have the same vocabulary if ``words_sha256`` is equal. The file also has the words' counts, which differ
    between a training and a held-out part.
    """

    file: str
    words: Count
    sha256: Digest
    words_sha256: Digest


class Manifest(ShortModel):
    """The contents of a corpus.

    Attributes
    ----------
    format, version : str and int
        Kind and version of the record.
    documents, pairs, tokens : int
        Totals over the shards; a pair is a document and a word that occurs in it.
    vocabulary : VocabularyRecord
        File, digests and number of words of the vocabulary.
    fields : dict of str to str
        Types of the optional columns of the shards, such as titles, labels and covariates.
    shards : tuple of ShardRecord
        File, sizes and digests of each shard.
    vectors : VectorsRecord or None
        Arrays of a corpus of vectors.
    """

    format: str = KIND
    version: int = VERSIONS[DOCUMENTS]
    documents: Count
    pairs: Count
    tokens: Count
    vocabulary: VocabularyRecord
    fields: dict[str, str] = Field(default_factory=dict)
    shards: tuple[ShardRecord, ...]
    vectors: VectorsRecord | None = None

    @pydantic.model_validator(mode="after")
    def _totals_agree(self) -> Manifest:
        for name in ("documents", "pairs", "tokens"):
            if getattr(self, name) != sum(getattr(row, name) for row in self.shards):
                raise ValueError(f"the shards' {name} do not add up to the corpus's")
        return self

    @pydantic.model_validator(mode="after")
    def _vectors_agree(self) -> Manifest:
        words, vectors = self.vocabulary.words, self.vectors
        if any((row.vectors_sha256 is None) != (vectors is None) for row in self.shards):
            raise ValueError("expected a digest of vectors for each shard, or for none")
        if vectors is None:
            return self
        if self.version < VERSIONS[VECTORS]:
            raise ValueError(f"expected version {VERSIONS[VECTORS]} of a corpus of vectors, found {self.version}")
        if any(row.pairs != row.documents * words or row.tokens != row.pairs for row in self.shards):
            raise ValueError("expected as many values as vectors times columns")
        if vectors.appended is not None and self.version < APPENDED_VECTORS:
            raise ValueError(f"expected version {APPENDED_VECTORS} of vectors with additions, found {self.version}")
        starts = (*vectors.starts, len(self.shards))
        if any(first >= after for first, after in pairwise(starts[int(not self.shards) :])):
            raise ValueError("expected arrays of vectors in the order of their shards, each of one or more")
        for array, first, after in zip(vectors.arrays, starts, starts[1:], strict=False):
            if any(row.documents != array.rows for row in self.shards[first : after - 1]):
                raise ValueError("expected as many vectors in each shard but the last as a chunk has rows")
            if self.shards and not 1 <= self.shards[after - 1].documents <= array.rows:
                raise ValueError("expected no more vectors in the last shard than a chunk has rows")
        if any(column >= words for column in vectors.constant):
            raise ValueError(f"expected constant columns from 0 to {words - 1}")
        return self

    @property
    def holds(self) -> str:
        """Kind of the corpus: ``documents`` or ``vectors``."""
        return DOCUMENTS if self.vectors is None else VECTORS

    def record(self) -> JsonObject:
        """Return the contents of ``manifest.json``, without the fields of vectors in a corpus of documents."""
        return self.model_dump(exclude_none=True)

    def write(self, folder: Folder) -> None:
        """Write the manifest, the last file of a corpus."""
        folder.write(MANIFEST, dump(self.record()))

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest and, because it contains the digest of every file, of the corpus."""
        return digest_of(self.record())


def read_manifest(folder: Folder) -> Manifest:
    """Read and check a corpus's manifest."""
    path = f"{folder.url}/{MANIFEST}"
    record = parse_record(folder.read(MANIFEST, MAX_BYTES), path, KIND, APPENDED_VECTORS)
    manifest = check(Manifest, {name: value for name, value in record.items() if name != DIGEST}, path)
    arrays = () if manifest.vectors is None else tuple(array.file for array in manifest.vectors.arrays)
    for file in (manifest.vocabulary.file, *arrays, *(row.file for row in manifest.shards)):
        require_inside(folder.url, file)
    # The digest is checked last, because an error about a field is more specific.
    checked(record, path)
    return manifest
