"""Finished models on disk: `model.json`, the vocabulary, Zarr groups of the global state, rows and documents.

Beside them are posteriors of the training documents that effects have stored: a folder of arrays for each shard.
"""

from __future__ import annotations

import hashlib
import os
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar

import pydantic
from pydantic import Field

from collapsium.storage.corpus.lineage import Lineage
from collapsium.storage.corpus.manifest import ShortModel, VocabularyRecord
from collapsium.storage.data_types import AnyArray, Arrays, JsonObject
from collapsium.storage.errors import AbsentError, DamagedError, MismatchError
from collapsium.storage.io.folder import Folder
from collapsium.storage.io.records import Count, Digest, Record, canonical, check, digest_of, dump, read_record

if TYPE_CHECKING:
    from collapsium.storage.corpus import vocabulary as vocabulary_file


Text = Annotated[str, Field(max_length=10_000)]


class Processor(Record):
    """A processor and the libraries by which the last bits of results may differ between machines."""

    machine: Text  # Architecture and operating system
    # LLVM's names of the processor that kernels are compiled for, and of its instruction sets
    kernels: Text
    features: Text
    library: Text  # The C library and its version
    # The processor for which NumPy's linear algebra chose its code; empty for families that do not use it
    blas: Text = ""


RECORD = "model.json"
KIND = "collapsium-model"
VERSION = 2
MEMBER_FOLDER = "^[0-9]{3,6}(/model|/members/[0-9]{3,6})?$"  # Folders of members' models, which are within the run
MAX_COLUMNS = 1 << 20  # Columns of a mean, at most: topics of a model
Column = Annotated[int, Field(strict=True, ge=-1, lt=MAX_COLUMNS)]


class ShardDocuments(Record):
    """Number of documents of a training shard, and the digest of their ids."""

    documents: Count
    ids_sha256: str


class MatchedMember(ShortModel):
    """A member of an ensemble, in the record of the mean of its members."""

    # Folder of its model, below `members/` of the run: ``003/model``, ``003/members/001`` or ``001``
    folder: Annotated[str, Field(pattern=MEMBER_FOLDER)]
    digest: Digest  # Digest of its record
    # Its column for each column of the mean, -1 where it has none
    columns: Annotated[
        tuple[Annotated[int, Field(strict=True, ge=-1, lt=MAX_COLUMNS)], ...], Field(max_length=MAX_COLUMNS)
    ]


class ModelRecord(ShortModel):
    """The fields of `model.json`."""

    format: str = KIND
    version: int = VERSION
    family: str
    options: JsonObject
    iterations: Count
    corpus: str
    vocabulary: VocabularyRecord
    # Block boundaries: the first word of each block of the vocabulary, then the number of words
    blocks: tuple[Count, ...]
    shards: tuple[ShardDocuments, ...]  # The training shards; empty for a model that was simulated, not fitted
    parts: dict[str, Digest]  # SHA-256 digests of the groups of arrays, such as ``global_state`` and ``rows/00000``
    summarised: bool = False  # True if `summary.json` describes the training documents
    lineage: Lineage | None = None  # Origin of the training tokens; None for a model that was simulated
    processors: tuple[Processor, ...] = ()  # Processors that took part in the fit; empty for simulated models
    # The models that are averaged, if this model is a mean, which has no parts; empty for all other models
    members: tuple[MatchedMember, ...] = ()

    @pydantic.model_validator(mode="after")
    def _blocks_are_of_the_vocabulary(self) -> ModelRecord:
        last = self.vocabulary.words
        if list(self.blocks) != sorted(self.blocks) or self.blocks[:1] != (0,) or self.blocks[-1] != last:
            raise ValueError(f"expected blocks of the vocabulary, rising from 0 to {last}")
        return self

    @pydantic.model_validator(mode="after")
    def _members_have_the_same_columns(self) -> ModelRecord:
        if len({len(member.columns) for member in self.members}) > 1:
            raise ValueError("expected as many columns of each member")
        if len({member.folder for member in self.members}) < len(self.members):
            raise ValueError("expected each member once")
        return self

    @pydantic.model_serializer(mode="wrap")
    def _without_empty_members(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, object]:
        """Omit the members if there are none, so that digests of records stay as in earlier releases."""
        fields: dict[str, object] = handler(self)
        if not self.members:
            fields.pop("members", None)
        return fields

    @property
    def digest(self) -> str:
        """Digest of the record, which has the digests of all parts."""
        return digest_of(self.model_dump(mode="json"))


class ModelWriter:
    """Writes the groups of arrays of a model and, last, its record.

    Workers write the groups that they hold; the driver writes the record.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def write_global_state(self, arrays: Arrays) -> tuple[str, str]:
        """Write the global state; return the group's name and digest."""
        return self._write("global_state", arrays)

    def write_block(self, number: int, rows: Arrays) -> tuple[str, str]:
        """Write the rows of one block of the vocabulary; return the group's name and digest."""
        return self._write(f"rows/{number:05d}", rows)

    def write_shard(self, number: int, documents: Arrays) -> tuple[str, str]:
        """Write the part of a shard's local state that a model retains; return the group's name and digest."""
        return self._write(f"documents/{number:05d}", documents)

    def _write(self, name: str, arrays: Arrays) -> tuple[str, str]:
        from collapsium.storage.io import arrays as stored_arrays

        return name, stored_arrays.write_arrays(self.folder / name, arrays)

    def finish(self, record: ModelRecord, vocabulary: vocabulary_file.Vocabulary) -> ModelRecord:
        """Write the vocabulary and then the record, which makes the model complete; return the record as written."""
        return self.write_record(record.model_copy(update={"vocabulary": vocabulary.write(self.folder)}))

    def write_record(self, record: ModelRecord) -> ModelRecord:
        """Write the record alone, replacing an existing one, and return it."""
        self.folder.write(RECORD, dump(record.model_dump()))
        return record


