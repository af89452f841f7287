"""Finished models on disk: `model.json`, the vocabulary, and Zarr groups of the globals, the rows and the documents."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any

import numpy.typing as npt
import pydantic
from pydantic import BaseModel, ConfigDict, Field

from collapsar.storage.arrays import read_arrays, write_arrays
from collapsar.storage.errors import AbsentError, DamagedError
from collapsar.storage.folder import Folder
from collapsar.storage.manifest import VocabularyRecord
from collapsar.storage.records import dump, read_record
from collapsar.storage.vocabulary import Vocabulary, read_vocabulary

RECORD = "model.json"
KIND = "collapsar-model"
VERSION = 1

Count = Annotated[int, Field(ge=0)]


class ShardDocuments(BaseModel):
    """The documents of a training shard: how many, and the digest of their ids."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    documents: Count
    ids_sha256: str


class ModelRecord(BaseModel):
    """What `model.json` says.

    ``blocks`` are the first words of the blocks of the vocabulary and, last, its size; ``shards`` the
    documents of each training shard, none for a model that was not fitted but drawn.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str = KIND
    version: int = VERSION
    family: str
    options: dict[str, Any]
    iterations: Count
    corpus: str
    vocabulary: VocabularyRecord
    blocks: tuple[Count, ...]
    shards: tuple[ShardDocuments, ...]


class ModelWriter:
    """Writes the parts of a model, each by whoever holds it, and the record last.

    Parameters
    ----------
    folder : Folder
        The model's folder.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def write_globals(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write the globals."""
        write_arrays(self.folder / "globals", arrays)

    def write_block(self, number: int, rows: Mapping[str, npt.NDArray[Any]]) -> str:
        """Write the rows of one block of the vocabulary; return the name of what was written."""
        name = f"rows/{number:05d}"
        write_arrays(self.folder / name, rows)
        return name

    def write_shard(self, number: int, local: Mapping[str, npt.NDArray[Any]]) -> str:
        """Write what a model keeps of a local state, the arrays named ``document...``; return its name."""
        name = f"documents/{number:05d}"
        write_arrays(self.folder / name, {key: values for key, values in local.items() if key.startswith("document")})
        return name

    def finish(self, record: ModelRecord, vocabulary: Vocabulary) -> None:
        """Write the vocabulary and the record, from which readers start."""
        written = vocabulary.write(self.folder)
        self.folder.write(RECORD, dump(record.model_copy(update={"vocabulary": written}).model_dump()))


class Model:
    """A finished model.

    Parameters
    ----------
    url : str or path-like
        The folder of a run, of a model, or of a simulated corpus with its truth.

    Attributes
    ----------
    folder : Folder
        The model's folder.
    record : ModelRecord
        What its `model.json` says.

    Raises
    ------
    AbsentError
        There is no model.
    DamagedError
        A file does not hold what its format asks for.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        given = Folder(url)
        if not given.exists():
            raise AbsentError(f"{given.url}: no such run or model")
        places = [given, given / "model", given / "truth"]
        found = next((place for place in places if place.exists(RECORD)), None)
        if found is None:
            if given.exists("run.json"):
                raise AbsentError(f"{given.url}: the run has no model yet; it is still going on, or it was stopped")
            raise AbsentError(f"{given.url}: neither a run nor a model, there is no {RECORD}")
        self.folder = found
        try:
            self.record = ModelRecord.model_validate(read_record(found, RECORD, KIND, VERSION))
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise DamagedError(f"{found.url}/{RECORD}", first["msg"], f"field '{where}'") from None

    def __repr__(self) -> str:
        return f"Model({self.folder.url!r})"

    @cached_property
    def globals(self) -> dict[str, npt.NDArray[Any]]:
        """The globals."""
        return read_arrays(self.folder / "globals")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the training corpus."""
        return read_vocabulary(self.folder, self.record.vocabulary)

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """First and last-plus-one word of each block."""
        return list(zip(self.record.blocks, self.record.blocks[1:], strict=False))

    def rows(self, block: int) -> dict[str, npt.NDArray[Any]]:
        """Read the rows of one block of the vocabulary."""
        return read_arrays(self.folder / f"rows/{block:05d}")

    def documents(self, shard: int) -> dict[str, npt.NDArray[Any]]:
        """Read what is kept of one training shard's local state."""
        return read_arrays(self.folder / f"documents/{shard:05d}")
