"""Finished models on disk: `model.json`, the vocabulary, Zarr groups of the global state, rows and documents."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pydantic
from pydantic import BaseModel, ConfigDict

from collapsium.storage.corpus.lineage import Lineage
from collapsium.storage.corpus.manifest import ShortModel, VocabularyRecord
from collapsium.storage.errors import AbsentError, DamagedError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import Count, Digest, check, dump, read_record
from collapsium.storage.runs.processor import Processor

if TYPE_CHECKING:
    import numpy.typing as npt

    from collapsium.storage.corpus.vocabulary import Vocabulary

RECORD = "model.json"
KIND = "collapsium-model"
VERSION = 2


class ShardDocuments(BaseModel):
    """The documents of a training shard: how many, and the digest of their ids."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    documents: Count
    ids_sha256: str


class ModelRecord(ShortModel):
    """What `model.json` says.

    ``blocks`` are the first words of the blocks of the vocabulary and, last, its size; ``shards`` the
    documents of each training shard, none for a model that was not fitted but drawn; ``parts`` the digests of groups
    of arrays, such as ``globals`` and ``rows/00000``; ``summarised`` says that there is a summary of its documents.
    ``lineage`` says where the training tokens come from; None for a model that was drawn. ``processors`` are those that
    have taken part in the fit; none are named by older models and those that were drawn.
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
    parts: dict[str, Digest]
    summarised: bool = False
    lineage: Lineage | None = None
    processors: tuple[Processor, ...] = ()

    @pydantic.model_validator(mode="after")
    def _blocks_are_of_the_vocabulary(self) -> ModelRecord:
        last = self.vocabulary.words
        if list(self.blocks) != sorted(self.blocks) or self.blocks[:1] != (0,) or self.blocks[-1] != last:
            raise ValueError(f"expected blocks of the vocabulary, rising from 0 to {last}")
        return self


# Of a model that has been read; it is read again where it is asked for.
HEAVY = ("vocabulary", "topic_word", "document_topic", "document_ids")


class ModelWriter:
    """Writes the parts of a model, each by whoever holds it, and the record last.

    Parameters
    ----------
    folder : Folder
        The model's folder.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def write_global_state(self, arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[str, str]:
        """Write the global state; return the name of the part and its digest."""
        return self._write("globals", arrays)

    def write_block(self, number: int, rows: Mapping[str, npt.NDArray[Any]]) -> tuple[str, str]:
        """Write the rows of one block of the vocabulary; return the name of the part and its digest."""
        return self._write(f"rows/{number:05d}", rows)

    def write_shard(self, number: int, documents: Mapping[str, npt.NDArray[Any]]) -> tuple[str, str]:
        """Write what a model keeps of a local state; return the name of the part and its digest."""
        return self._write(f"documents/{number:05d}", documents)

    def _write(self, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[str, str]:
        from collapsium.storage.io.arrays import write_arrays

        return name, write_arrays(self.folder / name, arrays)

    def finish(self, record: ModelRecord, vocabulary: Vocabulary) -> ModelRecord:
        """Write the vocabulary and the record, from which readers start; return the record as it was written."""
        return self.write_record(record.model_copy(update={"vocabulary": vocabulary.write(self.folder)}))

    def write_record(self, record: ModelRecord) -> ModelRecord:
        """Write the record alone, over the one that is there, and return it."""
        self.folder.write(RECORD, dump(record.model_dump()))
        return record


class StoredModel:
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
        self.record = read_model_record(found)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.folder.url!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Return what goes along to a worker: of what has been read only the global state, which is small."""
        return {name: value for name, value in self.__dict__.items() if name not in HEAVY}

    @cached_property
    def global_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of the global state."""
        return self._read("globals")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the training corpus."""
        from collapsium.storage.corpus.vocabulary import read_vocabulary

        return read_vocabulary(self.folder, self.record.vocabulary)

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """First and last-plus-one word of each block."""
        return list(zip(self.record.blocks, self.record.blocks[1:], strict=False))

    def row_arrays(self, block: int) -> dict[str, npt.NDArray[Any]]:
        """Read the arrays of the rows of one block of the vocabulary."""
        return self._read(f"rows/{block:05d}")

    def document_arrays(self, shard: int) -> dict[str, npt.NDArray[Any]]:
        """Read what is kept of one training shard's local state."""
        return self._read(f"documents/{shard:05d}")

    def _read(self, part: str) -> dict[str, npt.NDArray[Any]]:
        from collapsium.storage.io.arrays import read_arrays

        if part not in self.record.parts:
            raise DamagedError(f"{self.folder.url}/{RECORD}", f"there is no {part}", "field 'parts'")
        return read_arrays(self.folder / part, self.record.parts[part])


def read_model_record(folder: Folder) -> ModelRecord:
    """Read and check the record of a model.

    Parameters
    ----------
    folder : Folder
        The model's folder.

    Returns
    -------
    ModelRecord
        What it says.

    Raises
    ------
    AbsentError
        There is none.
    DamagedError
        It does not hold what its format asks for.
    """
    return check(ModelRecord, read_record(folder, RECORD, KIND, VERSION, oldest=2), f"{folder.url}/{RECORD}")
