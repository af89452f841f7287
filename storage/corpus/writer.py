"""Write a corpus: documents arrive in chunks of any size, and shards are divided by tokens."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collapsium.storage.corpus.labels import Name
from collapsium.storage.corpus.list_columns import segment_lists
from collapsium.storage.corpus.manifest import VECTORS, VERSIONS, Manifest, ShardRecord, VectorsRecord
from collapsium.storage.corpus.parquet import LABELS, encode_columns, too_long
from collapsium.storage.corpus.shard import EXTRAS, Documents, encode, merge_segments
from collapsium.storage.corpus.vectors import ARRAY, ArrayWriter, Vectors
from collapsium.storage.corpus.vocabulary import Vocabulary
from collapsium.storage.errors import InputError
from collapsium.storage.io.arrays import MOST_CHUNK_BYTES
from collapsium.storage.io.folder import Folder

# Default size of shards, a compromise between parallel sweeps and the overhead of tasks
DEFAULT_SHARDS = 8  # Number of shards, within the limits below
MIN_SHARD_TOKENS = 100_000  # Least number of tokens of a shard
MAX_SHARD_TOKENS = 2_000_000  # Largest number of tokens of a shard


def finish_corpus(
    folder: Folder,
    vocabulary: Vocabulary,
    shards: Sequence[ShardRecord],
    fields: Mapping[str, str],
    *,
    may_be_empty: bool = False,
) -> Manifest:
    """Write the vocabulary and the manifest of a corpus whose shards are written.

    With `may_be_empty`, no document needs a word, but there must be a document.
    """
    tokens = sum(row.tokens for row in shards)
    if not tokens and not (may_be_empty and shards):
        raise InputError(folder.url, "the corpus is empty: expected at least one document with a word")
    manifest = Manifest(
        documents=sum(row.documents for row in shards),
        pairs=sum(row.pairs for row in shards),
        tokens=tokens,
        vocabulary=vocabulary.write(folder),
        fields=dict(fields),
        shards=tuple(shards),
    )
    manifest.write(folder)
    return manifest


class CorpusWriter:
    """Writes the shards, the vocabulary and, last, the manifest of a corpus.

    A document belongs to shard t // `shard_tokens`, where t is the number of its first token in the corpus; an empty
    document belongs to the shard of the previous document. Shards are therefore of similar size, and do not depend on
    the chunks in which documents arrive.
    """

    def __init__(self, folder: Folder, words: int, shard_tokens: int | None = None) -> None:
        self._folder = folder
        self._shard_tokens = shard_tokens
        self._waiting: list[Documents] = []
        self._waiting_tokens = 0
        # Number of tokens before the first waiting document.
        self._before = 0
        self._rows: list[ShardRecord] = []
        self._documents = np.zeros(words, dtype=np.int64)
        self._tokens = np.zeros(words, dtype=np.int64)
        self._fields: dict[str, str] = {}

    def add(self, documents: Documents) -> None:
        """Append documents."""
        if not len(documents):
            return
        self._waiting.append(documents)
        self._waiting_tokens += int(documents.counts.sum(dtype=np.int64))
        if self._shard_tokens is None and self._waiting_tokens > DEFAULT_SHARDS * MAX_SHARD_TOKENS:
            self._shard_tokens = MAX_SHARD_TOKENS
        if self._shard_tokens is not None and self._waiting_tokens > 2 * self._shard_tokens:
            self._flush(self._shard_tokens, last=False)

    def finish(self, words: list[str], *, may_be_empty: bool = False) -> Manifest:
        """Write the waiting documents, the vocabulary and the manifest."""
        if self._waiting:
            self._flush(self._shard_tokens or even_shard_tokens(self._waiting_tokens), last=True)
        vocabulary = Vocabulary(words, self._documents, self._tokens)
        return finish_corpus(self._folder, vocabulary, self._rows, self._fields, may_be_empty=may_be_empty)

    def _flush(self, shard_tokens: int, *, last: bool) -> None:
        """Write the complete shards among the waiting documents, and the incomplete one at the `last` call."""
        documents = Documents.join(self._waiting)
        lengths = documents.tokens
        shard = (self._before + np.cumsum(lengths) - lengths) // shard_tokens
        shard = np.maximum(np.maximum.accumulate(np.where(lengths > 0, shard, -1)), 0)
        bounds = [0, *(np.flatnonzero(np.diff(shard)) + 1).tolist(), len(documents)]
        complete = len(bounds) - 1 if last else len(bounds) - 2
        for first, end in pairwise(bounds[: complete + 1]):
            self.add_shard(documents.slice(first, end))
        rest = documents.slice(bounds[complete], len(documents))
        self._before += int(lengths[: bounds[complete]].sum())
        self._waiting = [rest] if len(rest) else []
        self._waiting_tokens = int(rest.counts.sum(dtype=np.int64))

    def add_shard(self, documents: Documents) -> None:
        """Write documents as a separate shard, for example to keep the shards of another corpus."""
        if (long := too_long(documents.counts, documents.offsets)) is not None:
            raise InputError(f"document {documents.ids[long[0]].as_py()!r}", long[1])
        merged = merge_segments(documents)
        self._documents += np.bincount(merged.words, minlength=self._documents.size)
        np.add.at(self._tokens, merged.words, merged.counts)
        self._fields = {name: str(column.type) for name, column in documents.extras.items()}
        file = f"documents/part-{len(self._rows):05d}.parquet"
        digest = self._folder.write(file, encode(documents))
        tokens = int(documents.counts.sum(dtype=np.int64))
        row = ShardRecord(
            file=file,
            documents=len(documents),
            pairs=documents.words.size,
            tokens=tokens,
            sha256=digest,
            ids_sha256=documents.ids_sha256(),
        )
        self._rows.append(row)


@dataclass(frozen=True)
class WrittenVectors:
    """Shards of vectors that were written."""

    shards: tuple[ShardRecord, ...]  # Rows of the manifest
    array: VectorsRecord  # Their Zarr array
    fields: dict[str, str]  # Names and types of further columns
    # The smallest and the largest value of each column; (columns,)
    smallest: npt.NDArray[np.float64]
    largest: npt.NDArray[np.float64]


class VectorWriter:
    """Writes the shards, the vocabulary and, last, the manifest of a corpus of vectors.

    All shards but the last have the same number of vectors, because each is a chunk of the same Zarr array.
    """

    def __init__(
        self,
        folder: Folder,
        columns: int,
        shard_tokens: int | None = None,
        *,
        array: str = ARRAY,
        behind: int | None = None,
    ) -> None:
        self._folder, self._columns = folder, columns
        self._file, self._behind = array, behind
        self._waiting: list[Vectors] = []
        self._shards: list[ShardRecord] = []
        self._smallest = np.full(columns, np.inf)
        self._largest = np.full(columns, -np.inf)
        self._fields: dict[str, str] = {}
        self._array = None if shard_tokens is None else self._begun(shard_tokens)

    def _begun(self, shard_tokens: int) -> ArrayWriter:
        width = max(self._columns, 1)
        rows = max(min(math.ceil(shard_tokens / width), MOST_CHUNK_BYTES // (8 * width)), 1)
        return ArrayWriter(self._folder / self._file, rows, width)

    @property
    def _waiting_rows(self) -> int:
        return sum(map(len, self._waiting))

    def add(self, vectors: Vectors) -> None:
        """Append vectors."""
        if not len(vectors):
            return
        self._waiting.append(vectors)
        self._smallest = np.minimum(self._smallest, vectors.values.min(axis=0, initial=np.inf))
        self._largest = np.maximum(self._largest, vectors.values.max(axis=0, initial=-np.inf))
        if self._array is None and self._waiting_rows * self._columns > DEFAULT_SHARDS * MAX_SHARD_TOKENS:
            self._array = self._begun(MAX_SHARD_TOKENS)
        while self._array is not None and self._waiting_rows >= self._array.rows:
            self._write(self._array)

    def finish(self, columns: list[str]) -> Manifest:
        """Write the waiting vectors, the vocabulary and the manifest."""
        width, written = self._columns, self.close()
        documents = sum(row.documents for row in written.shards)
        every = np.full(width, documents, dtype=np.int64)
        manifest = Manifest(
            version=VERSIONS[VECTORS],
            documents=documents,
            pairs=documents * width,
            tokens=documents * width,
            vocabulary=Vocabulary(columns, every, every).write(self._folder),
            fields=written.fields,
            shards=written.shards,
            vectors=written.array.model_copy(
                update={"constant": tuple(np.flatnonzero(written.smallest == written.largest).tolist())}
            ),
        )
        manifest.write(self._folder)
        return manifest

    def close(self) -> WrittenVectors:
        """Write the waiting vectors, without a vocabulary and a manifest."""
        width = self._columns
        if not width or not (self._shards or self._waiting):
            raise InputError(self._folder.url, "the corpus is empty: expected at least one vector with a column")
        array = self._array or self._begun(even_shard_tokens(self._waiting_rows * width))
        while self._waiting:
            self._write(array)
        record = VectorsRecord(file=self._file, sha256=array.finish(), rows=array.rows)
        return WrittenVectors(tuple(self._shards), record, self._fields, self._smallest, self._largest)

    def _write(self, array: ArrayWriter) -> None:
        """Write a shard of the first waiting vectors; only these are copied, to save memory."""
        parts: list[Vectors] = []
        room = array.rows
        while self._waiting and room:
            first = self._waiting.pop(0)
            if len(first) > room:
                self._waiting.insert(0, first.slice(room, len(first)))
                first = first.slice(0, room)
            parts.append(first)
            room -= len(first)
        vectors = Vectors.join(parts)
        self._fields = {name: str(column.type) for name, column in vectors.extras.items()}
        data = encode_columns({"id": vectors.ids, **vectors.extras})
        tag = "" if self._behind is None else f"-{hashlib.sha256(data).hexdigest()[:12]}"
        file = f"documents/part-{len(self._shards) + (self._behind or 0):05d}{tag}.parquet"
        row = ShardRecord(
            file=file,
            documents=len(vectors),
            pairs=vectors.values.size,
            tokens=vectors.values.size,
            sha256=self._folder.write(file, data),
            ids_sha256=vectors.ids_sha256(),
            vectors_sha256=array.add(vectors.values),
        )
        self._shards.append(row)


def even_shard_tokens(tokens: int) -> int:
    """Return the default tokens of a shard: an eighth within the limits, without a small last shard."""
    target = min(max(tokens // DEFAULT_SHARDS, MIN_SHARD_TOKENS), MAX_SHARD_TOKENS)
    return max(-(-tokens // max(tokens // target, 1)), 1)


def even_shard_tokens_of(tokens: int) -> int:
    """Return the tokens of a shard that `CorpusWriter` chooses by default for a corpus."""
    return MAX_SHARD_TOKENS if tokens > DEFAULT_SHARDS * MAX_SHARD_TOKENS else even_shard_tokens(tokens)


def numbered_ids(first: int, count: int) -> pa.Array:
    """Return the ids `first`, `first` + 1, ... of documents without ids."""
    return pa.array(np.arange(first, first + count)).cast(pa.string())


Ints = npt.NDArray[np.int64]
Pairs = npt.NDArray[np.int32]


def drawn_documents(
    offsets: Ints, words: Pairs, counts: Pairs, extras: Mapping[str, pa.Array] | None = None
) -> Documents:
    """Return documents without ids, which depend on their position in the corpus; arguments as of `Documents`."""
    return Documents(pa.nulls(offsets.size - 1, pa.string()), offsets, words, counts, extras or {})


def drawn_vectors(values: npt.NDArray[np.float64]) -> Vectors:
    """Return vectors without ids; `values` has the shape (vectors, columns)."""
    return Vectors(pa.nulls(len(values), pa.string()), values)


def label_column(has: npt.NDArray[np.bool_], names: Sequence[Name]) -> pa.Array:
    """Return the column of labels; `has` has the shape (documents, labels)."""
    label = np.nonzero(has)[1]
    parts = [pa.array([names[value][place] for value in label.tolist()], pa.string()) for place in (0, 1)]
    flat = pa.StructArray.from_arrays(parts, fields=list(LABELS.value_type))
    offsets = pa.array(np.concatenate([[0], np.cumsum(has.sum(axis=1))]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, flat, type=LABELS)


def segment_column(counts: Ints, lengths: Ints) -> pa.Array:
    """Return the column of segments: `counts` of each document, `lengths` of each segment in pairs."""
    return segment_lists(counts, lengths).cast(EXTRAS["segments"])
