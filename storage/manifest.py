"""The manifest of a corpus: what its folder must hold."""

from __future__ import annotations

from typing import Annotated

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from collapsar.storage.errors import DamagedError
from collapsar.storage.folder import Folder
from collapsar.storage.records import DIGEST, checked, digest_of, dump, parse_record

MANIFEST = "manifest.json"
KIND = "collapsar-corpus"
VERSION = 2

Count = Annotated[int, Field(ge=0)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class ShardRecord(BaseModel):
    """A row of the manifest: one shard's file and what it holds.

    ``ids_sha256`` is the digest of the documents' ids alone: a held-out corpus is known by it to have the same
    documents, however its shards are cut.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    documents: Count
    pairs: Count
    tokens: Count
    sha256: Digest
    ids_sha256: Digest


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
    version: int = VERSION
    documents: Count
    pairs: Count
    tokens: Count
    vocabulary: VocabularyRecord
    fields: dict[str, str] = Field(default_factory=dict)
    shards: tuple[ShardRecord, ...]

    @pydantic.model_validator(mode="after")
    def _totals_agree(self) -> Manifest:
        for name in ("documents", "pairs", "tokens"):
            if getattr(self, name) != sum(getattr(row, name) for row in self.shards):
                raise ValueError(f"the shards' {name} do not add up to the corpus's")
        return self

    def write(self, folder: Folder) -> None:
        """Write the manifest into its folder, the last file of a corpus."""
        folder.write(MANIFEST, dump(self.model_dump()))

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest, and so of the corpus: the manifest holds the digest of every file."""
        return digest_of(self.model_dump())


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
    record = parse_record(folder.read(MANIFEST), path, KIND, VERSION)
    try:
        manifest = Manifest.model_validate({name: value for name, value in record.items() if name != DIGEST})
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DamagedError(path, first["msg"], f"field '{where}'" if where else "") from None
    for file in (manifest.vocabulary.file, *(row.file for row in manifest.shards)):
        folder.inside(file)
    checked(record, path)  # last, as what is wrong with a field says more
    return manifest
