"""The manifest of a corpus: what its folder must hold."""

from __future__ import annotations

from typing import Annotated, Any

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from collapsar.storage.errors import DamagedError
from collapsar.storage.folder import Folder
from collapsar.storage.records import DIGEST, checked, digest_of, dump, parse_record

MANIFEST = "manifest.json"
KIND = "collapsar-corpus"
DOCUMENTS, VECTORS = "documents", "vectors"  # what a corpus may hold
VERSIONS = {DOCUMENTS: 2, VECTORS: 3}  # older releases do not know vectors, and say so

Count = Annotated[int, Field(ge=0)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class ShardRecord(BaseModel):
    """A row of the manifest: one shard's file and what it holds.

    ``ids_sha256`` is the digest of the documents' ids alone: a held-out corpus is known by it to have the same
    documents, however its shards are cut. In a corpus of vectors the shard has a chunk of the Zarr array too, whose
    file has the digest ``vectors_sha256``; documents are vectors then, and pairs and tokens are values.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    documents: Count
    pairs: Count
    tokens: Count
    sha256: Digest
    ids_sha256: Digest
    vectors_sha256: Digest | None = None


class VectorsRecord(BaseModel):
    """The Zarr array of a corpus of vectors: its folder, the digest of its ``zarr.json``, and the rows of a chunk.

    Chunk k holds the vectors of shard k, so that all shards but the last have as many. ``constant`` has the columns
    whose value is the same in all vectors.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    sha256: Digest
    rows: Annotated[int, Field(ge=1)]
    constant: tuple[Count, ...] = ()


class VocabularyRecord(BaseModel):
    """The vocabulary's file, its number of words, and the digest of the words alone.

    Two corpora share a vocabulary when ``words_sha256`` is equal: the file also counts documents and tokens, which
    differ between a training and a held-out part.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    words: Count
    sha256: Digest
    words_sha256: Digest


class Manifest(BaseModel):
    """All that a corpus folder holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
        if any(row.documents != vectors.rows for row in self.shards[:-1]):
            raise ValueError("expected as many vectors in each shard but the last as a chunk has rows")
        if self.shards and not 1 <= self.shards[-1].documents <= vectors.rows:
            raise ValueError("expected no more vectors in the last shard than a chunk has rows")
        if any(column >= words for column in vectors.constant):
            raise ValueError(f"expected constant columns from 0 to {words - 1}")
        return self

    @property
    def holds(self) -> str:
        """What the corpus holds: ``documents`` or ``vectors``."""
        return DOCUMENTS if self.vectors is None else VECTORS

    def record(self) -> dict[str, Any]:
        """Return what ``manifest.json`` says; what concerns vectors is left out where there are none."""
        return self.model_dump(exclude_none=True)

    def write(self, folder: Folder) -> None:
        """Write the manifest into its folder, the last file of a corpus."""
        folder.write(MANIFEST, dump(self.record()))

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest, and so of the corpus: the manifest holds the digest of every file."""
        return digest_of(self.record())


def read_manifest(folder: Folder) -> Manifest:
    """Read and check a corpus's manifest.

    Parameters
    ----------
    folder : Folder
        The corpus.

    Returns
    -------
    Manifest
        What it says.

    Raises
    ------
    AbsentError
        The folder has no manifest.
    DamagedError
        A field is missing, unknown or of another kind.
    """
    path = f"{folder.url}/{MANIFEST}"
    record = parse_record(folder.read(MANIFEST), path, KIND, max(VERSIONS.values()))
    try:
        manifest = Manifest.model_validate({name: value for name, value in record.items() if name != DIGEST})
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DamagedError(path, first["msg"], f"field '{where}'" if where else "") from None
    arrays = () if manifest.vectors is None else (manifest.vectors.file,)
    for file in (manifest.vocabulary.file, *arrays, *(row.file for row in manifest.shards)):
        folder.inside(file)
    checked(record, path)  # last, as what is wrong with a field says more
    return manifest