class StoredModel:
    """The files of a finished model.

    Attributes
    ----------
    finished : bool
        True, except for a checkpoint that is read as a model.
    tokens : int or None
        Tokens of the corpus, with which a checkpoint's counts are compared; None for a finished model.
    """

    finished: ClassVar[bool] = True
    tokens: int | None = None

    def __init__(self, url: str | os.PathLike[str]) -> None:
        root = Folder(url)
        if not root.exists():
            raise AbsentError(f"{root.url}: no such run or model")
        candidates = [root, root / "model", root / "truth"]
        folder = next((candidate for candidate in candidates if candidate.exists(RECORD)), None)
        if folder is None:
            if root.exists("run.json"):
                raise AbsentError(f"{root.url}: the run has no model yet; it is still running, or it was stopped")
            raise AbsentError(f"{root.url}: neither a run nor a model, there is no {RECORD}")
        self.folder = folder
        self.record = read_model_record(folder)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.folder.url!r})"

    def __getstate__(self) -> dict[str, object]:
        """Return the attributes that are pickled: not the vocabulary, which a worker reads again on first use."""
        return {name: value for name, value in self.__dict__.items() if name != "vocabulary"}

    @cached_property
    def global_arrays(self) -> dict[str, AnyArray]:
        """The arrays of the global state."""
        return self._read("global_state")

    @cached_property
    def vocabulary(self) -> vocabulary_file.Vocabulary:
        """The vocabulary of the training corpus."""
        from collapsium.storage.corpus import vocabulary as vocabulary_file

        return vocabulary_file.read_vocabulary(self.folder, self.record.vocabulary)

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """First and last-plus-one word of each block."""
        return list(zip(self.record.blocks, self.record.blocks[1:], strict=False))

    def row_arrays(self, block: int) -> dict[str, AnyArray]:
        """Read the arrays of the rows of one block of the vocabulary."""
        return self._read(f"rows/{block:05d}")

    def document_arrays(self, shard: int) -> dict[str, AnyArray]:
        """Read the part of one training shard's local state that the model retains."""
        return self._read(f"documents/{shard:05d}")

    def _read(self, part: str) -> dict[str, AnyArray]:
        from collapsium.storage.io import arrays as stored_arrays

        if part not in self.record.parts:
            raise DamagedError(f"{self.folder.url}/{RECORD}", f"expected a digest of {part}", "field 'parts'")
        try:
            return stored_arrays.read_arrays(self.folder / part, self.record.parts[part])
        except DamagedError:
            self.require_unchanged()
            raise

    def require_unchanged(self) -> None:
        """Raise `MismatchError` if the folder has another model by now, as after `resume` or with `overwrite`."""
        if read_model_record(self.folder) != self.record:
            raise MismatchError(f"{self.folder.url}: another model has replaced it since it was opened; open it again")


def read_model_record(folder: Folder) -> ModelRecord:
    """Read and check the record of a model."""
    return check(ModelRecord, read_record(folder, RECORD, KIND, VERSION, oldest=2), f"{folder.url}/{RECORD}")


POSTERIORS = "posteriors"  # Within the folder of a model
POSTERIORS_RECORD = "posteriors.json"
POSTERIORS_KIND = "collapsium-posteriors"


class PosteriorRecord(Record):
    """Posteriors of a model's documents: all that they depend on, and the digests of their arrays."""

    model: str  # Digest of the model
    corpus: str  # Digest of the corpus
    formula: str  # Formula that the prior follows
    seed: int
    topics: tuple[Count, ...]  # Permanent ids of the columns
    digests: tuple[Digest, ...] = ()  # Digest of each shard's arrays

    def folder(self, model: Folder) -> Folder:
        """Return the folder of such posteriors of a model."""
        key = canonical(self.model_dump(mode="json", exclude={"digests"}))
        return model / POSTERIORS / hashlib.sha256(key).hexdigest()[:16]

    def write(self, model: Folder) -> None:
        """Write the record, after the arrays."""
        record = {"format": POSTERIORS_KIND, "version": VERSION, **self.model_dump(mode="json")}
        self.folder(model).write(POSTERIORS_RECORD, dump(record))

    def stored(self, model: Folder) -> PosteriorRecord | None:
        """Return the record of the same posteriors that a model has; None without them."""
        folder = self.folder(model)
        try:
            record = read_record(folder, POSTERIORS_RECORD, POSTERIORS_KIND, VERSION)
        except AbsentError:
            return None
        known = {name: value for name, value in record.items() if name not in ("format", "version")}
        saved = check(PosteriorRecord, known, f"{folder.url}/{POSTERIORS_RECORD}")
        return saved if saved.model_copy(update={"digests": ()}) == self else None
